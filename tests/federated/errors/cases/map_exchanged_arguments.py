@fc(np.int32)
def same(x):
    return x


@fc(fl.FederatedType(np.int32, fl.CLIENTS))
def f(values):
    return fl.federated_map(values, same)
