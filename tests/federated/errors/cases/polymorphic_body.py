@fc
def first(pair):
    return pair[0]


@fc(np.int32)
def f(x):
    return first(x)
