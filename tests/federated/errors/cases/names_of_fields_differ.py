@fc([("a", np.int32), ("c", np.int32)])
def f(a, b):
    return a
