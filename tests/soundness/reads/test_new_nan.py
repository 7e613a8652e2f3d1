"""A NaN is equal to nothing, so sets, `in` and `count` tell each one from the others: one that the program makes
is a new one at every call, and one that it reads is the one that stands there."""

from __future__ import annotations

import collections
import enum
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

from ..objects import X

NAN = float("nan")
PAIR = (1.0, NAN)


class Row(NamedTuple):
    value: float


class Missing(enum.Enum):
    NUMBER = NAN


class Holder:
    missing = NAN

    def __init__(self) -> None:
        self.value = NAN

    @property
    def read(self) -> float:
        return self.value

    def default(self, value: float = NAN) -> float:
        return value


HOLDER = Holder()
ROW = Row(NAN)


def _default(value: float = NAN, *, other: float = NAN) -> tuple[float, float]:
    return value, other


def _folded() -> float:
    return 1e999 - 1e999


READ: dict[str, Callable[[], Any]] = {
    "global": lambda: NAN,
    "element": lambda: PAIR[1],
    "tuple": lambda: PAIR,
    "class attribute": lambda: Holder.missing,
    "class attribute of an instance": lambda: HOLDER.missing,
    "attribute": lambda: HOLDER.value,
    "property": lambda: HOLDER.read,
    "default": lambda: _default()[0],
    "keyword default": lambda: _default()[1],
    "method's default": lambda: HOLDER.default(),
    "field": lambda: ROW.value,
    "member": lambda: Missing.NUMBER.value,
    "math": lambda: math.nan,
    "torch": lambda: torch.nan,
    "code": lambda: _folded(),
    "maximum": lambda: max(NAN, 1.0),
    "positive": lambda: float(NAN),
    "unpacked": lambda: [*PAIR][1],
    "found": lambda: dict.fromkeys(PAIR).popitem()[0],
    "default value": lambda: {}.get("missing", NAN),
    "attribute by name": lambda: getattr(HOLDER, "nothing", NAN),
}

MADE: dict[str, Callable[[], Any]] = {
    "float": lambda: float("nan"),
    "negative": lambda: -NAN,
    "difference": lambda: math.inf - math.inf,
    "product": lambda: NAN * 2.0,
    "function": lambda: math.fsum([NAN, 1.0]),
    "complex": lambda: complex(float("nan"), -0.0),
    "other complex": lambda: complex(-0.0, -NAN),
    "list": lambda: [float("nan")],
    "part of a tuple": lambda: divmod(NAN, 1.0),
    "tuple": lambda: (float("nan"), 2),
    "number of a tensor": lambda: torch.tensor(math.nan).item(),
}


def _flat(value: Any) -> list[Any]:
    return (
        [part for item in value for part in _flat(item)]
        if isinstance(value, (tuple, list))
        else [value]
    )


def _results(make: Callable[[], Any], wrap: Callable[[Any], Any], breaks: bool) -> list[list[Any]]:
    def fn(x: Tensor) -> tuple[Tensor, Any]:
        value = make()
        if breaks:
            stator.graph_break()
        return x + 1, value

    api.reset()
    compiled = wrap(fn)
    return [_flat(compiled(X)[1]) for _ in range(4)]


def _plain(fn: Any) -> Any:
    return fn


@pytest.mark.parametrize("breaks", [False, True], ids=["whole", "broken"])
@pytest.mark.parametrize("make", READ.values(), ids=READ)
def test_one_that_is_read_is_that_one(make: Callable[[], Any], breaks: bool) -> None:
    for wrap in (_plain, api.compile):
        first, *rest = _results(make, wrap, breaks)
        assert all(a is b for later in rest for a, b in zip(first, later, strict=True)), wrap


@pytest.mark.parametrize("breaks", [False, True], ids=["whole", "broken"])
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_one_that_is_made_is_new_at_every_call(make: Callable[[], Any], breaks: bool) -> None:
    for wrap in (_plain, api.compile):
        results = _results(make, wrap, breaks)
        for index, value in enumerate(results[0]):
            if value != value:
                assert len({id(result[index]) for result in results}) == len(results), wrap
        assert len({repr(result) for result in results}) == 1, wrap


def test_its_sign_and_its_payload_stay() -> None:
    def fn(x: Tensor) -> tuple[Tensor, complex]:
        return x + 1, complex(-0.0, -NAN) * 1

    api.reset()
    compiled = api.compile(fn)
    for _ in range(3):
        got, expected = compiled(X)[1], fn(X)[1]
        assert math.copysign(1.0, got.imag) == math.copysign(1.0, expected.imag)
        assert math.copysign(1.0, got.real) == math.copysign(1.0, expected.real)


WRITES: dict[str, Callable[[Any], Any]] = {
    "add": lambda kept: kept["set"].add(float("nan")),
    "update": lambda kept: kept["set"].update([float("nan"), 1.0]),
    "append": lambda kept: kept["list"].append(float("nan")),
    "item": lambda kept: kept["list"].__setitem__(0, float("nan")),
    "extend": lambda kept: kept["list"].extend((float("nan"), 2.0)),
    "deque": lambda kept: kept["deque"].append(float("nan")),
    "value": lambda kept: kept.__setitem__("value", float("nan")),
    "key": lambda kept: kept["table"].__setitem__(float("nan"), 1),
    "method": lambda kept: kept["table"].setdefault(float("nan"), []).append(1),
    "counted": lambda kept: kept["counter"].update([float("nan")]),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_one_that_is_kept_is_another_one(write: Callable[[Any], Any]) -> None:
    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        kept: dict[str, Any] = {
            "set": set(),
            "list": [0.0],
            "deque": collections.deque(),
            "table": {},
            "counter": collections.Counter(),
        }
        seen: list[Any] = []

        def fn(x: Tensor) -> Tensor:
            write(kept)
            return x + 1

        api.reset()
        compiled = wrap(fn)
        told = []
        for _ in range(4):
            compiled(X)
            seen += [kept["list"][-1], kept.get("value"), *kept["deque"]]
            told.append(
                (len(kept["set"]), len(kept["table"]), len(kept["counter"]), len(set(seen)))
            )
        return told

    assert run(_plain) == run(api.compile)
