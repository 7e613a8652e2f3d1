"""Guards on modules, parameters, hooks and tensors: both ways."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..probe import Probe, Steps, flip, right_after, same

X = torch.ones(2, 3)


class Net(nn.Module):
    """Dropout decides whether it trains; a number and a list are read."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(width, width)
        self.blocks = nn.ModuleList([nn.Sigmoid(), nn.ReLU()])
        self.scale = 2.0

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x) * self.scale
        for block in self.blocks:
            x = block(x)
        return x * 0.5 if self.training else x


@flip
def test_training_flag() -> Steps:
    net = Net()
    yield (lambda x: net(x)), (X,)
    net.eval()
    yield None
    net.train()
    yield None


@flip
def test_training_flag_of_a_child() -> Steps:
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(1.0))
    yield (lambda x: net(x)), (X,)
    net[1].eval()
    yield None
    net[1].train()
    yield None


@flip
def test_module_number() -> Steps:
    net = Net()
    yield (lambda x: net(x)), (X,)
    net.scale = 5.0
    yield None
    net.scale = 2.0
    yield None


@flip
def test_child_replaced() -> Steps:
    net = Net()
    first = net.blocks[0]
    yield (lambda x: net(x)), (X,)
    net.blocks[0] = nn.Tanh()
    yield None
    net.blocks[0] = first
    yield None


@flip
def test_children_reordered() -> Steps:
    net = Net()
    yield (lambda x: net(x)), (X,)
    net.blocks = nn.ModuleList(reversed(list(net.blocks)))
    yield None
    net.blocks = nn.ModuleList(reversed(list(net.blocks)))
    yield None


@flip
def test_child_appended() -> Steps:
    net = Net()
    yield (lambda x: net(x)), (X,)
    net.blocks.append(nn.Tanh())
    yield None
    # `del net.blocks[-1]` would also replace the private dict by an OrderedDict.
    del net.blocks._modules["2"]
    yield None


@flip
def test_bias_becomes_none() -> Steps:
    net = Net()
    bias = net.layer.bias
    yield (lambda x: net(x)), (X,)
    net.layer.bias = None  # type: ignore[assignment]
    yield None
    net.layer.bias = bias
    yield None


@flip
def test_requires_grad() -> Steps:
    net = Net()
    yield (lambda x: net(x)), (X,)
    net.requires_grad_(False)
    yield None
    net.requires_grad_(True)
    yield None


@flip
def test_requires_grad_of_one_parameter() -> Steps:
    layer = nn.Linear(3, 3, bias=False)
    yield (lambda x: layer(x)), (X,)
    layer.weight.requires_grad_(False)
    yield None
    layer.weight.requires_grad_(True)
    yield None


@flip
def test_half() -> Steps:
    layer = nn.Linear(3, 3)
    yield (lambda x: layer(x.to(layer.weight.dtype))), (X,)
    layer.half()
    yield None
    layer.float()
    yield None


@flip
def test_parameter_data_of_other_shape() -> Steps:
    layer = nn.Linear(3, 3, bias=False)
    before = layer.weight.data
    yield (lambda x: layer(x)), (X,)
    layer.weight.data = torch.ones(5, 3)
    yield None
    layer.weight.data = before
    yield None


@flip
def test_parameter_data_of_other_strides() -> Steps:
    layer = nn.Linear(3, 3, bias=False)
    before = layer.weight.data
    yield (lambda x: (layer(x), layer.weight.is_contiguous())), (X,)
    layer.weight.data = torch.full((3, 3), 2.0).t()
    yield None
    layer.weight.data = before
    yield None


@same
def test_parameter_data_of_same_shape() -> Steps:
    layer = nn.Linear(3, 3)
    yield (lambda x: layer(x)), (X,)
    layer.weight.data = torch.zeros(3, 3)
    yield None
    layer.weight.data = torch.full((3, 3), 2.0)
    yield None


@same
def test_weights_trained_in_place() -> Steps:
    layer = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    yield (lambda x: layer(x)), (X,)
    for _ in range(5):
        layer(X).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield None


@right_after
def test_parameter_replaced_by_its_like() -> Steps:
    layer = nn.Linear(3, 3)
    yield (lambda x: layer(x)), (X,)
    layer.weight = nn.Parameter(torch.zeros(3, 3))
    yield None
    layer.load_state_dict({"weight": torch.ones(3, 3), "bias": torch.zeros(3)})
    yield None
    layer.load_state_dict({"weight": torch.eye(3), "bias": torch.ones(3)}, assign=True)
    yield None


@flip
def test_forward_hook() -> Steps:
    net = Net()
    yield (lambda x: net(x)), (X,)
    handle = net.layer.register_forward_hook(lambda m, args, out: out * 3)
    yield None
    handle.remove()
    yield None


@flip
def test_forward_pre_hook() -> Steps:
    net = Net()
    yield (lambda x: net(x)), (X,)
    handle = net.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    yield None
    handle.remove()
    yield None


@flip
def test_hook_replaced_by_another() -> Steps:
    net = Net()
    handle = net.register_forward_hook(lambda m, args, out: out * 3)
    yield (lambda x: net(x)), (X,)
    handle.remove()
    net.register_forward_hook(lambda m, args, out: out * 4)
    yield None


@flip
def test_global_forward_hook() -> Steps:
    net = Net()
    yield (lambda x: net(x)), (X,)
    register = nn.modules.module.register_module_forward_hook
    handle = register(lambda m, args, out: out + 1)
    try:
        yield None
    finally:
        handle.remove()
    yield None


@right_after
def test_backward_hook() -> Steps:
    net = Net()

    def fn(x: Tensor) -> Any:
        x = x.clone().requires_grad_()
        net(x).sum().backward()
        return x.grad

    yield fn, (X,)
    handle = net.layer.register_full_backward_hook(lambda m, gi, go: (gi[0] * 7,))
    yield None
    handle.remove()
    yield None


@flip
def test_forward_replaced_on_instance() -> Steps:
    net = Net()
    yield (lambda x: net(x)), (X,)
    net.forward = lambda x: x - 1  # type: ignore[method-assign]
    yield None
    del net.forward
    yield None


@flip
def test_forward_replaced_on_class() -> Steps:
    class Own(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    net = Own()
    original = Own.forward
    yield (lambda x: net(x)), (X,)
    Own.forward = lambda self, x: x * 3  # type: ignore[method-assign, assignment]
    yield None
    Own.forward = original  # type: ignore[method-assign]
    yield None


@flip
def test_class_of_module_assigned() -> Steps:
    net: Any = nn.ReLU()
    yield (lambda x: net(x - 2)), (X,)
    net.__class__ = nn.Sigmoid
    yield None
    net.__class__ = nn.ReLU
    yield None


@flip
def test_buffer_registered_again() -> Steps:
    norm = nn.BatchNorm1d(3)
    norm.eval()
    yield (lambda x: norm(x)), (X,)
    mean = norm.running_mean
    norm.running_mean = None
    norm.running_var, var = None, norm.running_var
    yield None
    norm.running_mean, norm.running_var = mean, var
    yield None


@same
def test_buffers_updated_between_calls() -> Steps:
    norm = nn.BatchNorm1d(3).eval()
    yield (lambda x: norm(x)), (X,)
    norm.running_mean.fill_(3.0)  # type: ignore[union-attr]
    yield None
    norm.reset_running_stats()
    yield None


@flip
def test_weights_become_tied() -> Steps:
    one, two = nn.Linear(3, 3), nn.Linear(3, 3)
    own = two.weight
    shared = one.weight
    yield (lambda x: two(one(x)) if one.weight is two.weight else one(x)), (X,)
    two.weight = shared
    yield None
    two.weight = own
    yield None


@flip
def test_tensor_argument_requires_grad() -> Steps:
    x = torch.ones(3)
    yield (lambda v: v * 2), (x,)
    yield (x.clone().requires_grad_(),)
    yield (x,)


@flip
def test_tensor_argument_dtype() -> Steps:
    yield (lambda v: v * 2), (torch.ones(3),)
    yield (torch.ones(3, dtype=torch.int64),)
    yield (torch.zeros(3),)


@flip
def test_tensor_argument_size() -> Steps:
    yield (lambda v: v * v.shape[0]), (torch.ones(3),)
    yield (torch.ones(4),)
    yield (torch.zeros(3),)


@flip
def test_tensor_argument_rank() -> Steps:
    yield (lambda v: v.sum(-1)), (torch.ones(3),)
    yield (torch.ones(3, 3),)
    yield (torch.zeros(3),)


@flip
def test_tensor_argument_strides() -> Steps:
    yield (lambda v: v * 2), (torch.ones(3, 3),)
    yield (torch.ones(3, 6)[:, ::2],)
    yield (torch.zeros(3, 3),)


@flip
def test_tensor_argument_device() -> Steps:
    yield (lambda v: v * 2), (torch.ones(3),)
    yield (torch.ones(3, device="meta"),)
    yield (torch.zeros(3),)


@flip
def test_tensor_argument_becomes_none() -> Steps:
    yield (lambda v, m: v if m is None else v * m), (torch.ones(3), torch.full((3,), 2.0))
    yield torch.ones(3), None
    yield torch.ones(3), torch.full((3,), 2.0)


@flip
def test_tensor_argument_becomes_number() -> Steps:
    yield (lambda v, m: v * m), (torch.ones(3), torch.tensor(2.0))
    yield torch.ones(3), 3.0
    yield torch.ones(3), torch.tensor(4.0)


@flip
def test_parameter_or_tensor() -> Steps:
    yield (lambda v: (v.detach(), isinstance(v, nn.Parameter))), (torch.ones(3),)
    yield (nn.Parameter(torch.ones(3)),)
    yield (torch.ones(3),)


@same
def test_tensor_data_never_matters() -> Steps:
    yield (lambda v: v.exp() * 2), (torch.ones(3),)
    for k in range(5):
        yield (torch.full((3,), float(k)),)


def test_entry_per_size_is_kept() -> None:
    probe = Probe(lambda v: v * v.shape[0])
    for n in (3, 4, 5):
        probe.right(torch.ones(n))
    for n in (3, 4, 5):
        probe.steady(torch.ones(n))
