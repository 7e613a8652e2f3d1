import torch


@fl.federated_computation(fl.FederatedType(np.float32, fl.CLIENTS))
def work(values):
    return torch.cat([torch.ones(1), values])
