@fc(fl.FederatedType(np.int32, fl.SERVER))
def total(values):
    return fl.federated_sum(values)
