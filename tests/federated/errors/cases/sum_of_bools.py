@fc(fl.FederatedType([("n", np.int32), ("ok", np.bool_)], fl.CLIENTS))
def total(values):
    return fl.federated_sum(values)
