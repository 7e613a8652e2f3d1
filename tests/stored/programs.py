"""Programs whose traces are kept, each with arguments; and edits that a second process makes to some."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import operator
import re
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SCALE = 2.0
SIZES = {"a": 2, "b": 3}


class Mode(enum.Enum):
    PLAIN = "plain"
    TWICE = "twice"


class Pair(NamedTuple):
    first: Tensor
    second: Any


@dataclasses.dataclass
class Result:
    value: Tensor
    names: list[str]


class Scaled:
    factor = 3

    def __init__(self) -> None:
        self.calls = 0

    def apply(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.factor


def helper(x: Tensor, by: float = 2.0, *, plus: int = 1) -> Tensor:
    return x * by + plus


def wrapped(function: Any) -> Any:
    @functools.wraps(function)
    def inner(*args: Any) -> Any:
        return function(*args) + 1

    return inner


@wrapped
def decorated(x: Tensor) -> Tensor:
    return x.sin()


def plain(x: Tensor) -> Tensor:
    return ((x - 1) ** 2).sum()


def calls(x: Tensor) -> Tensor:
    return helper(helper(x, 3.0), plus=4) + decorated(x)


def globals_read(x: Tensor) -> Tensor:
    return x * SCALE + SIZES["b"]


def containers(x: Tensor) -> Any:
    parts = {"sum": x.sum(), "list": [x + 1, (x.shape[0], "text", None, 1.5, float("inf"))]}
    return Pair(x, Result(x * 2, ["a", "b"])), parts, collections.OrderedDict(k=x)


def enums(x: Tensor, mode: Mode = Mode.TWICE) -> Tensor:
    return x * 2 if mode is Mode.TWICE else x


def types(x: Tensor) -> Tensor:
    return x.to(torch.float64).reshape(torch.Size([4, -1]))[1:, ...].to(torch.device("cpu"))


def pooled(x: Tensor) -> Tensor:
    return F.max_pool2d(x.reshape(1, 1, 4, -1), 2) + torch.ops.aten.relu(x).sum()


def random(x: Tensor) -> Tensor:
    return F.dropout(x, 0.5) + torch.rand(4)


def warns(x: Tensor) -> Tensor:
    warnings.warn("careful", stacklevel=2)
    return x + 1


def numbers(x: Tensor) -> Any:
    return (x * 2j).real + x * (1 << 40), (1 << 100, -0.0, 1e300, b"bytes", range(3))


PATTERN = re.compile("a+")
LAST = operator.itemgetter(-1)
IS_SHORT = frozenset(["a", "b"]).__contains__
SHARED = Scaled()


def patterns(x: Tensor, text: str = "aab") -> Tensor:
    found = PATTERN.match(text)
    return x * (len(found.group()) if found else 7)


def getters(x: Tensor) -> Tensor:
    return LAST([x, x + 1])


def bound(x: Tensor) -> Tensor:
    return x + 1 if IS_SHORT("a") else x - 1


def writes(x: Tensor) -> Tensor:
    return SHARED.apply(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.steps = 0

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        return helper(self.drop(self.norm(torch.relu(self.linear(x)))))


FUNCTIONS = (
    *(plain, calls, globals_read, containers, enums, types, pooled, random, warns),
    *(numbers, writes),
)

OF_C = (patterns, getters, bound)
"""What these go through holds what no digest tells: their traces may not be used by another process."""
