@fc(np.int32)
def outer(x):
    @fc(np.int32)
    def inner(y):
        return 1 / 0

    return inner(x)
