"""The classes and helpers that generated programs use; their source opens every program."""

PREAMBLE = '''
import collections
import contextvars
import enum
import functools
import itertools
import math
import operator
import types
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

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


class Meta(type):
    factor = 2

    @property
    def rank(cls):
        return vars(cls).get("level", 0) * cls.factor


class Metal(metaclass=Meta):
    level = 3

    def __init__(self, n=1, child=None):
        self.n = n
        self.child = child


class Twice:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner):
        return self if instance is None else (instance.__dict__.get(self.name, 1),) * 2

    def __set__(self, instance, value):
        instance.__dict__[self.name] = value


class Described(Plain):
    n = Twice()

    @property
    def k(self):
        return self.__dict__.get("_n")

    @functools.cached_property
    def extra(self):
        return (self.child, 2)


class Mixed:
    __slots__ = ("n", "child", "__dict__")
    level = 4

    def __init__(self, n=1, child=None):
        self.n = n
        self.child = child


class Items(list):
    level = 6

    def first(self):
        return self[0] if self else None


class Table(dict):
    level = 7

    def __missing__(self, key):
        return len(str(key))


class Pair(NamedTuple):
    n: Any
    child: Any = None


class Color(enum.IntEnum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True, order=True)
class Key:
    n: Any = 1
    name: str = "k"


class Block:
    def __init__(self, n=1, child=None):
        self.n = n
        self.child = child
        self.seen = []
        self.swallows = False

    def __enter__(self):
        self.seen.append("in")
        return self.n

    def __exit__(self, kind, error, where):
        self.seen.append(kind and kind.__name__)
        return self.swallows


variable = contextvars.ContextVar("variable", default=2)
space = types.ModuleType("space")
space.n = 1
space.run = lambda x: x + 2


def numbers(count, log):
    at = 0
    try:
        while at < count:
            at += (yield at) or 1
    finally:
        log.append(at)
    return at


def delegate(count, log):
    end = yield from numbers(count, log)
    yield end * 10


def take(*args, k=1, **rest):
    return len(args) * k + len(rest)


def counted(x):
    counted.calls = getattr(counted, "calls", 0) + 1
    return x + counted.calls


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
