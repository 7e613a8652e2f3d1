@fc(fl.FederatedType(np.int32, fl.SERVER), fl.FederatedType(np.int32, fl.CLIENTS))
def total(a, b):
    return fl.federated_sum([a, b])
