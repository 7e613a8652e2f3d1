@fc(fl.FederatedType((np.int32, np.float32), fl.CLIENTS))
def f(pair):
    return pair[2]
