@fc(fl.FederatedType(np.str_, fl.CLIENTS))
def least(values):
    return fl.federated_min(values)
