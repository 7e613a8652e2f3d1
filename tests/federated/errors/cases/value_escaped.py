kept = []


@fc(np.int32)
def f(x):
    kept.append(x)
    return x


@fc(np.int32)
def g(y):
    return y, kept[0]
