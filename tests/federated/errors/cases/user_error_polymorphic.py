def helper(x):
    raise ValueError("the user's own")


@fc
def first(x):
    return helper(x)


@fc(np.int32)
def f(x):
    return first(x)
