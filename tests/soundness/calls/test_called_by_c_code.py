"""Functions and methods of C types that C code calls: `map(d.get, xs)`, `filter(pattern.match, xs)`, `map(sum, rows)`."""

from __future__ import annotations

import heapq
import itertools
import operator
import re
from collections import defaultdict
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from soundness.probe import Probe, Steps, flip, right_after

Read = Callable[[dict[str, int], list[int]], Any]

READS: dict[str, Read] = {
    "get": lambda d, a: list(map(d.get, ["a", "b", "z"])),
    "dict item": lambda d, a: sum(map(d.__getitem__, "ab")),
    "list item": lambda d, a: list(map(a.__getitem__, [0, -1])),
    "contains": lambda d, a: (
        list(filter(a.__contains__, [1, 9])),
        list(map(d.__contains__, "az")),
    ),
    "index": lambda d, a: list(map(a.index, [1, 2])),
    "count": lambda d, a: list(map(a.count, [1, 9])),
    "key": lambda d, a: (sorted(d, key=d.get), max(d, key=d.__getitem__)),
    "starmap": lambda d, a: list(itertools.starmap(d.get, [("a", 0), ("z", 7)])),
    "sum": lambda d, a: list(map(sum, [a, d.values()])),
    "max": lambda d, a: list(map(max, [a, d.values()])),
    "min": lambda d, a: list(map(min, a, d.values())),
    "sorted": lambda d, a: list(map(sorted, [a, d])),
    "any": lambda d, a: (list(map(any, [a, d.values()])), list(map(all, [a]))),
    "accumulate": lambda d, a: (
        list(itertools.accumulate(a, max)),
        list(itertools.accumulate(d.values(), operator.mul)),
        list(itertools.accumulate(a, lambda x, y: x * y, initial=2)),
    ),
    "reduce": lambda d, a: reduce(max, a),
    "taken before": lambda d, a: [next(it) for it in (map(d.get, "ab"), map(sum, [a]))],
}


@pytest.mark.parametrize("name", READS)
def test_what_c_code_reads_is_guarded(name: str) -> None:
    api.reset()
    read = READS[name]
    d, a = {"a": 1, "b": 2}, [1, 2, 3]
    probe = Probe(lambda x: (read(d, a), x + 1))
    x = torch.ones(2)
    probe.right(x)
    probe.steady(x)
    for change in (
        lambda: d.update(a=5),
        lambda: a.insert(0, 9),
        lambda: d.update(z=0),
        lambda: a.__setitem__(1, 0) or a.append(1),
        lambda: d.update(b=-1),
    ):
        change()
        for _ in range(2):
            probe.right(x)


@right_after
def test_a_method_of_a_pattern() -> Steps:
    names, patterns = ["a.weight", "b.bias"], [re.compile(r"(\w)\.weight")]

    def fn(x: Tensor) -> Any:
        found = [match.group(1) for match in map(patterns[0].search, names) if match]
        return x * len(found), found, list(filter(patterns[0].match, names))

    yield fn, (torch.ones(2),)
    names[1] = "c.weight"
    yield ()
    patterns[0] = re.compile(r"(\w)\.bias")
    yield ()


@flip
def test_a_pattern_leaves_one_trace() -> Steps:
    names, pattern = ["a.weight", "b.bias"], re.compile(r"\w\.weight")
    yield lambda x: x * len(list(filter(pattern.match, names))), (torch.ones(2),)
    names[1] = "c.weight"
    yield ()
    names[1] = "b.bias"


@right_after
def test_a_dictionary_that_makes_what_it_lacks() -> Steps:
    made: defaultdict[str, list[int]] = defaultdict(list)
    yield lambda x: (list(map(made.__getitem__, "ab")), len(made), x + 1), (torch.ones(2),)
    made["a"].append(1)
    yield ()
    made.clear()
    yield ()


@right_after
def test_numbers_and_tensors() -> Steps:
    def fn(x: Tensor) -> Any:
        numbers = [row.sum().item() for row in x]
        return (
            list(map(sum, [numbers, x])),
            list(itertools.accumulate(numbers, max)),
            list(itertools.accumulate(x.unbind(0), torch.maximum)),
            reduce(max, x.sum(1).unbind(0)),
            list(map(max, [numbers])),
        )

    yield fn, (torch.tensor([[1.0, 2.0], [3.0, -4.0], [0.5, 1.0]]),)
    yield (torch.tensor([[5.0, 2.0], [-3.0, -4.0], [0.5, 1.0]]),)
    yield (torch.tensor([[-5.0, 2.0], [3.0, 4.0], [0.5, 9.0]]),)


@right_after
def test_rows_that_begin_with_what_tells_them_apart() -> Steps:
    """C code orders them without coming to the tensors in them."""

    def fn(x: Tensor, order: list[int]) -> Any:
        heap: list[Any] = []
        for at, place in enumerate(order):
            heapq.heappush(heap, (place, at, x[at]))
        first = heapq.heappop(heap)
        second = heapq.heappushpop(heap, (0, 7, x[0] * 2))
        rows = [[place, x[at]] for at, place in enumerate(order)]
        if len({*order}) == len(order):
            rows.sort(reverse=True)
        return first, second, heap, rows

    yield fn, (torch.rand(3, 2), [3, 1, 2])
    yield (torch.rand(3, 2), [1, 1, 2])
    yield (torch.rand(3, 2), [2, 1, 3])


@right_after
def test_a_tensor_that_c_code_comes_to() -> Steps:
    def fn(x: Tensor) -> Any:
        heap: list[Any] = [(1, x[0])]
        heapq.heappush(heap, (1, x[1]))
        nan = float("nan")
        same: list[Any] = [(nan, x[0])]
        heapq.heappush(same, (nan, x[1]))
        return [float(found) for _, found in heap], [float(found) for _, found in same]

    yield fn, (torch.tensor([1.0, 2.0]),)
    yield (torch.tensor([2.0, 1.0]),)


@right_after
def test_rows_that_begin_with_numbers_of_tensors() -> Steps:
    def fn(x: Tensor) -> Any:
        heap: list[Any] = []
        for at in range(3):
            heapq.heappush(heap, (x[at].sum().item(), at, x[at]))
        return heapq.heappop(heap)[2], [at for _, at, _ in heap]

    yield fn, (torch.tensor([[1.0], [2.0], [3.0]]),)
    yield (torch.tensor([[2.0], [1.0], [3.0]]),)
    yield (torch.tensor([[2.0], [2.0], [2.0]]),)
    yield (torch.tensor([[3.0], [2.0], [2.0]]),)


@flip
def test_a_set_of_tuples() -> Steps:
    edges = {(0, 1), (1, 2)}

    def fn(x: Tensor) -> Any:
        held = [x[i] * x[j] for i in range(3) for j in range(3) if (i, j) in edges]
        return held, sorted(edges), len(edges | {(5, 5)}), edges - {(0, 1)}

    yield fn, (torch.rand(3),)
    edges.add((2, 0))
    yield ()
    edges.discard((2, 0))


@right_after
def test_a_set_of_tuples_compares_types_and_places() -> Steps:
    held: set[Any] = {(1, 2), ("a", (3,))}
    yield lambda x: (repr(sorted(held, key=str)), (1, 2) in held, x + 1), (torch.ones(2),)
    held.discard((1, 2))
    held.add((True, 2))
    yield ()
    held.add((float("nan"), 1))
    yield ()
    held.clear()
    yield ()


@pytest.mark.parametrize(
    "make", [lambda: tuple([1, 2]), lambda: int("1" * 20), lambda: "".join(["a", " b"])]
)
def test_what_a_set_holds_is_known_by_its_value(make: Callable[[], Any]) -> None:
    """An equal object in the set is another one, which `is` tells."""
    key = make()
    held = {key}

    def fn(x: Tensor) -> tuple[Tensor, bool]:
        return x + 1, any(item is key for item in held)

    compiled, x = api.compile(fn), torch.ones(2)
    for _ in range(2):
        assert compiled(x)[1] is True
    held.clear()
    held.add(make())
    for _ in range(2):
        assert compiled(x)[1] is fn(x)[1] is False
