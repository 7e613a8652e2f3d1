@fc((np.float32, np.int32))
def f(pair):
    return pair.first
