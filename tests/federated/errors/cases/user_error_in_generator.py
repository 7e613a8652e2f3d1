def numbers(x):
    yield x
    raise ValueError("the user's own")


@fc(np.int32)
def f(x):
    return list(numbers(x))
