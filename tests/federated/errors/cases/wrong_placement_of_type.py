@fc(fl.FederatedType(np.int32, "clients"))
def f(x):
    return x
