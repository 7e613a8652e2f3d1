@fc(np.int32)
def f():
    return 1
