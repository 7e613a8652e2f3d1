"""What tests of code within a node have in common: programs, and how they are compared."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from differential.support import api
from torch import Tensor, nn

from .results import agree, copied, runs_whole

# A program: a function of a tensor, what happens before each call, and what else is compared.
Program = tuple[Callable[[Tensor], Any], Callable[[int], None], Callable[[], Any]]
Make = Callable[[], Program]


CALLS = 8


class Doubled(torch.autograd.Function):
    """Its forward pass is code within a node."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


class Programs:
    """Programs by their names."""

    def __init__(self, most_traced: int = 2) -> None:
        self.all: dict[str, Make] = {}
        # Those without a break, all but so many calls of which are hits.
        self.are_whole: set[str] = set()
        self.most_traced = most_traced

    def program(self, make: Make) -> Make:
        self.all[make.__name__] = make
        return make

    def whole(self, make: Make) -> Make:
        self.are_whole.add(make.__name__)
        return self.program(make)

    def check(self, name: str, *, may_be_native: bool = False) -> None:
        """The calls are plain ones, and as many are hits as should be."""
        expected, _ = run(self.all[name], lambda step: step)
        found, compiled = run(self.all[name], lambda step: api.compile(step, backend="eager"))
        agree(expected, found)
        if name in self.are_whole and not may_be_native:
            runs_whole(compiled, CALLS - self.most_traced)


def rows(seed: int, *sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def nothing(call: int) -> None:
    pass


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def gradients(net: nn.Module) -> list[Tensor | None]:
    return [None if it.grad is None else it.grad.clone() for it in net.parameters()]


def step_of(net: nn.Module, between: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Any]:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor) -> Any:
        optimizer.zero_grad()
        loss = between(net(x)).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


SETTINGS = SimpleNamespace(factor=2.0, columns=2, seen=0, log=[])
# What functions that are given to nodes read and write.
HELD = SimpleNamespace(factor=2.0, flag=False, count=0, run=None)


def changes(call: int) -> None:
    HELD.factor = 2.0 if call < 4 else 3.0


def ends(net: nn.Module, loss: Tensor) -> Tensor:
    loss.backward()
    with torch.no_grad():
        for it in net.parameters():
            it -= 0.1 * it.grad
    return loss.detach()


def begins(net: nn.Module) -> None:
    for it in net.parameters():
        it.grad = None


class Keeper:
    """An object of which a method is a hook."""

    def __init__(self) -> None:
        self.scale = 2.0

    def hook(self, grad: Tensor) -> Tensor:
        return grad * self.scale


def run(make: Make, wrap: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    torch.manual_seed(0)
    step, change, watched = make()
    wrapped, seen = wrap(step), []
    for call in range(CALLS):
        change(call)
        try:
            result = wrapped(rows(call, 5, 3))
        except Exception as error:
            result = (type(error).__name__, str(error))
        seen.append((copied(result), copied(watched()), torch.is_grad_enabled()))
    # As many random numbers were drawn.
    seen.append(torch.rand(1))
    return seen, wrapped
