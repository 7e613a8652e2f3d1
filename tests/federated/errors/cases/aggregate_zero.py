@fc(np.int64, np.int32)
def accumulate(total, value):
    return total


@fc(np.int64, np.int64)
def merge(a, b):
    return a


@fc(np.int64)
def report(total):
    return total


@fc(fl.FederatedType(np.int32, fl.CLIENTS))
def f(values):
    return fl.federated_aggregate(values, 0.0, accumulate, merge, report)
