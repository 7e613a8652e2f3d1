@fc(np.int32)
def total(value):
    return fl.federated_sum(value)
