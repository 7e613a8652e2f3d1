"""`inspect.signature`, of which the recorder reads what it is made of, once for each function of a trace."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from ..probe import Steps, flip, right_after, two_worlds

X = torch.ones(2, 3)


class Layer:
    """Several of a class: from the second on, the signature is known."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def run(self, x: Tensor, shift: float = 2.0, *rest: int, scale: float = 3.0) -> Tensor:
        return x * self.factor

    @classmethod
    def make(cls, factor: float) -> Layer:
        return cls(factor)


def describe(method: Callable[..., Any]) -> float:
    """A number that depends on all of a signature."""
    found = inspect.signature(method)
    total = float(len(found.parameters))
    for index, (name, parameter) in enumerate(found.parameters.items()):
        total += len(name) * (index + 1)
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            total += 10
        if parameter.default is not inspect.Parameter.empty:
            total += parameter.default
        if parameter.annotation is not inspect.Parameter.empty:
            total += len(str(parameter.annotation))
    return total


def layers() -> list[Layer]:
    return [Layer(2.0), Layer(3.0), Layer(5.0)]


def run(items: list[Layer], x: Tensor) -> Tensor:
    for layer in items:
        x = x + describe(layer.run)
    return x


def other(self: Layer, x: Tensor) -> Tensor:
    return x


CHANGES: dict[str, tuple[Callable[[Any], object], Callable[[Any], object]]] = {
    "defaults": (
        lambda f: setattr(f, "__defaults__", (9.0,)),
        lambda f: setattr(f, "__defaults__", (2.0,)),
    ),
    "kwdefaults": (
        lambda f: setattr(f, "__kwdefaults__", {"scale": 9.0}),
        lambda f: setattr(f, "__kwdefaults__", {"scale": 3.0}),
    ),
    "annotations": (
        lambda f: f.__annotations__.update(shift="something longer"),
        lambda f: f.__annotations__.update(shift="float"),
    ),
    "wrapped": (lambda f: setattr(f, "__wrapped__", other), lambda f: delattr(f, "__wrapped__")),
    "signature": (
        lambda f: setattr(f, "__signature__", inspect.signature(other)),
        lambda f: delattr(f, "__signature__"),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed(name: str) -> None:
    @right_after
    def test_function() -> Steps:
        items = layers()
        there, back = CHANGES[name]
        yield (lambda x: run(items, x)), (X,)
        there(Layer.run)
        yield None
        back(Layer.run)
        yield None

    test_function()


# What 3.13's `inspect.unwrap` is handed stays alive in its frame, and is another function at each call: behind the
# break that `id` of a partial is, such a frame isn't known again.
@(flip if sys.version_info < (3, 13) else right_after)
def test_method_replaced_on_one() -> Steps:
    items = layers()
    yield (lambda x: run(items, x)), (X,)
    items[2].run = functools.partial(other, items[2])  # type: ignore[method-assign]
    yield None
    del items[2].run
    yield None


@right_after
def test_code_replaced() -> Steps:
    items = layers()
    code = Layer.run.__code__
    yield (lambda x: run(items, x)), (X,)
    Layer.run.__code__ = other.__code__
    yield None
    Layer.run.__code__ = code
    yield None


@right_after
def test_function_replaced() -> Steps:
    items = layers()
    own = inspect._signature_from_callable  # type: ignore[attr-defined]
    yield (lambda x: run(items, x)), (X,)
    inspect._signature_from_callable = (  # type: ignore[attr-defined]
        lambda obj, **options: own(other) if obj.__self__ is items[1] else own(obj, **options)
    )
    yield None
    inspect._signature_from_callable = own  # type: ignore[attr-defined]
    yield None


def swapped(obj: Any, *rest: Any, **options: Any) -> Any:
    return OWN["unwrap"](other if obj is Layer.run else obj, *rest, **options)


def unannotated(obj: Any, **options: Any) -> dict[str, Any]:
    return {}


def unbound(sig: inspect.Signature) -> inspect.Signature:
    return sig


def single(cls: Any, function: Any, *rest: Any, **options: Any) -> Any:
    return OWN["_signature_from_function"](cls, other, *rest, **options)


REPLACED: dict[str, Any] = {
    "unwrap": swapped,
    "get_annotations": unannotated,
    "_signature_bound_method": unbound,
    "_signature_from_function": single,
}
OWN = {name: getattr(inspect, name) for name in REPLACED}


@pytest.mark.parametrize("name", REPLACED)
def test_part_replaced(name: str) -> None:
    @right_after
    def test_function() -> Steps:
        items = layers()
        yield (lambda x: run(items, x)), (X,)
        setattr(inspect, name, REPLACED[name])
        yield None
        setattr(inspect, name, OWN[name])
        yield None

    test_function()


def empty_signature(
    obj: Any, *, follow_wrapped: Any, globals: Any, locals: Any, eval_str: Any
) -> Any:
    return Signature([])  # type: ignore[name-defined]  # noqa: F821 (a name of `inspect`)


def empty_from_callable(
    cls: Any, obj: Any, *, follow_wrapped: Any, globals: Any, locals: Any, eval_str: Any
) -> Any:
    return cls([])


CODES: dict[str, tuple[Any, Any]] = {
    "signature": (inspect.signature, empty_signature),
    "from_callable": (inspect.Signature.from_callable.__func__, empty_from_callable),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("name", CODES)
def test_code_of_a_part_replaced(name: str) -> None:
    @right_after
    def test_function() -> Steps:
        items = layers()
        part, instead = CODES[name]
        own = part.__code__
        yield (lambda x: run(items, x)), (X,)
        part.__code__ = instead.__code__
        yield None
        part.__code__ = own
        yield None

    test_function()


@right_after
def test_constructor_replaced() -> Steps:
    items = layers()
    own = inspect.Parameter.__init__

    def init(self: Any, name: str, kind: Any, **options: Any) -> None:
        own(self, f"{name}_", kind, **options)

    yield (lambda x: run(items, x)), (X,)
    inspect.Parameter.__init__ = init  # type: ignore[method-assign]
    yield None
    inspect.Parameter.__init__ = own  # type: ignore[method-assign]
    yield None


@right_after
def test_defaults_of_any_kind() -> Steps:
    options, table = [1.0, 2.0], {"a": torch.ones(3)}

    def plain(x: Tensor, options: Any = options, *, table: Any = table, of: Any = Layer) -> Tensor:
        return x

    def fn(x: Tensor) -> Any:
        found = inspect.signature(plain).parameters
        again = inspect.signature(plain).parameters
        x = x * found["options"].default[1] + again["table"].default["a"]
        return x, found["of"].default(2.0).factor, found["options"].default is options

    yield fn, (X,)
    options[1] = 7.0
    yield None
    table["a"] = torch.zeros(3)
    yield None
    plain.__kwdefaults__["of"] = lambda factor: Layer(factor * 2)  # type: ignore[index]
    yield None


@two_worlds
def test_written_by_the_call() -> Steps:
    items = layers()

    def fn(x: Tensor) -> Tensor:
        x = x + describe(items[0].run)
        Layer.run.__defaults__ = (9.0,)
        x = x + describe(items[1].run)
        Layer.run.__defaults__ = (2.0,)
        return x + describe(items[2].run)

    yield fn, (X,)


@two_worlds
def test_marked_by_the_call() -> Steps:
    items = layers()

    def fn(x: Tensor) -> Tensor:
        x = x + describe(items[0].run)
        function: Any = Layer.run
        function.__signature__ = inspect.signature(other)
        x = x + describe(items[1].run)
        del function.__signature__
        return x + describe(items[2].run)

    yield fn, (X,)


@right_after
def test_kinds_of_callables() -> Steps:
    items = layers()

    def plain(x: Tensor, n: int = 4) -> Tensor:
        return x * n

    def fn(x: Tensor) -> Tensor:
        for layer in items:
            for callable_ in (layer.run, layer.make, Layer.run, plain, lambda a, b=1: a):
                x = x + describe(callable_)
        return x

    yield fn, (X,)
    plain.__defaults__ = (7,)
    yield None


@right_after
def test_kept_and_returned() -> Steps:
    items = layers()

    def fn(x: Tensor) -> Any:
        found = [inspect.signature(layer.run) for layer in items]
        same = [a is b for a in found for b in found]
        bound = found[2].bind(x, 5.0)
        return x + len(bound.arguments), same, str(found[1]), [found[1] == found[2]]

    yield fn, (X,)


@right_after
def test_broken_between() -> Steps:
    items = layers()

    def fn(x: Tensor) -> Tensor:
        x = x + describe(items[0].run)
        stator.graph_break()
        x = x + describe(items[1].run)
        return x + describe(items[2].run)

    yield fn, (X,)
    Layer.run.__defaults__ = (4.0,)
    yield None
    Layer.run.__defaults__ = (2.0,)
    yield None


@right_after
def test_asked_in_vain() -> Steps:
    class Odd:
        def __init__(self, text: str | None) -> None:
            self.__text_signature__ = text

        def __call__(self, x: Tensor) -> Tensor:
            return x

    items: list[Any] = [Odd(None), 3, len]

    def fn(x: Tensor) -> Tensor:
        for item in items * 2:
            try:
                x = x + len(inspect.signature(item).parameters)
            except (TypeError, ValueError):
                x = x * 2
        return x

    yield fn, (X,)
