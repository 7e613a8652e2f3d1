kept = []


@fc(fl.FunctionType(None, np.int32))
def f(g):
    kept.append(g)
    return g()


kept[0]()
