"""Rule 2: constants compare by exact type and bits; a user's `__eq__` never runs in a guard."""

from __future__ import annotations

import enum
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ..probe import Probe, Steps, flip, same


class Color(enum.Enum):
    """Members to guard."""

    RED = 1
    BLUE = 2


class OwnInt(int):
    """An int subclass that prints differently."""

    def __str__(self) -> str:
        return "own"


class OwnStr(str):
    """A str subclass."""


def show(x: Tensor, value: Any) -> tuple[Tensor, Any, str]:
    """Reads the value, its type and (for floats) its sign."""
    sign = math.copysign(1.0, value) if isinstance(value, float) else 0.0
    return x * sign, value, type(value).__name__


PAIRS: list[tuple[str, Any, Any]] = [
    ("ints", 1, 2),
    ("negative ints", -1, -2),
    ("large ints", 2**70, 2**70 + 1),
    ("one and True", 1, True),
    ("zero and False", 0, False),
    ("one and 1.0", 1, 1.0),
    ("zeros of both signs", 0.0, -0.0),
    ("floats one bit apart", 0.1 + 0.2, 0.3),
    ("infinities", math.inf, -math.inf),
    ("NaN and a number", math.nan, 1.0),
    ("NaNs of both signs", math.nan, -math.nan),
    ("float and complex", 1.0, 1 + 0j),
    ("complex zeros", complex(0.0, 0.0), complex(0.0, -0.0)),
    ("strings", "Hello", "Hi"),
    ("string and bytes", "a", b"a"),
    ("bytes", b"a", b"b"),
    ("empty and None", "", None),
    ("None and False", None, False),
    ("int and subclass", 3, OwnInt(3)),
    ("str and subclass", "s", OwnStr("s")),
    ("tuples", (1, 2), (1, 3)),
    ("tuples of other types", (1, 2), (1, 2.0)),
    ("tuples with zeros", (0.0,), (-0.0,)),
    ("nested tuples", (1, (2, True)), (1, (2, 1))),
    ("list and tuple", [1], (1,)),
    ("frozen sets", frozenset({1}), frozenset({1, 2})),
    ("members", Color.RED, Color.BLUE),
    ("dtypes", torch.float32, torch.float64),
    ("devices", torch.device("cpu"), torch.device("meta")),
    ("layouts", torch.strided, torch.sparse_coo),
    ("sizes", torch.Size([1, 2]), torch.Size([1, 3])),
    ("size and tuple", torch.Size([1, 2]), (1, 2)),
    ("ranges", range(3), range(4)),
    ("slices", slice(1, 2), slice(1, 3)),
    ("ellipsis and None", ..., None),
    ("types", int, bool),
    ("functions", torch.sin, torch.cos),
    ("memory formats", torch.contiguous_format, torch.channels_last),
]


@pytest.mark.parametrize(("name", "first", "second"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_argument_of_another_value(name: str, first: Any, second: Any) -> None:
    probe = Probe(show)
    x = torch.ones(3)
    probe.right(x, first)
    probe.steady(x, first)
    probe.retraced(x, second)
    probe.steady(x, second)
    probe.steady(x, first)


@pytest.mark.parametrize(("name", "first", "second"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_attribute_of_another_value(name: str, first: Any, second: Any) -> None:
    class Holder:
        value = first

    holder = Holder()
    probe = Probe(lambda x: show(x, holder.value))
    x = torch.ones(3)
    probe.right(x)
    probe.steady(x)
    holder.value = second
    probe.retraced(x)
    del holder.value
    probe.steady(x)


@pytest.mark.parametrize(
    "make",
    [
        lambda: float("1.5"),
        lambda: int("1234567"),
        lambda: "-".join("abc"),
        lambda: (1, float("2.5")),
        lambda: bytes([1, 2, 3]),
        lambda: float("nan"),
        lambda: 10**30,
        lambda: torch.Size([2, 3]),
        lambda: torch.device("cpu"),
        lambda: slice(1, int("500")),
    ],
    ids=["float", "int", "str", "tuple", "bytes", "nan", "large int", "size", "device", "slice"],
)
def test_equal_value_in_a_new_object_holds(make: Any) -> None:
    # The value itself stays out of the result: whose object that is, isn't asked here.
    probe = Probe(lambda x, value: (x + len(repr(value)), type(value).__name__))
    x = torch.ones(3)
    probe.right(x, make())
    for _ in range(3):
        probe.steady(x, make())


def test_freed_float_whose_address_comes_back() -> None:
    """L1 compares leaves by pointer, so it has to own them."""

    class Holder:
        value = 0.0

    holder = Holder()
    probe = Probe(lambda x: x * holder.value)
    x = torch.ones(2)
    for k in range(4):
        holder.value = float(f"{k}.25")
        for _ in range(3):
            probe.right(x)


class Loud:
    """Its comparison must not be run by a guard."""

    calls = 0

    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        Loud.calls += 1
        return True

    def __hash__(self) -> int:
        Loud.calls += 1
        return 1


@flip
def test_objects_that_claim_to_be_equal() -> Steps:
    box = [Loud(1)]
    first = box[0]
    yield (lambda x: x * box[0].n), (torch.ones(3),)
    box[0] = Loud(2)
    yield None
    box[0] = first
    yield None


def test_guards_run_no_user_code() -> None:
    held = [Loud(1)]
    probe = Probe(lambda x: x * held[0].n)
    x = torch.ones(3)
    probe.right(x)
    before = Loud.calls
    for _ in range(5):
        probe.steady(x)
    assert Loud.calls == before


@same
def test_mutable_list_of_equal_content() -> Steps:
    items = [1, 2.5, "s"]
    yield (lambda x: x * items[0] + items[1]), (torch.ones(3),)
    items[:] = [1, float("2.5"), "s"]
    yield None
