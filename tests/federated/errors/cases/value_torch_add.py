import torch


@fl.federated_computation(fl.FederatedType(np.float32, fl.CLIENTS))
def work(values):
    return torch.add(values, 1)
