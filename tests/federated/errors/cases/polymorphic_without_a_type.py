double = fc(lambda x: (x, x))


@fc
def f():
    return double(object())
