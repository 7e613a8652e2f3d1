@fc([("a", np.int32)])
def f(s):
    s.a = 1
    return s
