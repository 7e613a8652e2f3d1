"""Lists and deques that grow from call to call are asked by nodes: their length, their numbers, their last elements."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

from ..worlds import World, agree


class History:
    """What programs keep of earlier calls."""

    def __init__(self) -> None:
        self.losses: list[Any] = []
        self.counts: list[Any] = [3]
        self.recent: collections.deque[Any] = collections.deque(maxlen=4)
        self.queue: collections.deque[Any] = collections.deque()
        self.lists: list[list[Any]] = [[], [0.5]]
        self.rows: dict[str, list[Any]] = {"train": [], "other": []}
        self.best: Any = float("inf")


def mean_so_far(x: Tensor, h: History) -> Any:
    h.losses.append(x.sum().item())
    return sum(h.losses) / len(h.losses)


def best_so_far(x: Tensor, h: History) -> Any:
    h.losses.append(x.sin().sum().item())
    return min(h.losses), max(h.losses), h.losses[-1] >= max(h.losses)


def last_one(x: Tensor, h: History) -> Any:
    h.rows["train"].append({"loss": x.sum().item()})
    return h.rows["train"][-1]["loss"], len(h.rows["train"])


def the_one_before(x: Tensor, h: History) -> Any:
    before = h.losses[-1] if h.losses else None
    h.losses.append(x.sum().item())
    return before, h.losses[-2] if len(h.losses) > 1 else 0.0


def first_one(x: Tensor, h: History) -> Any:
    h.losses.append(x.sum().item())
    return h.losses[0]


def last_few(x: Tensor, h: History) -> Any:
    h.losses.append(x.sum().item())
    few = h.losses[-3:]
    return sum(few) / len(few), max(few), few[-1]


def a_part_is_handed_out(x: Tensor, h: History) -> Any:
    h.losses.append(x.sum().item())
    return h.losses[-2:], h.losses[::-1]


def a_part_is_written(x: Tensor, h: History) -> Any:
    h.losses.append(x.sum().item())
    few = h.losses[-2:]
    few.append(len(h.losses))
    return few


def running(x: Tensor, h: History) -> Any:
    h.recent.append(x.sum().item())
    return sum(h.recent) / len(h.recent), h.recent[-1]


def running_total(x: Tensor, h: History) -> Any:
    h.queue.append(x.sum().item())
    return sum(h.queue), len(h.queue), min(h.queue)


def window(x: Tensor, h: History) -> Any:
    h.losses.append(x.sum().item())
    if len(h.losses) > 3:
        h.losses.pop(0)
    return sum(h.losses) / len(h.losses), h.losses[-1], h.losses[0]


def window_of_deque(x: Tensor, h: History) -> Any:
    h.queue.append(x.sum().item())
    gone = h.queue.popleft() if len(h.queue) > 3 else None
    return gone, sum(h.queue), len(h.queue), h.queue[-1]


def taken_before(x: Tensor, h: History) -> Any:
    gone = h.losses.pop(0) if h.losses else 0.0
    h.losses.extend([x.sum().item(), 1.0])
    return gone, len(h.losses), h.losses[-3:]


def window_by_del(x: Tensor, h: History) -> Any:
    h.losses.append(x.sum().item())
    if len(h.losses) > 3:
        del h.losses[0]
    return sum(h.losses) / len(h.losses), h.losses[-1], h.losses[0]


def part_gone_over(x: Tensor, h: History) -> Any:
    h.losses.append(x.sum().item())
    best, few = 4.0, h.losses[-3:]
    worse = all(loss > best for loss in h.losses[-2:])
    for loss in few:
        best = min(best, loss)
    return worse, best, [loss * 2 for loss in few]


def part_in_order(x: Tensor, h: History) -> Any:
    h.losses.append(x.sin().sum().item())
    few = h.losses[-3:]
    return sorted(few)[len(few) // 2], sorted(h.losses[-2:], reverse=True), few


def part_as_tensor(x: Tensor, h: History) -> Any:
    h.losses.append(x.sum().item())
    h.counts.append(int(x.sum().item()))
    return torch.tensor(h.losses[-3:]) * 2, torch.tensor(h.counts[-2:])


def one_and_the_same(x: Tensor, h: History) -> Any:
    h.losses.append(x.sum().item())
    h.losses.append(h.losses[-1])
    last = h.losses[-2]
    few = h.losses[-2:]
    few.append(few[0])
    return last is h.losses[-2], last is h.losses[-1], few[-1] is h.losses[-2]


def several(x: Tensor, h: History) -> Any:
    h.counts.append(int(x.sum().item()))
    h.counts.append(2)
    return sum(h.counts), len(h.counts), h.counts[-2], h.counts[-3], max(h.counts)


def gone_over_together(x: Tensor, h: History) -> Any:
    for held, value in zip(h.lists, [x.sum(), x.mean()], strict=True):
        held.append(value.item())
    for number, held in enumerate(h.lists):
        held.append(number + 0.5)
    return [held[-1] for held in h.lists], [len(held) for held in reversed(h.lists)]


def every_third(x: Tensor, h: History) -> Any:
    h.losses.append(x.sum().item())
    if len(h.losses) % 3 == 0:
        h.best = min(h.best, sum(h.losses) / 3)
    return h.best


def two_of_them(x: Tensor, h: History) -> Any:
    h.rows["train"].append(x.sum().item())
    return len(h.rows["other"]), sum(h.rows["other"]) if h.rows["other"] else 0


def iterated(x: Tensor, h: History) -> Any:
    h.losses.append(x.sum().item())
    length = len(h.losses)
    return length, [value * 2 for value in h.losses]


def as_a_size(x: Tensor, h: History) -> Any:
    h.losses.append(x.sum().item())
    return x.repeat(len(h.losses)), torch.arange(len(h.losses))


def by_numpy(x: Tensor, h: History) -> Any:
    h.losses.append(x.sum().item())
    own = [value.item() for value in x]
    spread = float(np.std(h.losses[-4:])) + 1.0
    return float(np.mean(h.losses)) / spread, np.max(own), np.mean(h.recent or [0.5])


def discounted(x: Tensor, h: History) -> Any:
    returns: collections.deque[Any] = collections.deque()
    total = 0.0
    for value in x:
        total = value.item() + 0.9 * total
        returns.appendleft(total)
    h.losses.append(total)
    return torch.tensor(returns), h.losses[-1]


def _shorter(world: World) -> None:
    history = world.args[0]
    for held in (history.losses, history.counts, history.queue, history.recent, *history.lists):
        while len(held) > 1:
            held.pop()
    del history.rows["train"][:]


def _empty(world: World) -> None:
    history = world.args[0]
    for held in (history.losses, history.queue, history.recent):
        held.clear()


def _other_numbers(world: World) -> None:
    history = world.args[0]
    for held in (history.losses, history.queue, history.recent):
        for index in range(len(held)):
            held[index] = float(index) - 100.5


def _integers(world: World) -> None:
    history = world.args[0]
    for held in (history.losses, history.queue, history.recent):
        if held:
            held[0] = 7
            held[-1] = True


def _objects(world: World) -> None:
    history = world.args[0]
    for held in (history.losses, history.queue, history.recent, history.counts):
        held.append(torch.tensor(2.5))


def _texts(world: World) -> None:
    history = world.args[0]
    for held in (history.losses, history.queue, history.recent, history.lists[1]):
        held.append("a text")


def _same(world: World) -> None:
    history = world.args[0]
    history.rows["other"] = history.rows["train"]
    history.lists[0] = history.lists[1]
    history.queue = history.recent


def _long(world: World) -> None:
    history = world.args[0]
    history.losses.extend([0.25] * 70)
    history.counts.extend([2**62, 2**62])


def _bounded(world: World) -> None:
    history = world.args[0]
    history.recent = collections.deque(history.recent, maxlen=2)
    history.queue = collections.deque(history.queue, maxlen=3)


FUNCTIONS = [
    mean_so_far,
    best_so_far,
    last_one,
    the_one_before,
    first_one,
    last_few,
    a_part_is_handed_out,
    a_part_is_written,
    running,
    running_total,
    window,
    window_of_deque,
    taken_before,
    window_by_del,
    part_gone_over,
    part_in_order,
    part_as_tensor,
    one_and_the_same,
    several,
    gone_over_together,
    every_third,
    two_of_them,
    iterated,
    as_a_size,
    by_numpy,
    discounted,
]
STEPS = [_shorter, _other_numbers, _empty, _integers, _long, _same, _bounded, _objects, _texts]


def _world(fn: Callable[..., Any]) -> World:
    history = History()
    return World(fn, (history,), state=lambda: vars(history))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_asked(fn: Callable[..., Any], step: Callable[[World], None]) -> None:
    with stator.config.patch(skip_unprofitable=False):
        agree(lambda: _world(fn), step, replays=False, again=6)


# Behind the way out where a deque is full, who takes out its first element reads it whole.
MANY = (a_part_is_written, iterated, window_of_deque)
FEW = [fn for fn in FUNCTIONS if fn not in (*MANY, one_and_the_same)]


@pytest.mark.skipif(api.PLAIN, reason="traces are counted")
@pytest.mark.parametrize("fn", FEW)
def test_few_traces(fn: Callable[..., Any]) -> None:
    world = _world(fn)
    compiled = stator.compile(world.fn)
    with stator.config.patch(skip_unprofitable=False):
        for number in range(30):
            compiled(torch.arange(3.0) + number, *world.args)
    stats = stator.stats(compiled)
    assert stats.breaks == 0 and stats.native == 0, stats.reason
    # A window is of each size once until it's full, and so is a part.
    is_window = fn.__name__.startswith(("window", "part"))
    assert stats.traces <= (8 if is_window else 5), stats.traces


def test_nodes_show() -> None:
    losses: list[float] = []

    def step(x: Tensor) -> float:
        losses.append(x.sum().item())
        return sum(losses) / len(losses)

    compiled = stator.compile(step)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            compiled(torch.ones(2))
    if not api.PLAIN:
        assert "held.are_all" in "".join(compiled.graph_code())


class Memory:
    """What tells its length by a method."""

    def __init__(self) -> None:
        self.kept: collections.deque[Any] = collections.deque(maxlen=6)
        self.size = torch.zeros((), dtype=torch.long)
        self.by_data = False

    def __len__(self) -> int:
        return int(self.size.item()) if self.by_data else len(self.kept)


def told_by_a_method(x: Tensor, memory: Memory) -> Any:
    memory.kept.append(x.sum().item())
    memory.size += 1
    if len(memory) >= 3:
        return x * 2, len(memory)
    return x + len(memory), 0


def _by_data(world: World) -> None:
    world.args[0].by_data = True


@pytest.mark.parametrize("again", [1, 6])
def test_told_by_a_method(again: int) -> None:
    """A replay leaves before the method's return instruction: what it returns lies on the stack."""
    with stator.config.patch(skip_unprofitable=False):
        agree(lambda: World(told_by_a_method, (Memory(),)), _by_data, replays=False, again=again)


def emptied_by_pop(x: Tensor, h: Any, left: int) -> Any:
    h.append(0.5)
    while len(h) > left:
        h.pop(0)
    return x + 1


def emptied_by_popleft(x: Tensor, h: Any, left: int) -> Any:
    h.append(0.5)
    while len(h) > left:
        h.popleft()
    return x + 1


@pytest.mark.parametrize(
    ("function", "kind"), [(emptied_by_pop, list), (emptied_by_popleft, collections.deque)]
)
def test_a_long_one_is_emptied_in_time(
    function: Callable[[Tensor, Any, int], Any], kind: Callable[[list[float]], Any]
) -> None:
    """What a question costs while recording doesn't grow with what the list holds."""

    def spent(length: int) -> float:
        compiled = api.compile(function, backend="eager")
        history, x = kind([float(number) for number in range(length)]), torch.ones(2)
        before = time.process_time()
        result = compiled(x, history, length - 1000)
        took = time.process_time() - before
        assert torch.equal(result, x + 1)
        assert list(history) == [*map(float, range(length)), 0.5][1001:]
        return took

    spent(1000)
    assert spent(100_000) < 8 * spent(1500) + 2.0
