"""Loops that data leaves in the middle: the trace behind the exit takes the loop's iterator over."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator

from .results import copied, same

# What a program goes over: made anew for each call, from what it was given.
SOURCES: dict[str, Callable[[list[float]], Iterable[Any]]] = {
    "range": lambda w: range(len(w)),
    "steps": lambda w: range(2 * len(w) - 2, -1, -2),
    "reversed_range": lambda w: reversed(range(len(w))),
    "list": list,
    "tuple": tuple,
    "reversed_list": lambda w: reversed(w),
    "reversed_tuple": lambda w: reversed(tuple(w)),
    "repeat": lambda w: itertools.repeat(w[0], len(w)),
    "enumerate": lambda w: [10 * i + v for i, v in enumerate(w, 3)],
    "keys": lambda w: {i: v for i, v in enumerate(w)},
    "values": lambda w: {i: v for i, v in enumerate(w)}.values(),
    "ordered": lambda w: OrderedDict(enumerate(w)),
    "ordered_values": lambda w: OrderedDict(enumerate(w)).values(),
}


def rows(call: int, count: int = 5) -> Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(call))


def check(
    fn: Callable[..., Any], args: Callable[[int], Any], calls: int = 30, breaks: int | None = 0
) -> Any:
    """Each call gives what plain Python gives, and leaves the same behind in its arguments."""
    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False, recompile_limit=64):
        for call in range(calls):
            plain, found = args(call), args(call)
            expected = copied(fn(*plain))
            assert same(expected, copied(compiled(*found))), call
            assert same(copied(plain), copied(found)), call
    stats = stator.stats(compiled)
    assert stats.native == 0, stats.reason
    if breaks is not None:
        assert stats.breaks == breaks, stats.reason
    return compiled


@pytest.mark.parametrize("name", list(SOURCES))
def test_a_branch_in_a_loop(name: str) -> None:
    make = SOURCES[name]

    def fn(x: Tensor, weights: list[float]) -> Any:
        total, taken = torch.zeros(3), []
        for place, weight in zip(range(5), make(weights)):
            row = x[place] * weight
            if row.sum() > 0:
                total = total + row
                taken.append(weight)
            else:
                total = total * 0.5
        return total, taken

    check(fn, lambda call: (rows(call), [1.0, -2.0, 3.0, 0.5, 1.5]))


def test_the_loop_itself() -> None:
    def fn(x: Tensor, layers: list[Tensor], named: dict[str, Tensor]) -> Any:
        seen = []
        for layer in layers:
            x = x + layer
            if x.sum() > 0:
                x = x * 0.5
                seen.append(1)
        for i in range(4):
            if x[i % 3] > 0.1:
                seen.append(i)
        for i, layer in enumerate(layers):
            if (x * layer).sum() > 0:
                seen.append((i, "up"))
                continue
            x = x - layer
        for key, layer in named.items():
            if (x * layer).max() > 1:
                seen.append(key)
        for layer in named.values():
            if layer.sum() < x.sum():
                seen.append("value")
        for key in named:
            if named[key].mean() < 0:
                seen.append(key)
        for (i, a), b in zip(enumerate(layers), reversed(layers)):
            if (a * b * x).sum() > 0:
                seen.append(i)
        return x, seen

    def args(call: int) -> Any:
        parts = rows(call, 7)
        layers = list(parts[:3])
        return parts[6], layers, {"a": parts[3], "b": parts[4], "c": parts[5]}

    check(fn, args)


def test_what_is_gone_over_has_changed() -> None:
    """A trace from the middle of a loop is for one place in it, and for what is gone over."""
    weights = [1.0, 2.0, 3.0, 4.0]

    def fn(x: Tensor) -> Any:
        seen = []
        for place, weight in enumerate(weights):
            if x[place] > 0:
                seen.append(weight)
            else:
                seen.append(-weight)
        return seen, x * 2

    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False, recompile_limit=64):
        for call in range(40):
            if call % 7 == 6:
                weights[call % 4] += 0.5
            if call == 20:
                weights.append(9.0)
            if call == 30:
                del weights[1:3]
            x = torch.randn(5, generator=torch.Generator().manual_seed(call))
            assert same(fn(x), compiled(x)), call
    assert stator.stats(compiled).native == 0


def test_it_is_advanced_by_a_replay() -> None:
    """What is left of an iterator that others have, too, is what plain Python leaves."""

    def fn(x: Tensor, items: list[int]) -> Any:
        pieces = iter(items)
        taken = []
        for item in pieces:
            if x[item] > 0:
                taken.append(item)
            else:
                taken.append(-item)
                if len(taken) > 2:
                    break
        return taken, list(pieces), x + 1

    check(fn, lambda call: (rows(call)[:, 0], [3, 1, 2, 0, 4]), breaks=None)


def test_one_iterator_twice() -> None:
    """Pairs of one iterator: each advances the other's."""

    def fn(x: Tensor) -> Any:
        items = iter(range(6))
        taken = []
        for a, b in zip(items, items):
            if x[a] > x[b]:
                taken.append((a, b))
            else:
                taken.append((b, a))
        return taken, x * 2

    check(fn, lambda call: (rows(call, 6)[:, 0],), breaks=None)


def test_an_iterator_within_another_is_advanced_by_itself() -> None:
    def fn(x: Tensor) -> Any:
        items = iter(range(6))
        taken = []
        for place, item in enumerate(items):
            if x[item] > 0:
                taken.append((place, next(items, None)))
            else:
                taken.append((place, item))
        return taken, x * 2

    check(fn, lambda call: (rows(call, 6)[:, 0],), breaks=None)


def test_what_is_gone_over_is_written() -> None:
    """The list grows, and the dictionary's values change, while they are gone over."""

    def fn(x: Tensor, queue: list[int], held: dict[int, float]) -> Any:
        taken = []
        for item in queue:
            if x[item] > 0:
                taken.append(item)
                if item + 1 < 6 and len(queue) < 9:
                    queue.append(item + 1)
        for key in held:
            if x[key] > 0:
                held[key] = held[key] + 1.0
        return taken, x * 2

    check(fn, lambda call: (rows(call, 6)[:, 0], [0, 2, 4], {1: 0.5, 3: 1.5, 5: 2.5}), breaks=None)


def test_another_list_is_the_one_that_is_written() -> None:
    """Only at later calls the list that grows is the one that is gone over."""

    def fn(x: Tensor, items: list[int], log: list[int]) -> Any:
        taken = []
        for item in items:
            if x[item] > 0:
                taken.append(item)
            if len(taken) < 3 and len(log) < 8:
                log.append(4)
        return taken, x * 2

    def args(call: int) -> Any:
        items = [0, 1, 2]
        return rows(call)[:, 0], items, items if call % 3 == 2 else [7]

    check(fn, args, breaks=None)


def test_layers() -> None:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(4))
            self.register_buffer("norms", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            for i, layer in enumerate(self.layers):
                x = layer(x)
                if x.norm() > self.norms[i] + 1:
                    x = x / x.norm()
                self.norms[i].mul_(0.9).add_(0.1 * x.detach().norm())
            return x

    torch.manual_seed(0)
    model = Layers()
    plain = Layers()
    plain.load_state_dict(model.state_dict())
    compiled = stator.compile(model)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(30):
            x = 2 * rows(call)
            assert same(plain(x), compiled(x))
            assert same(plain.norms, model.norms)
    assert stator.stats(compiled).breaks == 0


def test_a_long_loop() -> None:
    """It has few traces: at each place a handful are for that one, and others go on anywhere."""

    def fn(x: Tensor) -> Any:
        count = 0
        for _ in range(150):
            x = x * 1.1
            if x.abs().max() > 2:
                x = x / 2
                count += 1
        return x, count

    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(25):
            assert same(fn(rows(call)), compiled(rows(call)))
        graphs = stator.stats(compiled).graphs
        for call in range(25, 50):
            assert same(fn(rows(call)), compiled(rows(call)))
    stats = stator.stats(compiled)
    assert stats.native == 0
    assert graphs <= stats.graphs <= 40


def test_a_break_in_the_loop() -> None:
    """Behind a graph break nothing is taken over: how long the loop is makes no difference."""

    @stator.disable
    def note(item: int) -> None:
        pass

    def fn(x: Tensor) -> Any:
        taken = []
        for item in range(40):
            note(item)
            x = x + 1
            if x.sum() > 10 * item:
                taken.append(1)
        return x, taken

    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(12):
            assert same(fn(rows(call)), compiled(rows(call)))
    assert stator.stats(compiled).graphs <= 24


def test_errors_in_the_middle() -> None:
    """What an operation raises behind an exit leaves the iterator where plain Python leaves it."""

    def fn(x: Tensor, pieces: list[Tensor]) -> Any:
        items = iter(pieces)
        total = torch.zeros(3)
        try:
            for piece in items:
                if piece.sum() > 0:
                    total = total + piece
                else:
                    total = total - piece
        except RuntimeError:
            return total, len(list(items)), "raised"
        return total, len(list(items)), "ended"

    def args(call: int) -> Any:
        pieces = list(rows(call))
        if call % 3 == 1:
            pieces[call % 5] = torch.ones(2)
        return torch.ones(3), pieces

    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False, recompile_limit=64):
        for call in range(30):
            assert same(copied(fn(*args(call))), copied(compiled(*args(call)))), call


def test_what_is_not_taken_over() -> None:
    """Where one of several iterators can't be, none is: the pieces of the loop are for any place in it."""

    def fn(x: Tensor) -> Any:
        seen = []
        for a, b in zip(range(20), (2 * i for i in range(20))):
            x = x * 1.1
            if x.sum() > a:
                seen.append(b)
            else:
                x = x + 1
        return x, seen

    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(20):
            assert same(fn(rows(call)), compiled(rows(call)))
    assert stator.stats(compiled).graphs <= 30
