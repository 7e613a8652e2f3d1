"""Numbers that were read from tensors, in generators that C code takes whole, in deques, and in constants behind breaks.

What a function puts into something new is kept first, so questions within a generator leave the trace before the call. A
deque is looked into as lists are, wherever C code reads it.
"""

from __future__ import annotations

import os
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

Program = Callable[[Tensor], Any]
STATE: Any = SimpleNamespace(scores={"a": 0.0, "b": 0.5}, window=deque([0.0], maxlen=3))
LETTERS = "abcdefgh"


def dictionaries(x: Tensor) -> Any:
    named = OrderedDict((str(at), value.item()) for at, value in enumerate(x))
    return named, dict((name, value * 2) for name, value in named.items())


def sets(x: Tensor) -> Any:
    whole = x.clamp(0, 2)
    return sorted({int(it) for it in whole}), frozenset(int(it) for it in whole if it > 0.5)


def in_order(x: Tensor) -> Any:
    return sorted(it.item() for it in x), sorted((it.item() for it in x), reverse=True)


def counted(x: Tensor) -> Any:
    hits = sum(bool({int(it)} & {1, 2}) for it in x)
    return hits, sum(int(it) > 0 for it in x), min(int(it) for it in x)


def listed(x: Tensor) -> Any:
    return list(int(it) for it in x), tuple(round(float(it), 2) for it in x if it < 1)


def extended(x: Tensor) -> Any:
    kept, recent = [1.0], deque([0.5], maxlen=3)

    def numbers() -> Iterator[Any]:
        for it in x:
            yield it.item()
            yield len(kept)

    kept.extend(numbers())
    recent.extend(round(it.item(), 2) for it in x if it > 0)
    return kept, recent, sum(recent)


def joined(x: Tensor) -> Any:
    places = x.abs().clamp(0, 7).long()
    word = "".join(LETTERS[place] for place in places.tolist())
    return (
        word,
        "-".join(LETTERS[int(place)] for place in places),
        "".join("ny"[it > 0] for it in x.tolist()),
    )


def best_names(x: Tensor) -> Any:
    scores = {name: value.item() for name, value in zip("abc", x, strict=False)}
    STATE.scores["a"] = STATE.scores["a"] * 0.5 + x[0].item()
    return max(scores, key=scores.get), min(STATE.scores, key=STATE.scores.get)


def own_deques(x: Tensor) -> Any:
    recent: deque[float] = deque(maxlen=3)
    recent.extend(it.item() for it in x)
    recent.append(x.sum().item())
    both = sum(recent) / len(recent), max(recent), sorted(recent), min(recent, default=0.0)
    last = deque((it.item() for it in x), 2)
    sizes = deque([x.shape[0], x[0].item()])
    return recent, both, last, sum(deque(x.tolist(), maxlen=2)), sum(sizes), torch.tensor(sum(last))


def deques_of_rows(x: Tensor) -> Any:
    rows = deque((it.item(), at) for at, it in enumerate(x))
    return max(rows), sorted(rows), {"rows": rows}


WHOLE = [
    dictionaries,
    sets,
    in_order,
    counted,
    listed,
    extended,
    joined,
    best_names,
    own_deques,
    deques_of_rows,
]


def compared_deques(x: Tensor) -> Any:
    recent = deque(x.tolist(), maxlen=2)
    limit = deque([0.5])
    return (
        recent < limit,
        recent == deque([0.0]),
        recent[0] in recent,
        0.5 in recent,
        [recent] == [],
    )


def asked_deques(x: Tensor) -> Any:
    recent = deque(x.clamp(0, 1).tolist())
    found = any(recent), recent.count(0.0), str(recent), f"{recent}", set(recent), sum(recent, 1.0)
    return found, min(recent, key=abs), {key: at for at, key in enumerate(recent)}


def windows(x: Tensor) -> Any:
    STATE.window.append(x.sum().item())
    return sum(STATE.window), sorted(STATE.window), any(it > 3 for it in STATE.window)


class Loud:
    """A key whose code tells when it runs."""

    def __init__(self, told: list[Any], name: str) -> None:
        self.told, self.name = told, name

    def __hash__(self) -> int:
        self.told.append(f"hash {self.name}")
        return len(self.name)

    def __eq__(self, other: object) -> bool:
        self.told.append(f"{self.name} == ?")
        return self is other


def keys_with_code(x: Tensor) -> Any:
    told: list[Any] = []

    def keys() -> Iterator[Any]:
        for at, it in enumerate(x):
            told.append(it.item())
            yield Loud(told, LETTERS[at]) if at else at

    count = len(set(keys()))
    pairs = dict((key, 1) for key in keys())
    return count, len(pairs), told


def pairs_with_code(x: Tensor) -> Any:
    told: list[Any] = []

    def pair(number: float) -> Iterator[Any]:
        told.append("first")
        yield "k"
        told.append("second")
        yield number

    def pairs() -> Iterator[Any]:
        yield "a", x[0].item()
        for it in x:
            told.append(it.item())
            yield pair(it.item())

    return dict(pairs()), OrderedDict(pairs()), told


def refused_pairs(x: Tensor) -> Any:
    told: list[Any] = []

    def pairs(last: Any) -> Iterator[Any]:
        yield "a", x[0].item()
        told.append("on")
        yield last
        told.append("never")
        raise KeyError(x[1].item())

    for last in (("b",), ("b", 1, 2), 5, ([], 1), ("b", 2)):
        try:
            told.append(dict(pairs(last)))
        except Exception as error:
            told.append(repr(error))
    return told


def refused_elements(x: Tensor) -> Any:
    told: list[Any] = []

    def elements() -> Iterator[Any]:
        yield int(x[0].item() > 0)
        told.append("on")
        yield []
        told.append("never")

    for kind in (set, frozenset):
        try:
            told.append(kind(elements()))
        except TypeError as error:
            told.append(str(error))
    return told


def constants_behind_breaks(x: Tensor) -> Any:
    pairs = frozenset([("q", x[0].item())])
    os.getpid()
    more = pairs | {1}
    nested = {"a": frozenset([("q", int(x[0]))]), "b": frozenset([frozenset([str(x[1].item())])])}
    os.getpid()
    return pairs, sorted(map(str, more)), nested["a"], nested, len(pairs)


def extended_by_halves(x: Tensor) -> Any:
    kept: list[Any] = []
    try:
        kept.extend(it.item() / at for at, it in zip((2, 1, 0), x, strict=True))
    except ZeroDivisionError as error:
        kept.append(str(error))
    return kept


def refused_late(x: Tensor) -> Any:
    return frozenset([(it.item(), 1) for it in x]), {(it.item(), 1) for it in x}


OTHERS = [
    compared_deques,
    asked_deques,
    windows,
    keys_with_code,
    pairs_with_code,
    refused_pairs,
    refused_elements,
    constants_behind_breaks,
    extended_by_halves,
    refused_late,
]


def run(step: Program) -> list[str]:
    torch.manual_seed(0)
    STATE.scores, STATE.window = {"a": 0.0, "b": 0.5}, deque([0.0], maxlen=3)
    found = []
    for call in range(12):
        if call == 6:
            STATE.scores, STATE.window = {"a": 2.0, "b": -0.5}, deque([4.0], maxlen=2)
        x = torch.randn(3) * 2
        found.append(repr(step(x)))
        found.append(repr((STATE.scores, STATE.window)))
    return found


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("program", [*WHOLE, *OTHERS], ids=lambda it: it.__name__)
def test_steps_are_plain_ones(program: Program, skip: bool) -> None:
    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=skip):
        assert run(compiled) == run(program)
    stats = stator.stats(compiled)
    if program in WHOLE and not skip:
        assert (stats.breaks, stats.native) == (0, 0), stats.reason
        assert stats.hits > 0
