@fc
def inner(x):
    return x


@fc(np.int32)
def f(x):
    return inner
