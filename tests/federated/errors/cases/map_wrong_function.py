@fc(np.float32)
def halve(x):
    return x


@fc(fl.FederatedType(np.int32, fl.CLIENTS))
def f(values):
    return fl.federated_map(halve, values)
