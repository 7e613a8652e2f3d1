"""NumPy's numbers in containers that C code looks into: made by the call, or from outside, where they change."""

from __future__ import annotations

import itertools
import math
from collections import ChainMap, Counter, OrderedDict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from differential.support import api
from torch import Tensor

HELD = SimpleNamespace(best=np.float64(0), values=[], named={}, pair=(np.int64(1), 2), row=deque())
NAMES = {(float(at), 1): str(at) for at in range(12)}


def made(x: Tensor) -> Any:
    return np.array([x.sum().item(), 2.0, -1.0])


def percent(x: Tensor) -> Any:
    a = made(x)
    return "%d of %5d" % (a[0], a.sum()), "%5s" % (a[0],), "%(v)6.1f" % {"v": a[1]}, "%5s" % [a[0]]  # noqa: UP031


def percent_outside(x: Tensor) -> Any:
    return "%d|%5.2f" % (HELD.best, 1.5), "%9s" % HELD.values, "%(a)d" % HELD.named, x + 1  # noqa: UP031


def mapped(x: Tensor) -> Any:
    return list(map(float, [made(x)[0]])), x + 1


def mapped_outside(x: Tensor) -> Any:
    return list(map(float, HELD.values)), list(map(int, HELD.pair)), x + 1


def mapped_entries(x: Tensor) -> Any:
    return list(map(float, HELD.named.values())), list(map(float, HELD.row)), x + 1


def product(x: Tensor) -> Any:
    return math.prod([made(x)[0], 2]), math.prod(HELD.values), math.fsum(HELD.values)


def hashed(x: Tensor) -> Any:
    return hash((made(x)[0], 1)), hash((HELD.best, 1))


def looked_up(x: Tensor) -> Any:
    return NAMES.get((made(x)[0], 1)), NAMES.get((HELD.best, 1)), x + 1


def taken(x: Tensor) -> Any:
    return NAMES[(HELD.best, 1)], (HELD.best, 1) in NAMES, x + 1


def taken_by_made(x: Tensor) -> Any:
    return NAMES[(made(x)[0] % 12, 1)], x + 1


def put_in(x: Tensor) -> Any:
    found = dict(NAMES)
    found[(HELD.best, 1)] = "put"
    return list(found.values()), {(HELD.best, 1): 1, (2.0, 1): 2}[(2.0, 1)], x + 1


def counted(x: Tensor) -> Any:
    return sorted(Counter([made(x)[0], 4.0]).values()), x + 1


def members(x: Tensor) -> Any:
    return (HELD.best, 1) in {(0.0, 1), (3.0, 1)}, (HELD.best, 1) in [(0.0, 1), (3.0, 1)], x + 1


def compared(x: Tensor) -> Any:
    return (HELD.best, 1) < (3.0, 1), [HELD.best] == [2.0], (HELD.best,) != (made(x)[0],), x + 1


def ordered(x: Tensor) -> Any:
    return max(HELD.values), sorted(HELD.values), sum(HELD.values), min((HELD.best, 2.0)), x + 1


def asked(x: Tensor) -> Any:
    return any(HELD.values), all(HELD.values), list(filter(bool, HELD.values)), x + 1


def given_by_a_generator(x: Tensor) -> Any:
    a = made(x)
    looped = []
    for number in map(float, (v * 2 for v in HELD.values)):
        looped.append(number)
    return looped, list(map(float, (v for v in a))), tuple(map(round, (v for v in HELD.values)))


def given_to_iterators(x: Tensor) -> Any:
    a = made(x)
    added = list(itertools.accumulate(v for v in HELD.values))
    powers = list(itertools.starmap(pow, ((v, 2) for v in a)))
    first = list(itertools.takewhile(lambda v: v < 5, (v for v in HELD.values)))
    return added, powers, first, dict(enumerate(map(str, (v for v in a)))), next(map(int, iter(a)))


def taken_while_true(x: Tensor) -> Any:
    return list(itertools.takewhile(float, (v for v in HELD.values))), [
        *map(int, (v for v in made(x)))
    ]


class Rows(list[Any]):
    """A list of the program's own."""


class Pair(NamedTuple):
    """A tuple of the program's own."""

    first: Any
    second: Any


class Table(dict[str, Any]):
    """A dictionary that has what it lacks from elsewhere."""

    def __missing__(self, key: str) -> Any:
        return HELD.best


def of_own_classes(x: Tensor) -> Any:
    rows, pair = Rows(HELD.values), Pair(*HELD.values)
    texts = "%d of %d" % pair, "%(a)d" % OrderedDict(HELD.named)  # noqa: UP031
    return texts, list(map(float, rows)), list(map(int, pair)), x + 1


def of_own_classes_outside(x: Tensor) -> Any:
    texts = "%d of %d" % HELD.own_pair, "%(a)d" % HELD.own_table  # noqa: UP031
    return texts, list(map(float, HELD.own_rows)), list(map(int, HELD.own_pair)), x + 1


def given_by_a_mapping(x: Tensor) -> Any:
    missing = "%(any)d" % HELD.own_table, "%(any)s" % HELD.own_table  # noqa: UP031
    return missing, "%(a)d" % ChainMap(HELD.named), "%(n)d" % ChainMap({"n": x.sum().item()})  # noqa: UP031


def only_moved(x: Tensor) -> Any:
    found = [*HELD.values, made(x)[0]]
    found.append(HELD.best)
    named = dict(zip("ab", HELD.values, strict=True))
    named.update({"c": HELD.best})
    return found + [made(x)[1]], (HELD.best,) * 2, named, len(found), list(zip(found, [1, 2]))  # noqa: B905, RUF005


PROGRAMS: list[Callable[[Tensor], Any]] = [
    percent,
    percent_outside,
    mapped,
    mapped_outside,
    mapped_entries,
    product,
    hashed,
    looked_up,
    taken,
    taken_by_made,
    put_in,
    counted,
    members,
    compared,
    ordered,
    asked,
    given_by_a_generator,
    given_to_iterators,
    taken_while_true,
    of_own_classes,
    of_own_classes_outside,
    given_by_a_mapping,
    only_moved,
]


def play(program: Callable[[Tensor], Any]) -> list[str]:
    seen = []
    for call in range(8):
        at = call if call < 6 else 1
        HELD.best, HELD.pair = np.float64(at), (np.int64(at), 2)
        HELD.values, HELD.named = [np.float64(at), np.float64(2)], {"a": np.float64(at)}
        HELD.row = deque([np.float32(at)])
        HELD.own_rows, HELD.own_pair = Rows(HELD.values), Pair(*HELD.values)
        HELD.own_table = Table(HELD.named)
        try:
            result = program(torch.ones(2) * at)
        except Exception as error:
            result = (type(error).__name__, str(error))
        seen.append(repr(result))
    return seen


@pytest.mark.parametrize("dynamic", [None, False])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda it: it.__name__)
def test_results_are_plain_ones(program: Callable[[Tensor], Any], dynamic: bool | None) -> None:
    compiled = api.compile(program, backend="eager", dynamic=dynamic)
    for call, (left, right) in enumerate(zip(play(program), play(compiled), strict=True)):
        assert right == left, call
    if program is only_moved and not api.PLAIN:
        assert api.breaks(compiled) == 0, api.reason(compiled)
