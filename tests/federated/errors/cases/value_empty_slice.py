@fc((np.int32, np.float32))
def f(pair):
    return pair[2:]
