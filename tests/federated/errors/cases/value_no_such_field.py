@fc([("weights", np.float32), ("bias", np.float32)])
def f(model):
    return model.weight
