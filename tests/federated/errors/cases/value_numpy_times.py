@fc(np.float32)
def f(x):
    return np.ones(3) * x
