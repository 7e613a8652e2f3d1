@fw.around
def guarded(*args):
    try:
        yield
    finally:
        pass


@fw.before
def changed(x):
    return x


@fc(np.int32)
@guarded
@changed
def f(x):
    raise ValueError("the user's own")
