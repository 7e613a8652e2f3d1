@fc(np.int32, np.int32)
def f(a, b):
    return min(a, b)
