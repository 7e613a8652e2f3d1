"""Breaks in `__new__`, in what follows it, and in metaclasses; what construction does without breaks."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .test_breaks import outcome, same
from .test_special_methods import X, check, show


class Made:
    """A break in `__new__`."""

    def __new__(cls, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        self.first = value + 1
        show("new")
        self.second = self.first * 2
        return self

    def __init__(self, value: Tensor, factor: int = 2, *, more: int = 1) -> None:
        self.value = value * factor + more


class Bare:
    """The same, without an `__init__`."""

    def __new__(cls, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        self.value = value + 1
        show("new")
        self.value = self.value * 2
        return self


class Both(Made):
    def __init__(self, value: Tensor, factor: int = 2, *, more: int = 1) -> None:
        super().__init__(value, factor, more=more)
        show("init")
        self.value = self.value + 5


class Pair(tuple):  # noqa: SLOT001
    def __new__(cls, left: Tensor, right: Tensor) -> Any:
        y = left + 1
        show("new")
        return super().__new__(cls, (y * 2, right))

    def __init__(self, left: Tensor, right: Tensor) -> None:
        self.total = self[0] + self[1]


class Table(dict):  # type: ignore[type-arg]
    """Initialised by C code."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        self.made = True
        return self


class NoisyTable(Table):
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        show("new")
        return super().__new__(cls)


class Problem(Exception):
    def __new__(cls, *args: Any) -> Any:
        self = super().__new__(cls, "other")
        show("new")
        self.seen = args
        return self


class Base:
    """Makes an instance of another class: that class's `__init__` is called, if it derives from this."""

    def __new__(cls, value: Tensor, kind: str) -> Any:
        y = value + 1
        if kind.startswith("loud"):
            show("new")
        made = object.__new__({"derived": Derived, "foreign": Foreign}.get(kind[-7:], cls))
        made.early = y * 2
        return made

    def __init__(self, value: Tensor, kind: str) -> None:
        self.value = value * 3


class Derived(Base):
    def __init__(self, value: Tensor, kind: str) -> None:
        self.value = value * 5


class Foreign:
    def __init__(self, value: Tensor, kind: str) -> None:
        self.value = value * 7


class WithoutInit:
    def __new__(cls, value: Tensor) -> Any:
        return object.__new__(WithInit)


class WithInit(WithoutInit):
    def __init__(self, value: Tensor) -> None:
        self.value = value * 5


class Registry(type):
    """A break in the metaclass's `__call__`, on both sides of the construction."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        show("meta")
        made = super().__call__(*args, **kwargs)
        made.value = made.value + 1
        return made


class Registered(metaclass=Registry):
    def __init__(self, value: Tensor) -> None:
        self.value = value * 2


class Late(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__call__(*args, **kwargs)
        made.value = made.value + 1
        show("meta")
        made.value = made.value * 2
        return made


class LateRegistered(metaclass=Late):
    def __init__(self, value: Tensor) -> None:
        self.value = value * 2


class NoisyRegistered(metaclass=Late):
    def __init__(self, value: Tensor) -> None:
        self.value = value * 2
        show("init")
        self.value = self.value + 3


class NewRegistered(metaclass=Late):
    def __new__(cls, value: Tensor) -> Any:
        self = super().__new__(cls)
        show("new")
        return self

    def __init__(self, value: Tensor) -> None:
        self.value = value * 2


def new(x: Tensor) -> Any:
    made = Made(x + 1)
    return made.first, made.second, made.value


def new_with_keywords(x: Tensor) -> Any:
    made = Made(x + 1, 3, more=4)
    return made.first, made.second, made.value


def new_unpacked(x: Tensor) -> Any:
    args, kwargs = (x + 1, 3), {"more": 4}
    made, other = Made(*args, **kwargs), x * 2
    return made.first, made.value, other


def new_alone(x: Tensor) -> Any:
    return Bare(x + 1, 2, some=3).value * 2


def new_of_tuple(x: Tensor) -> Any:
    pair = Pair(x + 1, x * 2)
    return pair, pair.total


def new_of_exception(x: Tensor) -> Any:
    y, problem = x + 1, Problem("a", 2)
    return y * 2, problem.args, problem.seen


def of_derived(x: Tensor) -> Any:
    made = Base(x + 1, "loud derived")
    return made.early, made.value, type(made).__name__


def of_foreign(x: Tensor) -> Any:
    made = Base(x + 1, "loud foreign")
    return made.early, hasattr(made, "value"), type(made).__name__


def of_own(x: Tensor) -> Any:
    made = Base(x + 1, "loud")
    return made.early, made.value


def meta(x: Tensor) -> Any:
    return Registered(x + 1).value * 2


def meta_behind(x: Tensor) -> Any:
    return LateRegistered(x + 1).value * 2


def table(x: Tensor) -> Any:
    y = x + 1
    made = NoisyTable({"a": y}, b=2)
    return made["a"] * 2, len(made), made.made


ONCE: list[Callable[[Tensor], Any]] = [
    new,
    new_with_keywords,
    new_unpacked,
    new_alone,
    new_of_tuple,
    of_derived,
    of_foreign,
    of_own,
    meta,
    meta_behind,
    table,
]


@pytest.mark.parametrize("function", ONCE, ids=lambda function: function.__name__)
def test_costs_as_much_as_at_top_level(function: Callable[..., Any]) -> None:
    stats = check(function, X, calls=4)
    assert (stats.breaks, stats.graphs, stats.native, stats.hits) == (1, 2, 0, 3), (
        stats.breaks,
        stats.graphs,
        stats.reason,
    )


def both(x: Tensor) -> Any:
    made = Both(x + 1, more=3)
    return made.first, made.second, made.value


def meta_and_init(x: Tensor) -> Any:
    return NoisyRegistered(x + 1).value * 2


def meta_and_new(x: Tensor) -> Any:
    return NewRegistered(x + 1).value * 2


@pytest.mark.parametrize(
    "function",
    [both, meta_and_init, meta_and_new, new_of_exception],
    ids=lambda function: function.__name__,
)
def test_goes_on_behind_more_breaks(function: Callable[..., Any]) -> None:
    stats = check(function, X, calls=5)
    assert stats.native == 0 and stats.hits >= 2, stats.reason


def quiet_table(x: Tensor) -> Any:
    made = Table({"a": x + 1}, b=2)
    return made["a"] * 2, len(made), made.made


def quiet_derived(x: Tensor) -> Any:
    made = Base(x + 1, "derived")
    return made.early, made.value, type(made).__name__


def quiet_foreign(x: Tensor) -> Any:
    made = Base(x + 1, "foreign")
    return made.early, hasattr(made, "value")


def later_init(x: Tensor) -> Any:
    return WithoutInit(x + 1).value * 2


@pytest.mark.parametrize(
    "function",
    [quiet_table, quiet_derived, quiet_foreign, later_init],
    ids=lambda function: function.__name__,
)
def test_initialises_as_the_objects_class_says(function: Callable[..., Any]) -> None:
    stats = check(function, X)
    assert (stats.breaks, stats.hits) == (0, 2), stats.reason


def test_failures_behind_new() -> None:
    class Wrong:
        def __new__(cls, *args: Any) -> Any:
            show("new")
            if args[0] == "raises":
                raise ValueError("new")
            return object.__new__(cls)

        def __init__(self, what: str, *args: Any) -> None:
            if what == "init":
                raise ValueError("init")
            if what == "returns":
                return 3  # type: ignore[return-value]

    def function(x: Tensor, what: str) -> Any:
        y = x + 1
        try:
            made = Wrong(what)
        except TypeError as error:
            return y * 2, str(error)
        return y * 3, type(made).__name__

    for what in ("raises", "init", "returns", "fine"):
        check(function, X, what, calls=5)


def test_init_of_class_changes() -> None:
    class Changing:
        def __new__(cls, value: Tensor) -> Any:
            show("new")
            return object.__new__(cls)

        def __init__(self, value: Tensor) -> None:
            self.value = value * 2

    def function(x: Tensor) -> Tensor:
        return (x + 1) * Changing(x).value

    def second(self: Changing, value: Tensor) -> None:
        self.value = value - 1

    compiled = stator.compile(function)
    for step in range(6):
        if step == 3:
            Changing.__init__ = second  # type: ignore[method-assign, assignment]
        expected, found = outcome(function, X), outcome(compiled, X)
        assert same(expected[0], found[0]) and expected[1] == found[1]
    assert stator.stats(compiled).hits == 4
    assert torch.equal(compiled(X), (X + 1) * (X - 1))


def test_a_function_without_builtins() -> None:
    """As the `__new__` of a named tuple is: nothing can be imported by its builtins."""

    def plain(x: Tensor, show: Callable[[str], None]) -> Tensor:
        y = x + 1
        show("bare")
        return y * 2

    bare = types.FunctionType(plain.__code__, {"__builtins__": {}}, "bare")

    def function(x: Tensor) -> Tensor:
        return bare(x + 1, show) + 1

    stats = check(function, X)
    assert (stats.breaks, stats.graphs, stats.native) == (1, 2, 0), stats.reason
