@fc(np.float32, np.int32)
def pick(state, key):
    return state


@fc(
    fl.FederatedType(np.int32, fl.CLIENTS),
    fl.FederatedType(np.int32, fl.SERVER),
    fl.FederatedType(np.float32, fl.SERVER),
)
def f(keys, max_key, state):
    return fl.federated_select(keys, max_key, state, pick)
