"""Integers that are read from tensors where operations take sizes, bounds and indices: one trace for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor
from torch.nn import functional

import stator

from .results import copied, same

ROWS = 6

# What is made of a tensor of six rows and four columns and two integers.
OPERATIONS: dict[str, Callable[[Tensor, int, int], Any]] = {
    "arange": lambda x, n, k: torch.arange(n),
    "arange, bounds": lambda x, n, k: torch.arange(k, n),
    "arange, step": lambda x, n, k: torch.arange(0, n, k),
    "arange, type": lambda x, n, k: torch.arange(n, dtype=torch.float64) * 2,
    "arithmetic": lambda x, n, k: (x[: n * 2 - k], x[: n // 2], x[n % 3 :], x[: -n], x[: abs(n)]),
    "at": lambda x, n, k: (x[n], x[0, k], x[-n - 1, 0]),
    "broadcast_to": lambda x, n, k: x[0].broadcast_to(n, 4),
    "cat": lambda x, n, k: torch.cat([x[:n], x[:k], torch.zeros(n, 4)]),
    "chunk": lambda x, n, k: x.chunk(n),
    "clamp": lambda x, n, k: x.clamp(min=n, max=n + k),
    "dimension": lambda x, n, k: x.sum(n),
    "empty": lambda x, n, k: torch.empty(n, k).shape,
    "expand": lambda x, n, k: (x[:1].expand(n, 4), x[0].expand(n, -1)),
    "eye": lambda x, n, k: (torch.eye(n), torch.eye(n, k)),
    "full": lambda x, n, k: (torch.full((n, 2), 0.5), torch.full((2,), k)),
    "full, small type": lambda x, n, k: torch.full((n,), k * 200, dtype=torch.int8),
    "index, sequence": lambda x, n, k: x[[n, k]],
    "index, tensors": lambda x, n, k: x[torch.tensor([0, 2]), :n],
    "mask and bound": lambda x, n, k: x[x[:, 0] > 0, :n],
    "narrow": lambda x, n, k: (x.narrow(0, k, n), x.narrow(1, -1, k)),
    "new": lambda x, n, k: (x.new_zeros(n), x.new_ones((n, k)), x.new_full((k,), 2.0), x.new_empty(n).shape),
    "one_hot": lambda x, n, k: functional.one_hot(torch.tensor([0, 1, 2]), n),
    "ones": lambda x, n, k: torch.ones(n, k) * x[0, 0],
    "pad": lambda x, n, k: functional.pad(x, (0, n)),
    "pad, both": lambda x, n, k: functional.pad(x, (n, k, 0, n - k), value=1.5),
    "pad, reflected": lambda x, n, k: functional.pad(x, (n, k), mode="reflect"),
    "pad, round": lambda x, n, k: functional.pad(x, (n, k), mode="circular"),
    "power": lambda x, n, k: (x.long() ** n, x**k),
    "random": lambda x, n, k: (torch.rand(n).shape, torch.randn(n, k).shape, torch.randperm(n).sort()[0]),
    "repeat": lambda x, n, k: x.repeat(n, k),
    "repeat_interleave": lambda x, n, k: (x.repeat_interleave(n), x.repeat_interleave(k, 0)),
    "reshape": lambda x, n, k: (x.reshape(n, -1), x.t().reshape(k, -1)),
    "roll": lambda x, n, k: (x.roll(n, 0), x.roll(k)),
    "select": lambda x, n, k: x.select(0, n),
    "slices": lambda x, n, k: (x[:n], x[n:], x[n:k], x[k:n:2], x[..., :n], x[None, n:, :k]),
    "split": lambda x, n, k: x.split(n),
    "split, list": lambda x, n, k: x.split([n, ROWS - n]),
    "split, sizes": lambda x, n, k: torch.split(x, [n, k, ROWS - n - k]),
    "squeeze": lambda x, n, k: x[:n].squeeze(),
    "stack": lambda x, n, k: torch.stack([x[:n], x[k:]]),
    "sum": lambda x, n, k: (x[:n] + torch.ones(n, 4)).sum(0) / n,
    "sum of different": lambda x, n, k: x[:n] + x[:k],
    "topk": lambda x, n, k: x.topk(k),
    "triangles": lambda x, n, k: (x.tril(n), x.triu(k)),
    "view": lambda x, n, k: (x.view(n, k), x.view(-1, n)),
    "view, turned": lambda x, n, k: x.t().view(n, -1),
    "written": lambda x, n, k: written(x, n, k),
    "zeros": lambda x, n, k: (torch.zeros(n), torch.zeros((n, k)), torch.zeros([k, n], dtype=torch.long)),
}  # fmt: skip


def written(x: Tensor, n: int, k: int) -> Tensor:
    made = x.clone()
    made[n] = 5
    made[:k] *= 2
    made[:n, :k] = x[:n, :k] + 1
    made[n:] = k
    return made


VALUES = (
    (3, 2), (2, 4), (1, 1), (0, 0), (4, 6), (6, 4), (5, 3), (0, 2), (3, 0), (-1, 2), (2, -1), (7, 9), (-8, -2), (1, 4), (12, 2)
)  # fmt: skip


def play(step: Callable[..., Any], values: list[tuple[int, int]]) -> list[Any]:
    """What each call gave or raised, and what it wrote."""
    played, log = [], list[Any]()
    for n, k in values:
        x = torch.arange(24.0).view(ROWS, 4) - 11
        try:
            result = step(x, torch.tensor(n), torch.tensor(k), log)
        except (RuntimeError, IndexError, ValueError, ZeroDivisionError, TypeError) as raised:
            result = type(raised).__name__, str(raised)
        played.append(copied([result, x, log]))
        del log[:]
    return played


def stepping(name: str, handles: bool) -> Callable[..., Any]:
    operation = OPERATIONS[name]

    def step(x: Tensor, n: Tensor, k: Tensor, log: list[Any]) -> Any:
        log.append("begun")
        x += 1
        result = operation(x, n.item(), int(k))  # type: ignore[arg-type]
        log.append(result)
        return result

    def handling(x: Tensor, n: Tensor, k: Tensor, log: list[Any]) -> Any:
        x += 1
        try:
            result = operation(x, n.item(), int(k))  # type: ignore[arg-type]
        except (RuntimeError, IndexError) as raised:
            log.append(type(raised).__name__)
            result = x * 2
        x += 1
        return result

    return handling if handles else step


@pytest.mark.parametrize("handles", [False, True])
@pytest.mark.parametrize("first", [0, 3, 7, 9])
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.filterwarnings("ignore::stator.RecompileLimitWarning")
def test_operations_take_integers_as_plain_python_does(
    name: str, first: int, handles: bool
) -> None:
    step = stepping(name, handles)
    # Only an entry's first replay saves all that it writes.
    values = [VALUES[first]] * 4
    for other in VALUES:
        values += [other, VALUES[first], other]
    assert same(play(api.compile(step, backend="eager"), values), play(step, values))


# Values that are alike in all that the operation asks.
ALIKE = {
    "arange": [(3, 2), (5, 1), (0, 4), (1, 0)],
    "arange, bounds": [(3, 2), (5, 1), (7, 4)],
    "at": [(3, 2), (5, 1), (0, 3), (1, 0)],
    "cat": [(3, 2), (5, 1), (0, 6), (1, 0)],
    "expand": [(3, 2), (5, 1), (7, 0)],
    "narrow": [(3, 1), (5, 1), (2, 0)],
    "one_hot": [(3, 2), (5, 1), (7, 0)],
    "pad": [(3, 2), (5, 1), (0, 4), (1, 0)],
    "pad, both": [(3, 2), (5, 1), (6, 4), (1, 0)],
    "repeat": [(3, 2), (5, 1), (0, 4), (1, 0)],
    "split, list": [(3, 2), (5, 1), (0, 4), (6, 0)],
    "split, sizes": [(3, 2), (5, 1), (0, 4), (1, 0)],
    "sum": [(3, 2), (5, 1), (2, 0), (6, 6)],
    "topk": [(3, 2), (5, 1), (0, 4), (1, 0)],
    "view": [(6, 4), (3, 8), (4, 6), (12, 2)],
    "zeros": [(3, 2), (5, 1), (0, 4), (1, 0)],
}


@pytest.mark.skipif(api.PLAIN, reason="plain Python has no traces")
@pytest.mark.parametrize("name", ALIKE)
def test_one_trace_serves_all_that_are_alike(name: str) -> None:
    step = stepping(name, handles=False)
    compiled = api.compile(step, backend="eager")
    assert same(play(compiled, ALIKE[name]), play(step, ALIKE[name]))
    assert (api.traces(compiled), api.breaks(compiled)) == (1, 0)


def padded_by_tensors(x: Tensor, n: Tensor) -> Any:
    more = (n + 1, n.clamp(max=3))
    padded = functional.pad(x, more)
    return padded, padded.shape, functional.pad(x, [n, 1], value=2.5), x.new_zeros([n, 2])


def test_rows_of_tensors_are_numbers() -> None:
    compiled = stator.compile(padded_by_tensors)
    x = torch.arange(4.0)
    with stator.config.patch(skip_unprofitable=False):
        for value in (1, 3, 0, 5, 2, 1):
            n = torch.tensor(value)
            assert repr(compiled(x, n)) == repr(padded_by_tensors(x, n))
    stats = stator.stats(compiled)
    assert (stats.breaks, stats.traces) == (0, 1), stats.reason


def test_rows_of_floats_raise() -> None:
    def padded(x: Tensor, n: Tensor) -> Any:
        try:
            return functional.pad(x, (n, n))
        except TypeError as error:
            return str(error)[:40]

    compiled = stator.compile(padded)
    for value in (1.0, 2.0, 1.0, 3.0):
        args = torch.arange(4.0), torch.tensor(value)
        assert repr(compiled(*args)) == repr(padded(*args))
