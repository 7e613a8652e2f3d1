@fc(fl.FederatedType([("a", np.int32), ("b", np.int32)], fl.CLIENTS))
def f(values):
    return fl.federated_secure_sum(values, {"a": 10})
