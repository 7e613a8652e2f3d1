@fc((np.int32, np.int32), np.int32)
def f(pair, x):
    return x in pair
