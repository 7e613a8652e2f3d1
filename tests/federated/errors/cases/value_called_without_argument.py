@fc(fl.FunctionType(np.int32, np.int32))
def f(g):
    return g()
