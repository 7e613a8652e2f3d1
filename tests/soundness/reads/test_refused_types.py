"""Operands that an instruction doesn't take: whichever type was recorded, plain Python's exception names the one that is there."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

X = torch.ones(2)
VALUES: list[Any] = [(1, 2), 5, torch.ones(2), torch.tensor(3), None, "s", [3], {1: 2}, 2.5, object]


def raised(x: Tensor, v: Any) -> Any:
    raise v


def caught(x: Tensor, v: Any) -> Any:
    try:
        raise ValueError("mine")
    except v:
        return x


def entered(x: Tensor, v: Any) -> Any:
    with v:
        return x


def unpacked(x: Tensor, v: Any) -> Any:
    a, b, c = v
    return x, a, b, c


def derived(x: Tensor, v: Any) -> Any:
    class Derived(v):
        pass

    return x, Derived.__name__


PROGRAMS: list[Callable[[Tensor, Any], Any]] = [
    raised,
    caught,
    entered,
    unpacked,
    derived,
    lambda x, v: (x, len({**v, "y": ""})),
    lambda x, v: (x, {**v}),
    lambda x, v: dict(**v),
    lambda x, v: print(**v),
    lambda x, v: (x, [*v]),
    lambda x, v: (x, {1, *v}),
    lambda x, v: max(*v),
    lambda x, v: (x, v + 1),
    lambda x, v: (x, -v),
    lambda x, v: (x, v["a"]),
    lambda x, v: (x, v()),
    lambda x, v: (x, {1: 1}[v]),
    lambda x, v: (x, v < 3),
    lambda x, v: (x, v | {}),
    lambda x, v: (x, int(v)),
    lambda x, v: (x, f"{v:d}"),
    lambda x, v: (x, 1 in v),
    lambda x, v: (x, v.missing),
    lambda x, v: isinstance(x, v),
    lambda x, v: (x, list(zip(v, v, strict=True))),
    lambda x, v: x.reshape(v),
    lambda x, v: x[v],
]


def outcome(fn: Any, value: Any) -> str:
    try:
        return repr(fn(X, value))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
@pytest.mark.parametrize("fn", PROGRAMS, ids=range(len(PROGRAMS)))
def test_plain_pythons_exception(fn: Any) -> None:
    for first, second in itertools.permutations(VALUES, 2):
        api.reset()
        compiled = api.compile(fn)
        for value in (first, first, second, second, first):
            assert outcome(compiled, value) == outcome(fn, value)
