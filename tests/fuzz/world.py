"""The classes and helpers that generated programs use; their source opens every program."""

PREAMBLE = '''
import collections
import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


class Plain:
    level = 1

    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def run(self, x):
        return x + self.level


class Child(Plain):
    def run(self, x):
        return super().run(x) * 2


class Other:
    level = 5

    def run(self, x):
        return x - self.level


class Slotted:
    __slots__ = ("n", "k", "child")
    level = 2

    def __init__(self, n=1, child=None):
        self.n = n
        self.child = child


class Dynamic(Plain):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return len(name)


@dataclass
class Record:
    n: Any = 1
    items: Any = field(default_factory=list)
    child: Any = None

    @property
    def doubled(self):
        return self.n * 2


class Net(nn.Module):
    def __init__(self, scale=2.0):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.blocks = nn.ModuleList([nn.Tanh(), nn.Linear(3, 3)])
        self.register_buffer("shift", torch.ones(3))
        self.scale = scale

    def forward(self, x):
        x = self.first(x) * self.scale + self.shift
        for block in self.blocks:
            x = block(x)
        return x * 0.5 if self.training else x


def seeded(seed, make):
    torch.manual_seed(seed)
    return make()


def helper(x, n=2, *, k=1):
    return x * 0.5 + n + k


def other_helper(x, n=2, *, k=1):
    return x - n * k


def closure(value):
    def read(x):
        return use(x, value)

    def write(new):
        nonlocal value
        value = new

    read.write = write
    return read


def add_hook(module):
    module.register_forward_hook(lambda m, args, out: out + 1)


def id_of(value):
    return len(str(type(value)))


def use(x, v):
    """A tensor operation that depends on the value and on its exact type."""
    if isinstance(v, torch.Tensor):
        return x + v.sum() if v.dtype.is_floating_point else x - v.sum()
    if isinstance(v, bool):
        return x + 0.25 if v else x - 0.25
    if isinstance(v, int):
        return x * 0.5 + v
    if isinstance(v, float):
        return x * 0.25 + v + math.copysign(1.0, v)
    if isinstance(v, str):
        return x + len(v) * 0.125
    if v is None:
        return -x
    if isinstance(v, (list, tuple)):
        for item in v:
            x = use(x, item)
        return x * (1 if isinstance(v, list) else 2) + len(v)
    if isinstance(v, dict):
        for key, item in v.items():
            x = use(x + len(str(key)), item)
        return x
    if isinstance(v, nn.Module) or callable(v):
        return v(x)
    return x + type(v).level + len(type(v).__name__)
'''
