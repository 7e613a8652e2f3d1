import warnings

warnings.simplefilter("error")


@fc(np.int32)
def f(x):
    return fl.federated_value(x, fl.SERVER)
