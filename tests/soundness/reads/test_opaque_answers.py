"""What C code asks objects whose state nothing guards (arrays, decimals, dates): their truth, index, hash and equality."""

from __future__ import annotations

import array
import bisect
import datetime
import decimal
import heapq
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from differential.support import api
from torch import Tensor

Asks = Callable[[Any], Any]
ASKS: dict[str, Asks] = {
    "bool": bool,
    "not": operator.not_,
    "truth": operator.truth,
    "while": lambda v: "yes" if v else "no",
    "any": lambda v: any([0, v]),
    "all": lambda v: all((1, v)),
    "in a tuple": lambda v: v in (1, 2),
    "in a list": lambda v: v in [1],
    "holds": lambda v: 1 in [v, 2],
    "nested": lambda v: (1, [v]) == (1, [1]),
    "values": lambda v: {"a": v} == {"a": 1},
    "count": lambda v: [v].count(1),
    "index": lambda v: [v, 1].index(1),
    "remove": lambda v: [v, 1].remove(1),
    "count in a tuple": lambda v: (v,).count(1),
    "as an index": lambda v: [10, 20, 30][v],
    "of a text": lambda v: "abc"[v],
    "as a key": lambda v: {1: "one", 0: "zero"}.get(v),
    "in a set": lambda v: v in {0, 1},
    "popped": lambda v: {1: "one", 0: "zero"}.pop(v, None),
    "set by default": lambda v: {1: "one"}.setdefault(v, "new"),
    "added": lambda v: len(added(v)),
    "element": lambda v: len({v, 1}),
    "of a set made of it": lambda v: len(set([v, 1])),
    "written": lambda v: len({1: 2} | {v: 1}),
    "greatest": lambda v: max([v, v]),
    "sorted": lambda v: sorted([v, v]),
    "sum": lambda v: sum([v, v]),
    "heap": lambda v: heapq.heappushpop([v], v),
    "bisect": lambda v: bisect.bisect([v], v),
    "counted": lambda v: operator.countOf([v], 1),
}


def added(value: Any) -> set[Any]:
    found = {1, 3}
    found.add(value)
    return found


KINDS: dict[str, list[Callable[[], Any]]] = {
    "arrays": [
        lambda: np.array(1),
        lambda: np.array([1]),
        lambda: np.array([1, 2]),
        lambda: np.array([0]),
        lambda: np.array(0),
        lambda: np.array([1.0, 2.0]),
    ],
    "decimals": [
        lambda: decimal.Decimal(1),
        lambda: decimal.Decimal(0),
        lambda: decimal.Decimal(2),
    ],
    "spans": [lambda: datetime.timedelta(1), lambda: datetime.timedelta(0)],
    "rows": [
        lambda: array.array("i", [1]),
        lambda: array.array("i"),
        lambda: array.array("i", [2]),
    ],
}


def ended(ask: Asks, value: Any) -> Any:
    try:
        return repr(ask(value))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_answers(ask: Asks, kind: str) -> None:
    """Another object answers otherwise: as an argument, and within a list."""

    def program(value: Any, x: Tensor) -> Any:
        return ended(ask, value), x + 1

    def within(values: list[Any], x: Tensor) -> Any:
        return ended(ask, values[0]), x + 1

    x = torch.ones(2)
    for function, wrap in ((program, lambda value: value), (within, lambda value: [value])):
        compiled = api.compile(function)
        for make in [kind for kind in KINDS[kind] for _ in range(2)] + KINDS[kind]:
            assert compiled(wrap(make()), x)[0] == function(wrap(make()), x)[0]


def test_written_in_place() -> None:
    """The object is the same, and answers otherwise."""

    def program(x: Tensor, values: list[Any]) -> Any:
        return bool(values[0]), 1 in values, x * 2

    compiled = api.compile(program)
    array_ = np.array([1])
    for value in (1, 1, 0, 0, 1, 2):
        array_[0] = value
        assert compiled(torch.ones(2), [array_])[:2] == program(torch.ones(2), [array_])[:2]
