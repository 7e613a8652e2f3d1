"""What a class says of itself, and what was registered with it."""

from __future__ import annotations

import abc
import collections.abc
from typing import Any

import pytest
import torch
from differential.support import api

from ..probe import Steps, flip, observe, right_after

X = torch.ones(3)


class First:
    """First."""


class Second:
    """Second."""


def _class() -> type:
    class Sub(First):
        """Sub."""

    return Sub


@flip
def test_name() -> Steps:
    cls = _class()
    yield (lambda x: (x + 1, cls.__name__)), (X,)
    cls.__name__ = "Other"
    yield None
    cls.__name__ = "Sub"
    yield None


@flip
def test_name_of_an_instance() -> Steps:
    cls = _class()
    yield (lambda x, o: (x + 1, type(o).__name__, f"{o.__class__.__name__}")), (X, cls())
    cls.__name__ = "Other"
    yield None
    cls.__name__ = "Sub"
    yield None


@flip
def test_qualified_name() -> Steps:
    cls = _class()
    yield (lambda x: (x + 1, cls.__qualname__)), (X,)
    cls.__qualname__ = "Other.Sub"
    yield None
    cls.__qualname__ = "_class.<locals>.Sub"
    yield None


@flip
def test_module() -> Steps:
    cls = _class()
    before = cls.__module__
    yield (lambda x: (x + 1, cls.__module__)), (X,)
    cls.__module__ = "elsewhere"
    yield None
    cls.__module__ = before
    yield None


@flip
def test_doc() -> Steps:
    cls = _class()
    yield (lambda x: (x + 1, cls.__doc__)), (X,)
    cls.__doc__ = "Other."
    yield None
    cls.__doc__ = "Sub."
    yield None


@flip
def test_bases() -> Steps:
    cls = _class()
    yield (lambda x: (x + 1, [base.__name__ for base in cls.__bases__])), (X,)
    cls.__bases__ = (Second,)
    yield None
    cls.__bases__ = (First,)
    yield None


@flip
def test_base() -> Steps:
    cls = _class()
    yield (lambda x: x + 1 if cls.__base__ is First else x - 1), (X,)
    cls.__bases__ = (Second,)
    yield None
    cls.__bases__ = (First,)
    yield None


@flip
def test_resolution_order() -> Steps:
    cls = _class()
    yield (lambda x: x + 1 if Second in cls.__mro__ else x - len(cls.__mro__)), (X,)
    cls.__bases__ = (First, Second)
    yield None
    cls.__bases__ = (First,)
    yield None


@right_after
def test_dictionary_of_a_class() -> Steps:
    cls: Any = _class()
    cls.k = 1
    yield (lambda x: x * cls.__dict__["k"] * vars(cls)["k"]), (X,)
    cls.k = 2
    yield None


@right_after
def test_annotations_of_a_class() -> Steps:
    class Sub:
        k: int

    yield (lambda x: (x + 1, list(Sub.__annotations__))), (X,)
    Sub.__annotations__["n"] = float
    yield None


def _changed(fn: Any, *args: Any) -> Any:
    """A compiled function that was recorded and replayed, if it can be."""
    compiled = api.compile(fn)
    for _ in range(3):
        assert observe(compiled, args, {}) == observe(fn, args, {})
    return compiled


@pytest.mark.parametrize("ask", ["isinstance", "issubclass", "pattern", "nested"])
def test_registration(ask: str) -> None:
    """Registering a class with an abstract one changes the answer; a trace notices, and only then."""

    class Base(abc.ABC):
        pass

    class Deeper(Base):
        pass

    class Other:
        pass

    def fn(x: Any, o: Any) -> Any:
        if ask == "isinstance":
            return x if isinstance(o, (int, Base)) else -x
        if ask == "issubclass":
            return x if issubclass(type(o), Base) else -x
        if ask == "nested":
            return x if isinstance(o, (str, (int, Base))) else -x
        match o:
            case collections.abc.Sequence():
                return x
            case [*_]:
                return x * 2
        return -x

    compiled = _changed(fn, X, Other())
    traces = api.traces(compiled)
    if ask == "pattern":
        collections.abc.Sequence.register(Other)
    else:
        Deeper.register(Other)
    for _ in range(3):
        assert torch.equal(compiled(X, Other()), X)
    if not api.PLAIN and ask != "pattern":
        assert (api.traces(compiled), api.hits(compiled)) == (traces + 1, 4)


def test_many_registrations() -> None:
    """Traces that can't fit any more don't count against the recompile limit."""

    class Base(abc.ABC):
        pass

    compiled = _changed(lambda x, o: x if isinstance(o, Base) else -x, X, 3)
    for _ in range(20):
        Base.register(type("Other", (), {}))
        assert torch.equal(compiled(X, 3), -X)
        assert torch.equal(compiled(X, 3), -X)
    if not api.PLAIN:
        assert api.native(compiled) == 0


def test_exact_instances_ask_no_registry() -> None:
    class Base(abc.ABC):
        pass

    compiled = _changed(lambda x, o: x if isinstance(o, Base) else -x, X, Base())
    traces = api.traces(compiled)
    Base.register(type("Other", (), {}))
    assert torch.equal(compiled(X, Base()), X)
    assert api.traces(compiled) == traces
