@fc(np.int32)
def f(x):
    return x + 1
