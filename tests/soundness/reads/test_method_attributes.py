"""Attributes of a bound method are its function's, which may change."""

from __future__ import annotations

import functools
import types
from typing import Any

import pytest
import torch
from torch import Tensor

from ..probe import Steps, right_after

X = torch.ones(2)


class Layer:
    """Its methods are asked about."""

    def run(self, x: Tensor, factor: float = 2.0, *, shift: float = 1.0) -> Tensor:
        """Short."""
        return x

    def other(self, a: Any, b: Any, c: Any, d: Any) -> None:
        """Another one."""

    @classmethod
    def make(cls, factor: float) -> Layer:
        """Makes one."""
        return cls()


CHANGES: dict[str, tuple[Any, Any]] = {
    "__code__": (lambda code: code.co_argcount, Layer.other.__code__),
    "__defaults__": (len, (1.0, 2.0, 3.0)),
    "__kwdefaults__": (len, {"shift": 1.0, "other": 2.0}),
    "__annotations__": (len, {"x": Tensor}),
    "__name__": (len, "longer_than_before"),
    "__qualname__": (len, "Layer.longer_than_before"),
    "__module__": (len, "m"),
    "__doc__": (len, "Longer than before."),
    "mark": (int, 7),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("kind", ["method", "class_method"])
def test_an_attribute_changes(name: str, kind: str) -> None:
    @right_after
    def test_function() -> Steps:
        layer, (measure, changed) = Layer(), CHANGES[name]
        function: Any = Layer.run if kind == "method" else Layer.make.__func__
        if name in ("__defaults__", "__kwdefaults__"):
            function = Layer.run

        def fn(x: Tensor) -> Tensor:
            method: Any = layer.run if function is Layer.run else layer.make
            return x * measure(getattr(method, name)), method.__func__ is function

        if name == "mark":
            function.mark = 3
        own = getattr(function, name)
        yield fn, (X,)
        setattr(function, name, changed)
        yield None
        setattr(function, name, own)
        yield None

    test_function()


@right_after
def test_what_it_lacks() -> Steps:
    layer = Layer()

    def fn(x: Tensor) -> Any:
        try:
            return x * layer.run.scale  # type: ignore[attr-defined]
        except AttributeError as error:
            return x + len(str(error)), str(error), hasattr(layer.run, "scale")

    yield fn, (X,)
    Layer.run.scale = 3.0  # type: ignore[attr-defined]
    yield None
    del Layer.run.scale  # type: ignore[attr-defined]
    yield None


@pytest.mark.parametrize("name", CHANGES)
def test_an_attribute_of_a_method_from_outside(name: str) -> None:
    @right_after
    def test_function() -> Steps:
        measure, changed = CHANGES[name]
        held: Any = [Layer().run]
        if name == "mark":
            Layer.run.mark = 3  # type: ignore[attr-defined]
        own = getattr(Layer.run, name)

        def fn(x: Tensor) -> Any:
            method = held[0]
            return x * measure(getattr(method, name)), hasattr(method, "__wrapped__")

        yield fn, (X,)
        setattr(Layer.run, name, changed)
        yield None
        setattr(Layer.run, name, own)
        yield None

    test_function()


def test_methods_from_outside_are_replaced() -> None:
    def other(self: Any, x: Tensor) -> Tensor:
        return x

    other.mark = 9  # type: ignore[attr-defined]

    @right_after
    def test_function() -> Steps:
        Layer.run.mark = 3  # type: ignore[attr-defined]
        held: Any = [Layer().run]

        def fn(x: Tensor) -> Any:
            return x * held[0].mark, held[0].__name__

        yield fn, (X,)
        held[0] = types.MethodType(other, Layer())
        yield None
        del Layer.run.mark  # type: ignore[attr-defined]

    test_function()


class Cached:
    """A method that is an object of C code, with methods of its own."""

    factor = 2.0

    @functools.lru_cache(maxsize=4)
    def scale(self, key: int) -> float:
        return key * self.factor


def test_methods_of_a_methods_function() -> None:
    """`self.scale.cache_info()`: the function is `self` there, not the method."""

    @right_after
    def test_function() -> Steps:
        cached = Cached()

        def fn(x: Tensor) -> Any:
            return (
                x * cached.scale(3),
                cached.scale.cache_info().currsize,
                cached.scale.cache_parameters(),
            )

        yield fn, (X,)
        Cached.scale.cache_clear()
        Cached.factor = 5.0
        yield None
        cached.scale(8)
        yield None
        Cached.factor = 2.0
        Cached.scale.cache_clear()

    test_function()


class Callable_:
    """What a method is made of."""

    def __init__(self) -> None:
        self.factor = 2.0

    def __call__(self, owner: Any, x: Tensor) -> Tensor:
        return x * self.factor + owner

    def told(self) -> float:
        return self.factor


def test_methods_of_an_objects_method() -> None:
    @right_after
    def test_function() -> Steps:
        function = Callable_()

        def fn(x: Tensor) -> Any:
            method: Any = types.MethodType(function, 3.0)
            return method(x), method.told(), method.factor

        yield fn, (X,)
        function.factor = 7.0
        yield None

    test_function()
