@fc
def f():
    return fl.federated_value(1, "server")
