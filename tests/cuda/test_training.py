"""Steps of optimizers with scaled gradients: those that are taken, and those that infinities skip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from differential.support import api
from torch import Tensor, nn

from .compare import SEED, World, differs, same

Step = Callable[[World], Any]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 16), nn.Linear(16, 2)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.dropout(self.first(x).relu()))


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adam": lambda parameters: torch.optim.Adam(parameters, 1e-2),
    "adam_foreach": lambda parameters: torch.optim.Adam(parameters, 1e-2, foreach=True),
    "adam_fused": lambda parameters: torch.optim.Adam(parameters, 1e-2, fused=True),
    "adamw_amsgrad": lambda parameters: torch.optim.AdamW(parameters, 1e-2, amsgrad=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, 1e-2, momentum=0.9),
}
ON_CUDA: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adam_capturable": lambda parameters: torch.optim.Adam(parameters, 1e-2, capturable=True),
    "adam_tensor_lr": lambda parameters: torch.optim.Adam(
        parameters, torch.tensor(1e-2, device="cuda"), capturable=True, foreach=True
    ),
}


def make_of(
    device: str, optimizer: Callable[[Any], torch.optim.Optimizer], is_scaled: bool
) -> Callable[[], World]:
    def make() -> World:
        torch.manual_seed(SEED)
        model = Net().to(device)
        optim = optimizer(model.parameters())
        scaler = torch.amp.GradScaler(
            device, init_scale=256.0, growth_interval=2, enabled=is_scaled
        )
        dtype = torch.float16 if device == "cuda" else torch.bfloat16

        def step(x: Tensor, target: Tensor) -> Any:
            optim.zero_grad()
            with torch.autocast(device, dtype=dtype):
                loss = (model(x) - target).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optim)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optim)
            scaler.update()
            return loss.detach(), norm, scaler.get_scale()

        x = (torch.arange(20.0).reshape(5, 4) / 20).to(device)
        args = [x, torch.ones(5, 2, device=device)]
        held = {"model": model, "state": States(optim, scaler)}
        return {"fn": step, "args": args, **held}

    return make


class States:
    """An optimizer's and a scaler's state, as they are when they are looked at."""

    def __init__(self, optim: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
        self.optim, self.scaler = optim, scaler

    def __reduce__(self) -> Any:
        raise TypeError("it isn't copied")


def spoil(world: World) -> None:
    world["args"][0] = world["args"][0].clone()
    world["args"][0][0, 0] = float("inf")


def mend(world: World) -> None:
    world["args"][0] = world["args"][0].clone()
    world["args"][0][0, 0] = 0.5


def slower(world: World) -> None:
    for group in world["state"].optim.param_groups:
        group["lr"] = group["lr"] / 2


@pytest.mark.parametrize("is_scaled", [True, False], ids=["scaled", "plain"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps(name: str, is_scaled: bool, device: str) -> None:
    make = make_of(device, OPTIMIZERS[name], is_scaled)
    differs(make, spoil)
    same(make, spoil, mend, slower, replays=None)


@pytest.mark.parametrize("is_scaled", [True, False], ids=["scaled", "plain"])
@pytest.mark.parametrize("name", ON_CUDA)
def test_steps_on_cuda(name: str, is_scaled: bool, cuda: str) -> None:
    make = make_of(cuda, ON_CUDA[name], is_scaled)
    same(make, spoil, mend, slower, replays=None)


def test_accumulated(device: str) -> None:
    """Gradients of several batches, and a step behind the last one."""

    def make() -> World:
        torch.manual_seed(SEED)
        model = Net().to(device)
        optim = torch.optim.Adam(model.parameters(), 1e-2)
        scaler = torch.amp.GradScaler(device, init_scale=64.0)

        def step(x: Tensor) -> Any:
            losses = []
            for part in x.split(2):
                loss = model(part).pow(2).mean()
                scaler.scale(loss).backward()
                losses.append(loss.detach())
            scaler.step(optim)
            scaler.update()
            optim.zero_grad(set_to_none=True)
            return losses, scaler.state_dict()

        x = (torch.arange(24.0).reshape(6, 4) / 20).to(device)
        return {"fn": step, "args": [x], "model": model, "optim": States(optim, scaler)}

    def shorter(world: World) -> None:
        world["args"][0] = world["args"][0][:4]

    same(make, shorter, spoil, replays=None)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_one_trace(name: str, device: str) -> None:
    """PyTorch computes gradients of a device's tensors in a thread of its own."""
    api.reset()
    torch.manual_seed(SEED)
    model = Net().to(device)
    optim = OPTIMIZERS[name](model.parameters())

    def step(x: Tensor) -> Tensor:
        optim.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optim.step()
        return loss.detach()

    compiled = api.compile(step)
    for _ in range(6):
        compiled(torch.ones(3, 4, device=device))
    assert api.PLAIN or (api.breaks(compiled) == 0 and api.hits(compiled)), api.reason(compiled)


class Doubled(torch.autograd.Function):
    calls: ClassVar[list[str]] = []

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        Doubled.calls.append("doubled")
        return gradient * 2


def leaf(weight: Tensor, y: Tensor, note: Callable[[Tensor], Any]) -> Tensor:
    weight.register_hook(note)
    return y


def middle(weight: Tensor, y: Tensor, note: Callable[[Tensor], Any]) -> Tensor:
    y.register_hook(note)
    return y


def behind(weight: Tensor, y: Tensor, note: Callable[[Tensor], Any]) -> Tensor:
    weight.register_post_accumulate_grad_hook(note)
    return y


def function(weight: Tensor, y: Tensor, note: Callable[[Tensor], Any]) -> Tensor:
    return Doubled.apply(y)  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", [leaf, middle, behind, function])
def test_code_that_runs_while_gradients_are_computed(kind: Any, device: str) -> None:
    """It runs in the engine's thread: each time, with its effects."""

    def make() -> World:
        Doubled.calls.clear()
        weight = torch.ones(4, device=device, requires_grad=True)
        seen: list[Any] = []

        def note(found: Tensor) -> None:
            seen.append(float(found.detach().sum()) * world["factor"])

        def step(x: Tensor) -> Any:
            own = weight.detach().requires_grad_()
            y = kind(own, own * x, note)
            y.sum().backward()
            return own.grad, tuple(seen), len(Doubled.calls)

        world: World = {"fn": step, "args": [torch.arange(4.0, device=device)], "factor": 1.0}
        return world

    def change(world: World) -> None:
        world["factor"] = 3.0

    same(make, change, replays=None)


def test_a_model_that_moves(cuda: str) -> None:
    """Trained on the CPU, moved, trained on: the optimizer's state moves as `load_state_dict` moves it."""

    def make() -> World:
        torch.manual_seed(SEED)
        model = Net()
        optim = torch.optim.SGD(model.parameters(), 1e-2)

        def step(x: Tensor) -> Any:
            loss = model(x).pow(2).mean()
            loss.backward()
            optim.step()
            optim.zero_grad()
            return loss.detach()

        return {"fn": step, "args": [torch.ones(3, 4)], "model": model}

    def move(world: World) -> None:
        world["model"].to(cuda)
        world["args"][0] = world["args"][0].to(cuda)

    def back(world: World) -> None:
        world["model"].cpu()
        world["args"][0] = world["args"][0].cpu()

    same(make, move, back, move, replays=None)
