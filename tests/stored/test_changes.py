"""Traces that were kept are right whatever has changed by the time they are found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import stator
from stored.alike import same

CONFIG: dict[str, Any] = {"plus": 1, "sizes": [1, 2]}


class Base:
    factor = 2


class Meta(type):
    pass


class Scaled(Base, metaclass=Meta):
    def apply(self, x: Tensor) -> Tensor:
        return x * self.factor + CONFIG["plus"]


SCALED = Scaled()


class Other(Scaled):
    def apply(self, x: Tensor) -> Tensor:
        return x - 1


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.parts = nn.ModuleDict({"relu": nn.ReLU()})

    def forward(self, x: Tensor) -> Tensor:
        return self.parts["relu"](self.linear(x))


def activations(x: Tensor) -> Tensor:
    return F.relu(x) + F.gelu(x)


def objects(x: Tensor) -> Tensor:
    return SCALED.apply(x) + math.sqrt(4)


def operators(x: Tensor) -> Tensor:
    return torch.add(x, 1).sin()


def copies(x: Tensor) -> Tensor:
    return x + len({**CONFIG}["sizes"])


NET = Net()
FUNCTIONS = (activations, objects, operators, copies, NET)

Patch = pytest.MonkeyPatch
CHANGES: dict[str, Callable[[Patch], object]] = {
    "nothing": lambda _: None,
    "a function of PyTorch's": lambda it: it.setattr(F, "relu", lambda x, inplace=False: x * 100),
    "a function of C": lambda it: it.setattr(torch, "add", lambda x, y: x * 7),
    "a function of the library": lambda it: it.setattr(math, "sqrt", lambda x: 50.0),
    "a method of PyTorch's": lambda it: it.setattr(nn.Linear, "forward", lambda self, x: x * 3),
    "a base's attribute": lambda it: it.setattr(Base, "factor", 5),
    "an instance's attribute": lambda it: it.setattr(SCALED, "factor", 7, raising=False),
    "an instance's class": lambda it: it.setattr(SCALED, "__class__", Other),
    "a special method": lambda it: it.setattr(
        Scaled,
        "__getattribute__",
        lambda self, name: (
            (lambda x: x * 9) if name == "apply" else object.__getattribute__(self, name)
        ),
        raising=False,
    ),
    "a metaclass": lambda it: it.setattr(Meta, "__call__", lambda cls: None, raising=False),
    "an entry": lambda it: it.setitem(CONFIG, "plus", 10),
    "an entry's list": lambda it: it.setitem(CONFIG, "sizes", [1, 2, 3]),
    "a parameter": lambda it: it.setitem(
        NET.linear._parameters, "weight", nn.Parameter(torch.ones(3, 3))
    ),
    "a part": lambda it: it.setitem(NET.parts._modules, "relu", nn.Tanh()),
    "a mode": lambda it: it.setattr(NET, "training", False),
}


@pytest.fixture(autouse=True)
def _kept(tmp_path: Path, monkeypatch: Patch) -> Iterator[None]:
    monkeypatch.setenv("STATOR_CACHE", str(tmp_path / "cache"))
    x = torch.linspace(-1, 1, 3)
    with stator.config.patch(strict=True, skip_unprofitable=False):
        for function in FUNCTIONS:
            compiled = stator.compile(function)
            compiled(x)
            assert stator.save_traces(compiled).count == 1
        yield


@pytest.mark.parametrize("name", CHANGES)
def test_results_are_plain_pythons(name: str, monkeypatch: Patch) -> None:
    CHANGES[name](monkeypatch)
    x = torch.linspace(-1, 1, 3)
    used = 0
    for function in FUNCTIONS:
        compiled = stator.compile(function)
        found = stator.load_traces(compiled)
        for value in (x, x * 2):
            assert same(compiled(value), function(value)), (function, found)
        used += stator.stats(compiled).hits == 2
    assert used == len(FUNCTIONS) if name == "nothing" else used >= 3
