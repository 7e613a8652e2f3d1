@fc(np.int32)
def f(x):
    return np.sum(np.asarray(x))
