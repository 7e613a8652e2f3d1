kept = []


@fc(np.int32)
def outer(x):
    @fc
    def inner():
        return x

    kept.append(inner)
    return inner()


kept[0]()
