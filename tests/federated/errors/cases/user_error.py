@fc(np.int32)
def f(x):
    raise KeyError("the user's own")
