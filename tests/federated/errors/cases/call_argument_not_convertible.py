@fc(np.int32)
def same(x):
    return x


@fc
def f():
    return same({1, 2})
