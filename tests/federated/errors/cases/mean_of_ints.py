@fc(fl.FederatedType(np.int32, fl.CLIENTS))
def mean(values):
    return fl.federated_mean(values)
