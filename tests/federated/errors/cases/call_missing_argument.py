@fc(np.int32, np.float32)
def f(a, b):
    return a


f(a=1)
