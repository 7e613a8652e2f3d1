"""Where tensors are: moved between calls and in them, made where a program says, and the device it asks for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from .compare import World, differs, same


def values(device: str, *shape: int) -> Tensor:
    count = torch.Size(shape).numel()
    return (torch.arange(float(count)).reshape(shape) / 7 - 1).to(device)


def branches(x: Tensor) -> Any:
    y = x * 2 if x.is_cuda or x.is_meta else x + 2
    return y, x.device, x.get_device(), str(x.device.type)


def makes_like(x: Tensor) -> Any:
    zeros = torch.zeros(3, device=x.device)
    return zeros, torch.ones_like(x) + x, x.new_full((2,), 3.0), torch.arange(3, device=x.device)


def round_trip(x: Tensor) -> Any:
    y = (x + 1).to("cpu" if x.is_cpu else x.device)
    return y, x.cpu() + 1 if not x.is_meta else x


@pytest.mark.parametrize("fn", [branches, makes_like, round_trip])
def test_argument_moves(fn: Callable[..., Any], away: str) -> None:
    def make() -> World:
        return {"fn": fn, "args": [values("cpu", 2, 3)]}

    def move(world: World) -> None:
        world["args"][0] = world["args"][0].to(away)

    def back(world: World) -> None:
        world["args"][0] = values("cpu", 2, 3)

    differs(make, move)
    same(make, move, back, move)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.norm(self.first(x)).relu())


def test_module_moves(away: str) -> None:
    """`Module.to` writes to the parameters' `data`: the objects stay, what they are doesn't."""

    def make() -> World:
        model = Net()
        return {"fn": lambda x: model(x).sum(), "args": [values("cpu", 5, 4)], "model": model}

    def move(world: World) -> None:
        world["model"].to(away)
        world["args"][0] = world["args"][0].to(away)

    def back(world: World) -> None:
        world["model"].to_empty(device="cpu") if away == "meta" else world["model"].cpu()
        with torch.no_grad():
            for number, tensor in enumerate(world["model"].state_dict().values()):
                tensor.fill_(number / 8)
        world["args"][0] = values("cpu", 5, 4)

    same(make, move, back, move)


def test_module_is_elsewhere(cuda: str) -> None:
    """The error is plain Python's, and the call behind it is right again."""

    def make() -> World:
        model = Net()
        return {"fn": lambda x: model(x), "args": [values("cpu", 5, 4)], "model": model}

    same(make, lambda world: world["model"].to(cuda), lambda world: world["model"].cpu())


def test_moves_in_the_program(away: str) -> None:
    def fn(x: Tensor, where: str) -> Any:
        y = (x * 2).to(where)
        z = torch.zeros_like(y)
        return y + z, y.device, torch.ones(2, device=where)

    def make() -> World:
        return {"fn": fn, "args": [values("cpu", 3), away]}

    def stay(world: World) -> None:
        world["args"][1] = "cpu"

    def go(world: World) -> None:
        world["args"][1] = torch.device(away)

    differs(make, stay)
    same(make, stay, go)


def test_a_block_with_a_device(away: str) -> None:
    """`with torch.device(...)`, in the program and around the call."""

    def inside(x: Tensor) -> Any:
        y = x + 1
        with torch.device(away):
            made = torch.zeros(3), torch.tensor([1.0, 2.0])
        return y, made, torch.ones(2)

    def around(x: Tensor) -> Any:
        return x + 1, torch.zeros(3), torch.full((2,), 2.0)

    def make(fn: Callable[..., Any]) -> World:
        return {"fn": fn, "args": [values("cpu", 3)]}

    same(lambda: make(inside), replays=None)
    same(lambda: make(around), lambda world: torch.device(away), lambda world: None)


def test_the_default_device(away: str) -> None:
    """It is a mode of the whole thread: calls under it run natively."""

    def fn(x: Tensor) -> Any:
        return x + 1, torch.zeros(3), torch.get_default_device()

    def make() -> World:
        return {"fn": fn, "args": [values("cpu", 3)]}

    try:
        differs(make, lambda world: torch.set_default_device(away))
        torch.set_default_device(None)
        same(
            make,
            lambda world: torch.set_default_device(away),
            lambda world: torch.set_default_device(None),
        )
    finally:
        torch.set_default_device(None)


def test_parameters_are_replaced(away: str) -> None:
    """Not by `Module.to`: a parameter's `data`, where PyTorch takes that, or the parameter; and buffers."""

    def make() -> World:
        model = Net().eval()
        return {"fn": model.forward, "args": [values("cpu", 5, 4)], "model": model}

    def move(world: World) -> None:
        for module in world["model"].modules():
            for name, parameter in list(module._parameters.items()):
                if away == "meta":
                    module._parameters[name] = nn.Parameter(parameter.detach().to(away))
                else:
                    parameter.data = parameter.data.to(away)
            for name, buffer in list(module._buffers.items()):
                module._buffers[name] = buffer.to(away)
        world["args"][0] = values(away, 5, 4)

    same(make, move)


def test_a_copy_elsewhere(away: str) -> None:
    """One function, two models: each where it is."""

    def make() -> World:
        model = Net().eval()
        other = copy.deepcopy(model).to(away)
        return {
            "fn": lambda model, x: model(x),
            "args": [model, values("cpu", 5, 4)],
            "other": (model, other),
        }

    def swap(world: World) -> None:
        model, other = world["other"]
        is_first = world["args"][0] is model
        world["args"] = [other, values(away, 5, 4)] if is_first else [model, values("cpu", 5, 4)]

    same(make, swap, swap, swap)


def asks_which(x: Tensor) -> Any:
    return x + torch.cuda.current_device(), torch.zeros(2, device="cuda"), x.cuda() * 2


def blocks(x: Tensor) -> Any:
    y = torch.zeros(2, device="cuda")
    with torch.cuda.device(1):
        z = torch.ones(2, device="cuda"), x.cuda()
    return y, z, torch.ones(2, device="cuda")


@pytest.mark.parametrize("fn", [asks_which, blocks])
def test_the_selected_device(fn: Callable[..., Any], two_devices: int) -> None:
    def make() -> World:
        torch.cuda.set_device(0)
        return {"fn": fn, "args": [values("cpu", 3)]}

    differs(make, lambda world: torch.cuda.set_device(1))
    same(make, lambda world: torch.cuda.set_device(1), lambda world: torch.cuda.set_device(0))


def test_arguments_on_two_devices(two_devices: int) -> None:
    def fn(x: Tensor, y: Tensor) -> Any:
        return x.to(y.device) + y, x.to("cuda"), y.device.index

    def make() -> World:
        return {"fn": fn, "args": [values("cuda:0", 3), values("cuda:0", 3)]}

    def move(world: World) -> None:
        world["args"][1] = world["args"][1].to("cuda:1")

    differs(make, move)
    same(make, move)


def test_asks_of_one_device(cuda: str) -> None:
    """What a program asks of CUDA's own functions."""

    def fn(x: Tensor) -> Any:
        y = x * 2 if torch.cuda.is_available() else x
        name = torch.cuda.get_device_name(x.device)
        capability = torch.cuda.get_device_capability()
        return y, name, capability, torch.cuda.is_bf16_supported(), torch.cuda.current_device()

    same(lambda: {"fn": fn, "args": [values(cuda, 3)]}, replays=None)
