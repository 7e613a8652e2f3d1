@fc(np.int32)
def f(n):
    return [n] * int(n)
