@fc(np.int32)
def f(x):
    return fl.federated_zip(x)
