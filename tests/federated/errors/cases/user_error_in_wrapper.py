@fw.before
def changed(x):
    raise ValueError("the wrapper's own")


@changed
def f(x):
    return x


f(1)
