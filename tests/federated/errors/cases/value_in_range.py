@fc(np.int32)
def f(n):
    return [i for i in range(n)]
