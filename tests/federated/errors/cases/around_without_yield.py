@fw.around
def guarded(*args):
    return args


@guarded
def f(x):
    return x


f(1)
