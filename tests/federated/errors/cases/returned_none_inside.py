@fc(np.int32)
def f(x):
    return {"a": x, "b": (x, None)}
