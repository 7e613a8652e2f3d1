"""Special methods that a class gets after recording: C code that reads, shows or compares its containers calls them then."""

from __future__ import annotations

import bisect
import collections
import math
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from ..objects import X
from ..probe import Probe, Steps, right_after


def _answer(name: str) -> Any:
    answers: dict[str, Any] = {
        "__len__": lambda own: 1,
        "__iter__": lambda own: iter([1]),
        "__getitem__": lambda own, key: 2 if key in (0, "a") else own.missing,
        "__str__": lambda own: "a text",
        "__format__": lambda own, spec: "a format",
        "__eq__": lambda own, other: False,
        "__hash__": lambda own: 5,
        "__torch_function__": classmethod(
            lambda cls, function, types, args=(), kwargs=None: "a call"
        ),
        "items": lambda own: [("a", 9)],
        "keys": lambda own: ["a"],
    }
    return answers[name]


LISTS = {
    "tensor": (lambda x, s: torch.tensor(s), ("__len__", "__iter__")),
    "as_tensor": (lambda x, s: torch.as_tensor(s), ("__len__", "__iter__")),
    "new_tensor": (lambda x, s: x.new_tensor(s), ("__len__", "__iter__")),
    "sizes": (lambda x, s: torch.zeros(s), ("__torch_function__",)),
    "repeat": (lambda x, s: x.view(-1).repeat(s), ("__torch_function__",)),
    "prod": (lambda x, s: math.prod(s), ("__iter__",)),
    "fsum": (lambda x, s: math.fsum(s), ("__iter__",)),
    "format": (lambda x, s: "{}".format(s), ("__str__", "__format__")),  # noqa: UP032
    "field": (lambda x, s: "{0[0]}".format(s), ("__getitem__",)),  # noqa: UP030
    "bytes": (lambda x, s: bytes(s), ("__iter__",)),
    "bisect": (lambda x, s: bisect.bisect(s, 1), ("__getitem__",)),
    "counter": (lambda x, s: dict(collections.Counter(s)), ("__iter__",)),
    "within": (lambda x, s: torch.tensor([s, s]), ("__len__", "__iter__")),
}
DICTS = {
    "percent": (lambda x, s: "%(a)s" % s, ("__getitem__",)),
    "format_map": (lambda x, s: "{a}".format_map(s), ("__getitem__",)),
    "field": (lambda x, s: "{0[a]}".format(s), ("__getitem__",)),  # noqa: UP030
    "join": (lambda x, s: ",".join(s), ("__iter__",)),
    "map": (lambda x, s: list(map(str, s)), ("__len__", "__iter__")),
    "enumerate": (lambda x, s: list(enumerate(s)), ("__len__", "__iter__")),
}
ORDERED = {
    "shown": (lambda x, s: str(s)[-20:], ("items",)),
    "merged": (lambda x, s: dict(s | {"c": 1}), ("keys",)),
}
TUPLES = {
    "key": (lambda x, s: {(1, 2): 3}.get(s), ("__eq__", "__hash__")),
    "sizes": (lambda x, s: torch.zeros(s), ("__torch_function__",)),
    "flip": (lambda x, s: torch.ones(2, 2, 2).flip(s), ("__torch_function__",)),
    "size": (lambda x, s: tuple(torch.Size(s)), ("__iter__",)),
}
GIVEN: list[tuple[type, Any, dict[str, Any]]] = [
    (list, [1, 2], LISTS),
    (dict, {"a": 1, "b": 2}, DICTS),
    (collections.OrderedDict, {"a": 1, "b": 2}, ORDERED),
    (tuple, (1, 2), TUPLES),
]
CASES = [
    pytest.param(base, value, fn, name, id=f"{base.__name__}-{which}-{name}")
    for base, value, table in GIVEN
    for which, (fn, names) in table.items()
    for name in names
]


@pytest.mark.parametrize(("base", "value", "fn", "name"), CASES)
def test_method_that_comes_later(base: type, value: Any, fn: Any, name: str) -> None:
    own: Any = type("Own", (base,), {})
    given = own(value)

    def read(x: Tensor) -> Any:
        return fn(x, given)

    probe = Probe(read)
    for _ in range(3):
        probe.right(X)
    setattr(own, name, _answer(name))
    for _ in range(3):
        probe.right(X)
    delattr(own, name)
    for _ in range(2):
        probe.right(X)


@right_after
def test_number_that_a_text_asks_for() -> Steps:
    class Plain:
        pass

    own = Plain()

    def shown(x: Tensor) -> Any:
        try:
            return "%d" % own  # type: ignore[str-format]
        except TypeError as error:
            return str(error)

    yield shown, (X,)
    Plain.__int__ = lambda self: 7  # type: ignore[attr-defined]
    yield None
    del Plain.__int__  # type: ignore[attr-defined]
    Plain.__index__ = lambda self: 1  # type: ignore[attr-defined]
    yield None


@right_after
def test_length_of_a_class_under_a_view() -> Steps:
    class Own(dict):  # type: ignore[type-arg]
        pass

    own = Own(a=1, b=2)
    yield (lambda x: (iter(own).__next__(), sum(map(len, own)))), (X,)
    Own.__len__ = lambda self: 0  # type: ignore[method-assign]
    yield None


@right_after
def test_set_whose_attributes_are_python() -> Steps:
    class Own(set):  # type: ignore[type-arg]
        def __getattribute__(self, name: str) -> Any:
            return set.__getattribute__(self, name)

    own = Own([1, 2])
    yield (lambda x: (own.copy(), own.issubset({1, 2}), own.isdisjoint({5}))), (X,)
    own.add(3)
    yield None


@right_after
def test_object_that_says_it_is_a_generator() -> Steps:
    """By its type it's none: nobody reads a generator's state there."""

    class Liar:
        answer = 0.25

        @property
        def __class__(self) -> Any:
            return random.Random

        def random(self) -> float:
            return self.answer

    own = Liar()
    yield (lambda x: (x * own.random(), isinstance(own, random.Random))), (X,)
    Liar.answer = 0.5
    yield None


@right_after
def test_ordered_dictionary_with_two_orders() -> Steps:
    own: collections.OrderedDict[str, int] = collections.OrderedDict(a=1)

    def last(x: Tensor) -> Any:
        return list(own.values())[-1:], list(own), len(own)

    yield last, (X,)
    own.clear()
    yield None
    dict.__setitem__(own, "a", 0)
    yield None
    own["z"] = 3
    yield None
    own.popitem(last=False)
    yield None
    own["a"] = 2
    yield None
    own.pop("a")
    yield None
