@fc(np.int8)
def small(x):
    return x


@fc
def f():
    return small(300)
