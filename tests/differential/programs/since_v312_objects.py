"""Classes and events as CPython 3.12 has them: `super` in one instruction, slots, values inside objects, buffers in Python, `sys.monitoring`."""

from __future__ import annotations

import dataclasses
import itertools
import sys
import typing
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..support.case import Corpus, call, one, t, two

case = Corpus()
LOG: list[Any] = []
FACTOR = 2.0
WIDTH = 12
LIMIT = 3


def _limit(*_: Any) -> None:
    global LIMIT
    LIMIT = 5


# `super` in one instruction.


class Base:
    rate = 2.0

    def __init__(self, **kwargs: Any) -> None:
        self.kwargs = kwargs

    def forward(self, x: Tensor, *, by: float = 1.0) -> Tensor:
        return x * self.rate * by

    @property
    def scale(self) -> float:
        return self.rate + 1

    @classmethod
    def build(cls, *args: Any, **kwargs: Any) -> Any:
        return cls(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        LOG.append(name)
        return len(name)


class Middle(Base):
    def forward(self, x: Tensor, *, by: float = 1.0) -> Tensor:
        return super().forward(x, by=by) + super().scale + super(Middle, self).rate


class Leaf(Middle):
    @property
    def scale(self) -> float:
        return super().scale * 10

    @classmethod
    def build(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().build(*args, **kwargs)
        made.leaf = True
        return made

    def missing(self) -> Any:
        return super().nothing


def _rate(*_: Any) -> None:
    Base.rate = 7.0


def _middle(*_: Any) -> None:
    Middle.rate = 1.0
    Base.forward = lambda self, x, *, by=1.0: x - by


@case(one, change=_rate)
def super_reads_and_calls(x: Tensor) -> Any:
    leaf = Leaf.build(a=1)
    return leaf.forward(x, by=3.0), leaf.scale, leaf.leaf, leaf.kwargs


@case(lambda: (t(3), Leaf()), keep=True, change=_middle)
def super_of_an_object_handed_in(x: Tensor, leaf: Leaf) -> Any:
    return leaf.forward(x), leaf.scale


class Aside(Base):
    def forward(self, x: Tensor, *, by: float = 1.0) -> Tensor:
        return super().forward(x) * 100


def _bases(*_: Any) -> None:
    Middle.__bases__ = (Aside,)


@case(lambda: (t(3), Leaf()), keep=True, change=_bases)
def super_with_other_bases(x: Tensor, leaf: Leaf) -> Any:
    return leaf.forward(x)


def _turn(x: Tensor, leaf: Any) -> None:
    leaf.__class__ = Aside


@case(lambda: (t(3), Leaf()), keep=True, change=_turn)
def super_of_an_object_of_another_class(x: Tensor, leaf: Any) -> Any:
    return leaf.forward(x)


@case(one)
def super_lacks_an_attribute(x: Tensor) -> Any:
    try:
        return Leaf().missing()
    except AttributeError as error:
        return x, str(error), error.name, type(error.obj).__name__, list(LOG)


def _super(*_: Any) -> None:
    class Super:
        def __init__(self, *args: Any) -> None:
            self.args = args

        def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
            return x * 1000

        scale, rate = 3, 4

    # A name that is bound by a statement isn't taken for the builtin by the compiler.
    globals()["super"] = Super


@case(one, change=_super)
def super_is_another_function(x: Tensor) -> Any:
    return Leaf().forward(x)


class Meta(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        LOG.append(cls.__name__)
        return super().__call__(*args, **kwargs)

    @property
    def size(cls) -> int:
        return len(cls.__mro__) + super().__basicsize__ * 0


class OfMeta(metaclass=Meta):
    def __new__(cls, x: Any) -> Any:
        made = super().__new__(cls)
        super(OfMeta, made).__setattr__("x", x * 2)
        return made

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) is NotImplemented

    def __setattr__(self, name: str, value: Any) -> None:
        LOG.append(name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        LOG.append("no " + name)


@case(one)
def super_in_special_methods(x: Tensor) -> Any:
    made = OfMeta(x)
    made.y = made.x + 1
    del made.x
    return made.y, made == 3, made != made, vars(made).keys() == {"y"}, OfMeta.size, list(LOG)


class Net(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)

    def __call__(self, x: Tensor, **kwargs: Any) -> Any:
        return super().__call__(x, **kwargs) + 1


class Deeper(Net):
    def forward(self, x: Tensor, *, times: int = 1) -> Tensor:
        for _ in range(times):
            x = super().forward(x)
        return x

    def extra_repr(self) -> str:
        return f"{super().extra_repr()!r}"


def _train(x: Tensor, net: Net) -> None:
    net.inner.bias.data.add_(1.0)
    Net.forward = lambda self, x: self.inner(x) * 3


@case(lambda: (t(3, 4), Deeper(4)), keep=True, change=_train, grad=True)
def super_of_modules(x: Tensor, net: Deeper) -> Any:
    return net(x), net(x, times=2)


# Classes with fields.


@dataclass(kw_only=True, slots=True)
class Config:
    size: int = 2
    scale: float = 1.0
    tags: list[str] = field(default_factory=lambda: ["a"])


@dataclass(frozen=True, slots=True, weakref_slot=True, order=True)
class Point:
    x: float
    _: KW_ONLY
    y: float = 1.0
    seed: InitVar[int] = 3
    total: float = field(init=False, compare=False)

    def __post_init__(self, seed: int) -> None:
        object.__setattr__(self, "total", self.x + self.y * seed)


def _defaults(*_: Any) -> None:
    Config.__init__.__kwdefaults__["scale"] = 9.0


@case(one, change=_defaults)
def fields_by_keyword(x: Tensor) -> Any:
    config = Config(size=3)
    config.tags += ["b"]
    other = dataclasses.replace(config, scale=config.scale + 1)
    try:
        Config(3)
    except TypeError as error:
        return (
            x * config.scale + other.scale,
            other == config,
            other.tags is config.tags,
            str(error),
        )
    return None


@case(one)
def fields_that_are_frozen(x: Tensor) -> Any:
    p = Point(2.0, y=x.dim())
    try:
        p.x = 3.0
    except dataclasses.FrozenInstanceError as error:
        said = str(error)
    try:
        p.other = 3.0
    except (AttributeError, TypeError) as error:
        kind = type(error).__name__
    q = dataclasses.replace(p, x=5.0, seed=2)
    return x * p.total, q.total, p < q, hash(p) == hash(Point(2.0, y=2)), said, kind, repr(q)


def _total(x: Tensor, p: Point) -> None:
    object.__setattr__(p, "total", 100.0)


@case(lambda: (t(3), Point(1.0)), keep=True, change=_total)
def fields_frozen_and_changed(x: Tensor, p: Point) -> Any:
    return x * p.total + p.y


# Attributes beside their dictionary.


class Loose:
    z = "of the class"

    def __init__(self) -> None:
        self.a = 1
        self.b = 2.0


def _through_dict(x: Tensor, o: Any) -> None:
    o.__dict__["a"] = 4


def _other_dict(x: Tensor, o: Any) -> None:
    o.__dict__ = {"a": 8, "b": 1.0, "z": "own"}


def _deleted(x: Tensor, o: Any) -> None:
    del o.b
    o.b = 6.0
    object.__setattr__(o, "z", "set")


def attributes(x: Tensor, o: Any) -> Any:
    return x * o.a + o.b, o.z, list(vars(o))


case(lambda: (t(3), Loose()), keep=True, change=_through_dict)(attributes)


@case(lambda: (t(3), Loose()), keep=True, change=_other_dict)
def attributes_in_another_dictionary(x: Tensor, o: Any) -> Any:
    return attributes(x, o)


@case(lambda: (t(3), Loose()), keep=True, change=_deleted)
def attributes_in_another_order(x: Tensor, o: Any) -> Any:
    return attributes(x, o)


def _cleared(x: Tensor, o: Any) -> None:
    vars(o).clear()
    Loose.a, Loose.b = 11, 12.0


@case(lambda: (t(3), Loose()), keep=True, change=_cleared)
def attributes_cleared(x: Tensor, o: Any) -> Any:
    return attributes(x, o)


@case(lambda: (t(3), Loose()), keep=True, change=_through_dict)
def attributes_written_by_the_function(x: Tensor, o: Any) -> Any:
    held = vars(o)
    o.a += 1
    held["new"] = x
    o.new = o.new * held["a"]
    del held["new"]
    o.__dict__ = {**held, "count": held.get("count", 0) + 1}
    return o.a, held is vars(o), o.count, hasattr(o, "new")


@case(lambda: (t(3), Loose()), keep=True)
def attributes_more_than_fit(x: Tensor, o: Any) -> Any:
    fresh = Loose()
    for i in range(40):
        setattr(fresh, f"n{i}", x * i)
    held = fresh.__dict__
    del fresh.n3
    fresh.n3 = "last"
    return held, list(held)[-1], fresh.n39


@case(one)
def attributes_outlive_their_object(x: Tensor) -> Any:
    o = Loose()
    o.x = x
    held = o.__dict__
    del o
    held["y"] = held["x"] * 2
    return held


# Truth asked between.


class Answer:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __bool__(self) -> bool:
        LOG.append(self.value)
        return self.value > LIMIT


class Compared:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: Any) -> Any:
        return Answer(self.value + other)

    def __eq__(self, other: object) -> Any:
        return Answer(other)

    def __contains__(self, item: Any) -> Any:
        return Answer(item)


@case(one, change=_limit)
def truth_of_comparisons(x: Tensor) -> Any:
    c = Compared(2)
    out = [1 if c < 1 else 2, not c < 3, 1 if c == 4 and c < 0 else 0, 4 in c, 2 not in c]
    while c < 2:
        c.value -= 1
    kept = c < 5 or c == 9
    return x * sum(out), out, kept.value, list(LOG)


class Sized:
    def __init__(self, items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)


def _grow(x: Tensor, s: Sized) -> None:
    s.items.append(1)


@case(lambda: (t(3), Sized([])), keep=True, change=_grow)
def truth_of_sizes(x: Tensor, s: Sized) -> Any:
    return (x if s else -x), not s, [1 for _ in range(2) if s], (s and "yes") == "yes"


# The library's.


class Held:
    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)

    def __buffer__(self, flags: int) -> memoryview:
        LOG.append("buffer")
        return memoryview(self.data)

    def __release_buffer__(self, view: memoryview) -> None:
        LOG.append("release")


@case(
    lambda: (torch.ones(4), Held(b"\x01\x02\x03\x04")),
    keep=True,
    change=lambda x, h: h.data.__setitem__(0, 9),
)
def buffers_in_python(x: Tensor, h: Held) -> Any:
    with memoryview(h) as view:
        total = sum(view)
    return x * total, bytes(h), list(LOG)


@case(one)
def slices_are_hashed(x: Tensor) -> Any:
    held = {slice(0, 2): x[0:2], slice(None): x}
    return held[slice(0, 2, None)], slice(None) in held, len({slice(1), slice(0, 1), slice(1)})


@case(lambda: ([t(2) for _ in range(5)],), change=_limit)
def batches(xs: list[Tensor]) -> Any:
    return [sum(b) for b in itertools.batched(xs, LIMIT)], list(itertools.batched("abcd", 3))


@case(lambda: (t(3), [0.1, 0.2, 0.3]), again=lambda: (t(3), [1e16, 1.0, -1e16]))
def sums_that_compensate(x: Tensor, numbers: list[float]) -> Any:
    return x * sum(numbers), sum(numbers), sum([x, *numbers])


class Overriding(Middle):
    @typing.override
    def forward(self, x: Tensor, *, by: float = 1.0) -> Tensor:
        return x * by


@case(two)
def marks_of_typing(x: Tensor, y: Tensor) -> Any:
    def call_it[**P, R](fn: typing.Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return fn(*args, **kwargs)

    o = Overriding()
    return call_it(o.forward, x, by=y), o.forward.__override__


# What tells others of events.


def scaled[T: Tensor](x: T, times: int = 2) -> T:
    return x * times * FACTOR


def area(shape: Any, x: Tensor) -> Any:
    match shape:
        case [int(n), *_]:
            return x * n
    return x


@case(one)
def a_tool_of_its_own(x: Tensor) -> Any:
    told: list[Any] = []
    tool = sys.monitoring
    tool.use_tool_id(4, "mine")
    try:
        tool.register_callback(4, tool.events.PY_START, lambda code, at: told.append(code.co_name))
        tool.register_callback(4, tool.events.LINE, lambda code, line: told.append(code.co_name))
        tool.set_local_events(4, area.__code__, tool.events.PY_START)
        tool.set_local_events(4, scaled.__code__, tool.events.LINE | tool.events.PY_START)
        y = scaled(x), area([1, x], x)
    finally:
        tool.set_local_events(4, area.__code__, 0)
        tool.set_local_events(4, scaled.__code__, 0)
        tool.free_tool_id(4)
    return y, scaled(x), told


TOLD: list[Any] = []


def _alone() -> Any:
    """Arguments, with nobody listening: the other side's tool is still there."""
    if sys.monitoring.get_tool(3):
        sys.monitoring.set_events(3, 0)
        sys.monitoring.free_tool_id(3)
    return one()


def _listen(*_: Any) -> None:
    tool = sys.monitoring
    tool.use_tool_id(3, "theirs")
    tool.register_callback(3, tool.events.PY_START, lambda code, at: TOLD.append(code.co_name))
    tool.set_local_events(3, scaled.__code__, tool.events.PY_START)


@case(_alone, change=_listen, again=one)
def a_tool_that_comes_later(x: Tensor) -> Any:
    return scaled(x) + 1, list(TOLD)


def _listen_to_all(*_: Any) -> None:
    tool = sys.monitoring
    tool.use_tool_id(3, "theirs")

    def told(code: Any, *_: Any) -> None:
        if code.co_filename == __file__:
            TOLD.append(code.co_name)

    tool.register_callback(3, tool.events.PY_START, told)
    tool.register_callback(3, tool.events.LINE, told)
    tool.set_events(3, tool.events.PY_START | tool.events.LINE)


@case(_alone, change=_listen_to_all, again=one)
def a_tool_that_hears_all(x: Tensor) -> Any:
    y = [scaled(x) for _ in range(2)]
    return y, list(TOLD)


@case(lambda: call(t(3), n=1), again=lambda: call(t(3), n=2))
def a_trace_function_of_its_own(x: Tensor, *, n: int) -> Any:
    told: list[Any] = []

    def hear(frame: Any, event: str, arg: Any) -> Any:
        told.append((frame.f_code.co_name, event))
        return hear

    before = sys.gettrace()
    sys.settrace(hear)
    try:
        y = [scaled(x) + i for i in range(n)]
    finally:
        sys.settrace(before)
    return y, told
