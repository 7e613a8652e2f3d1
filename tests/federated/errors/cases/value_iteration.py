@fc(fl.FederatedType(np.int32, fl.CLIENTS))
def f(x):
    for each in x:
        pass
