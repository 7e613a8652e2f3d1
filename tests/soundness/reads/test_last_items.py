"""Lists and deques of tensors, tuples and objects that grow from call to call: what is found from the end is guarded alone."""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

from ..worlds import World, agree


class Seen(NamedTuple):
    loss: float
    size: int


@dataclass
class Row:
    loss: float
    x: Tensor


class Banks:
    """What programs keep of earlier calls."""

    def __init__(self) -> None:
        self.bank: list[Any] = [torch.zeros(3), torch.ones(3)]
        self.pairs: list[Any] = [(0.5, 1), (0.25, 2)]
        self.rows: list[Any] = [{"loss": 0.5}, {"loss": 0.25}]
        self.objects: list[Any] = [Row(0.5, torch.ones(3)), Row(0.25, torch.zeros(3))]
        self.names: list[Any] = ["first", "second"]
        self.recent: collections.deque[Any] = collections.deque([torch.ones(3)], maxlen=4)
        self.queue: collections.deque[Any] = collections.deque([torch.ones(3)])
        self.other: list[Any] = []
        self.calls = 0


def stacked(x: Tensor, b: Banks) -> Any:
    b.bank.append(x * 2)
    return torch.stack(b.bank[-3:]).sum(0)


def the_one_before(x: Tensor, b: Banks) -> Any:
    b.bank.append(x.detach())
    return x - b.bank[-2], b.bank[-1]


def window(x: Tensor, b: Banks) -> Any:
    b.bank.append(x + 1)
    if len(b.bank) > 4:
        b.bank.pop(0)
    return torch.stack(b.bank[-2:]).mean(), len(b.bank)


def taken_before(x: Tensor, b: Banks) -> Any:
    gone = b.bank.pop(0) if len(b.bank) > 1 else x
    b.bank.extend([x, x + 1])
    return gone + 1, b.bank[-3] if len(b.bank) > 2 else x


def taken_twice(x: Tensor, b: Banks) -> Any:
    b.bank.append(x)
    b.bank.append(x + 1)
    if len(b.bank) > 3:
        first = b.bank.pop(0)
        return first, b.bank.pop(0), b.bank[-2], b.bank[0]
    return None


def all_but_the_last(x: Tensor, b: Banks) -> Any:
    b.bank.append(x)
    b.bank.append(x * 3)
    return b.bank[-3:-1], b.bank[-4::2], b.bank[-1:]


def written_in_place(x: Tensor, b: Banks) -> Any:
    b.bank.append(x.clone())
    b.bank[-2].add_(1)
    x.mul_(2)
    return sum(b.bank[-2:])


def mean_of_pairs(x: Tensor, b: Banks) -> Any:
    b.pairs.append((x.sum().item(), x.shape[0]))
    few = b.pairs[-3:]
    return sum(loss for loss, _ in few) / len(few), few[0][1]


def pairs_put_in_order(x: Tensor, b: Banks) -> Any:
    b.pairs.append((x.sum().item(), 3))
    return min(b.pairs[-2:]), sorted(b.pairs[-2:])[0][0], b.pairs[-2] == (0.25, 2)


def last_pair_of_all(x: Tensor, b: Banks) -> Any:
    b.pairs.append((x.sum().item(), 3))
    last = b.pairs[-2]
    return last[0] * 2, [loss for loss, _ in b.pairs]


def named_tuples(x: Tensor, b: Banks) -> Any:
    b.pairs.append(Seen(x.sum().item(), 3))
    b.pairs.append(Seen(x.sum().item() + 1, len(b.pairs)))
    last, before = b.pairs[-1], b.pairs[-2]
    return last.loss - before.loss, last, b.pairs[-3]


def rows(x: Tensor, b: Banks) -> Any:
    b.rows.append({"loss": x.sum().item()})
    return min(row["loss"] for row in b.rows[-3:]), b.rows[-2]["loss"] * 2


def rows_written(x: Tensor, b: Banks) -> Any:
    b.rows.append({"loss": x.sum().item()})
    b.rows[-2]["seen"] = b.rows[-1]["loss"]
    return b.rows[-2]


def objects(x: Tensor, b: Banks) -> Any:
    b.objects.append(Row(x.sum().item(), x))
    return sum(row.loss for row in b.objects[-2:]), b.objects[-2].x + x


def names(x: Tensor, b: Banks) -> Any:
    b.names.append(f"call of {x.shape[0]}")
    return b.names[-1], b.names[-2]


def not_added_first(x: Tensor, b: Banks) -> Any:
    before = b.bank[-1] if len(b.bank) > 1 else x
    b.bank.append(x)
    return before + x


def recent(x: Tensor, b: Banks) -> Any:
    b.recent.append(x * 2)
    return b.recent[-1] + 1 if len(b.recent) < 2 else b.recent[-2] + 1


def queued(x: Tensor, b: Banks) -> Any:
    b.queue.append(x)
    gone = b.queue.popleft() if len(b.queue) > 2 else x
    return gone * 2, b.queue[-1]


def beside_another(x: Tensor, b: Banks) -> Any:
    b.bank.append(x)
    b.other.append(x + 1)
    return b.bank[-2] is b.bank[-1], b.bank[-2] + 1


def same_object(x: Tensor, b: Banks) -> Any:
    b.bank.append(x)
    b.bank.append(b.bank[-2])
    return b.bank[-1] is b.bank[-3], b.bank[-1] is b.bank[-2]


def deleted(x: Tensor, b: Banks) -> Any:
    b.bank.append(x + 1)
    b.pairs.append((x.sum().item(), 3))
    if len(b.bank) > 4:
        del b.bank[0]
        del b.pairs[0]
    return torch.stack(b.bank[-2:]).mean(), b.pairs[-2][0], len(b.bank)


def counted(x: Tensor, b: Banks) -> Any:
    b.calls += 1
    b.pairs.append((b.calls, x))
    return b.pairs[-2][0], b.pairs[-1][0]


FUNCTIONS = [
    stacked,
    the_one_before,
    window,
    taken_before,
    taken_twice,
    all_but_the_last,
    written_in_place,
    mean_of_pairs,
    pairs_put_in_order,
    last_pair_of_all,
    named_tuples,
    rows,
    rows_written,
    objects,
    names,
    not_added_first,
    recent,
    queued,
    beside_another,
    same_object,
    deleted,
    counted,
]
LISTS = ("bank", "pairs", "rows", "objects", "names", "recent", "queue")


def _held(world: World) -> list[Any]:
    return [vars(world.args[0])[name] for name in LISTS]


def _shorter(world: World) -> None:
    for held in _held(world):
        while len(held) > 1:
            held.pop()


def _two(world: World) -> None:
    for held in _held(world):
        while len(held) > 2:
            held.pop()


def _empty(world: World) -> None:
    for held in _held(world):
        held.clear()


def _longer(world: World) -> None:
    for held in _held(world):
        held.extend(list(held) * 20)


def _repeated(world: World) -> None:
    for held in _held(world):
        held.append(held[0])
        held[-2] = held[-1]


def _other_sizes(world: World) -> None:
    for held in (world.args[0].bank, world.args[0].recent, world.args[0].queue):
        held[-1] = torch.full((1,), 3.0)


def _with_gradients(world: World) -> None:
    for held in (world.args[0].bank, world.args[0].recent, world.args[0].queue):
        held[-1] = (torch.ones(3, requires_grad=True) * 2) + 1


def _numbers(world: World) -> None:
    for held in _held(world):
        held[-1] = 2.5


def _other_numbers(world: World) -> None:
    b = world.args[0]
    b.pairs[-1] = (float("nan"), 7)
    b.pairs[-2] = (-1.5, 8)
    b.rows[-1] = {"loss": -2.5, "seen": 1}
    b.objects[-1].loss = 1
    b.names[-1] = "another"


def _longer_tuples(world: World) -> None:
    world.args[0].pairs[-1] = (0.5, 1, 2)


def _one_list(world: World) -> None:
    b = world.args[0]
    b.other = b.bank
    b.queue = b.recent


def _bounded(world: World) -> None:
    b = world.args[0]
    b.recent = collections.deque(b.recent, maxlen=1)
    b.queue = collections.deque(b.queue, maxlen=2)


STEPS = [
    _shorter,
    _two,
    _empty,
    _longer,
    _repeated,
    _other_sizes,
    _with_gradients,
    _numbers,
    _other_numbers,
    _longer_tuples,
    _one_list,
    _bounded,
]


def _world(fn: Callable[..., Any]) -> World:
    banks = Banks()
    return World(fn, (banks,), state=lambda: vars(banks))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("fn", FUNCTIONS)
@pytest.mark.parametrize("again", [1, 5])
def test_found_from_the_end(
    fn: Callable[..., Any], step: Callable[[World], None], again: int
) -> None:
    agree(lambda: _world(fn), step, replays=False, again=again)


# What looks at all that a list holds is for that list.
WHOLE = (last_pair_of_all,)


@pytest.mark.skipif(api.PLAIN, reason="traces are counted")
@pytest.mark.parametrize("fn", [fn for fn in FUNCTIONS if fn not in WHOLE])
def test_few_traces(fn: Callable[..., Any]) -> None:
    world = _world(fn)
    compiled = stator.compile(world.fn)
    for number in range(20):
        compiled(torch.arange(3.0) + number, *world.args)
    stats = stator.stats(compiled)
    assert stats.breaks == 0 and stats.native == 0, stats.reason
    # A window is of each size once until it's full.
    assert stats.traces <= 6, stats.traces


@pytest.mark.skipif(api.PLAIN, reason="guards are shown")
def test_guards_show() -> None:
    world = _world(stacked)
    compiled = stator.compile(world.fn)
    for number in range(3):
        compiled(torch.arange(3.0) + number, *world.args)
    stats = stator.stats(compiled)
    assert (stats.traces, stats.hits) == (1, 2)
