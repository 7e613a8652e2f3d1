@fc((np.int32, np.int32))
def pair(p):
    return p


@fc(np.int32)
def f(x):
    return pair((x, x, x))
