"""Numbers that were read from tensors, where C code only moves them or puts what holds them in order.

A generator is unpacked, dictionaries are merged, what iterators give is sorted by a key; and a key computes losses, which
may raise for what is in a tensor.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stator

STATE: Any = SimpleNamespace(best=0.0, extra={"lr": 0.1}, lengths=[3, 1, 2], count=3)
Program = Callable[[Tensor], Any]


def unpacked(x: Tensor) -> Any:
    low, high = (it.item() for it in (x.min(), x.max()))
    first, *rest = (x[i].sum().item() * 2 for i in range(len(x)))
    return (x - low) / (high - low + 1), first, rest, low < high


def unpacked_draws(x: Tensor) -> Any:
    top, left = (torch.randint(0, n, ()).item() for n in x.shape)
    return x[top:, left:].sum()


def merged(x: Tensor) -> Any:
    losses = {"mean": x.mean().item(), "sum": x.sum().item()}
    told = losses | {"mean": round(losses["mean"], 3), "rows": len(x)}
    told |= {"max": x.max().item()}
    return told, losses | STATE.extra, {**told} | {}


def merged_behind(x: Tensor) -> Any:
    told = {"loss": x.pow(2).mean().item()}
    if told["loss"] > STATE.best:
        STATE.best = told["loss"]
    return told | {"best": STATE.best}


def by_number(pair: tuple[int, float]) -> float:
    return -pair[1]


class Ranked:
    factor = 2.0

    def of(self, value: float) -> float:
        return value * self.factor


def sorted_iterators(x: Tensor) -> Any:
    means = x.mean(1).tolist()
    worst = sorted(enumerate(means), key=by_number)[:2]
    pairs = sorted(zip(means, range(len(means)), strict=True), key=operator.itemgetter(0))
    last = sorted((value for value in means), key=lambda it: -it, reverse=True)
    return worst, pairs, last, sorted(reversed(means), key=Ranked().of)


def sorted_by_others(x: Tensor) -> Any:
    means = x.mean(1).tolist()
    places = sorted(range(len(means)), key=means.__getitem__)
    named = dict(zip("abcdef", means, strict=False))
    return x[places], sorted(named, key=named.get), sorted(means, key=partial(max, 0.0))


def sorted_from_outside(x: Tensor) -> Any:
    order = sorted(range(len(STATE.lengths)), key=STATE.lengths.__getitem__)
    return x * len(order), order, sorted(enumerate(STATE.lengths), key=operator.itemgetter(1))


def best_of_losses(x: Tensor) -> Any:
    targets = torch.arange(len(x)) % STATE.count
    best = min((0.5, 1.0, 2.0), key=lambda scale: F.cross_entropy(x * scale, targets).item())
    worst = max((0.5, 2.0), key=lambda scale: F.nll_loss(x.log_softmax(1) * scale, targets))
    return best, worst, (x * best).sum()


class Meter:
    """A mean that is added to."""

    def __init__(self) -> None:
        self.total, self.count, self.log = 0.0, 0, [0.0]

    def __iadd__(self, more: Any) -> Any:
        if len(more) != 2:
            return NotImplemented
        value, count = more
        self.total += value * count
        self.count += count
        return self

    def __lshift__(self, values: list[float]) -> Any:
        self.log.extend(values)
        return self

    def __mod__(self, pair: tuple[float, ...]) -> float:
        return self.total / max(1, self.count) + pair[0]

    def __mul__(self, values: Any) -> Any:
        return NotImplemented

    def __index__(self) -> int:
        return 2


def added_to_an_object(x: Tensor) -> Any:
    meter = Meter()
    meter += x.sum().item(), len(x)
    meter += [x.mean().item(), 2]
    meter << [x.max().item()] << [x.min().item(), 1.0]
    return meter.total / meter.count, meter.log, meter % (x.mean().item(),)


def refused_by_an_object(x: Tensor) -> Any:
    meter, found = Meter(), []
    meter += (x.sum().item(), 1)
    try:
        meter += [x.sum().item()]
    except TypeError as error:
        found.append(str(error))
    found.append(meter * [x.mean().item()])  # type: ignore[arg-type]
    try:
        return meter & [x.sum().item()], found  # type: ignore[operator]
    except TypeError as error:
        return str(error), found, meter.total


PROGRAMS = [
    unpacked,
    unpacked_draws,
    merged,
    merged_behind,
    sorted_iterators,
    sorted_by_others,
    sorted_from_outside,
    best_of_losses,
    added_to_an_object,
]


def too_many(x: Tensor) -> Any:
    try:
        low, high = (it.sum().item() for it in x)
    except ValueError as error:
        return str(error)
    return low, high


def too_few(x: Tensor) -> Any:
    closed = []

    def parts() -> Any:
        try:
            for it in x:
                yield it.sum().item()
                if len(closed) > 4:
                    return
        finally:
            closed.append("closed")

    try:
        first, second = parts()
        return first, second
    except ValueError as error:
        return str(error), closed


def merged_subclasses(x: Tensor) -> Any:
    mean = x.mean().item()
    told = OrderedDict(mean=mean) | {"rows": len(x)}
    try:
        return told, {"mean": mean} | [("a", 1)]  # type: ignore[operator]
    except TypeError as error:
        return told, str(error)


def keys_that_raise(x: Tensor) -> Any:
    targets = torch.arange(len(x)) + STATE.count
    held = []
    try:
        held.append(x.sum().item())
        return min((1.0, 2.0), key=lambda scale: F.cross_entropy(x * scale, targets).item()), held
    except IndexError as error:
        return str(error), held


def out_of_order(x: Tensor) -> Any:
    means = [*x.mean(1).tolist(), STATE.best]
    return str(sorted(enumerate(means), key=by_number))


OTHERS = [too_many, too_few, merged_subclasses, keys_that_raise, out_of_order, refused_by_an_object]


def run(program: Program, step: Program) -> list[str]:
    torch.manual_seed(0)
    STATE.best, STATE.extra, STATE.lengths, STATE.count = 0.0, {"lr": 0.1}, [3, 1, 2], 3
    Ranked.factor, found = 2.0, []
    for call in range(12):
        if call == 5:
            STATE.extra["mean"], STATE.lengths, STATE.count = 4.0, [1, 5, 2, 0], 2
        if call == 7:
            Ranked.factor, STATE.best = -1.0, float("nan") if program is out_of_order else 0.0
        if call == 9:
            STATE.count = 0
        x = torch.randn(3, 4)
        try:
            found.append(repr(step(x)))
        except Exception as error:
            found.append(repr(error))
        found.append(repr((STATE.best, STATE.extra)))
    return found


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("program", [*PROGRAMS, *OTHERS], ids=lambda it: it.__name__)
def test_steps_are_plain_ones(program: Program, skip: bool) -> None:
    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=skip):
        assert run(program, compiled) == run(program, program)
    stats = stator.stats(compiled)
    if program in PROGRAMS and not skip:
        assert stats.breaks == 0, stats.reason
        assert stats.hits > 0
