"""`t.tolist()` of tensors with several dimensions: lists of lists of numbers that are carried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator


def kept(x: Tensor, logs: list[Any]) -> Any:
    rows = (x * 2).tolist()
    logs.append(rows)
    logs.append([[float(value) for value in row] for row in rows])
    return x + rows[0][1], len(rows), [len(row) for row in rows]


def of_integers(x: Tensor, logs: list[Any]) -> Any:
    values, places = x.topk(2, dim=-1)
    for row, numbers in zip(values.tolist(), places.tolist(), strict=True):
        for value, place in zip(row, numbers, strict=True):
            logs.append((round(value, 2), place, f"{place}: {value:.3f}"))
            x = x + value * place
    return x


def deep(x: Tensor, logs: list[Any]) -> Any:
    found = torch.stack([x, x.neg()]).tolist()
    found[1][0].append(0.5)
    found[0][1][2] = "changed"
    logs.extend(found)
    return found


def without_any(x: Tensor, logs: list[Any]) -> Any:
    return x[:, :0].tolist(), x[:0].tolist(), x + 1


def searched(x: Tensor, logs: list[Any]) -> Any:
    """The best rows, by what is in them."""
    beams: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for weight in (1.0, -0.5):
        scores, places = (x * weight).topk(2, dim=-1)
        grown = [
            (score + value, (*tokens, place))
            for score, tokens in beams
            for values, numbers in zip(scores.tolist(), places.tolist(), strict=True)
            for value, place in zip(values, numbers, strict=True)
        ]
        beams = sorted(grown, key=lambda beam: beam[0], reverse=True)[:2]
    return beams


def looked_up(x: Tensor, logs: list[Any]) -> Any:
    names = ["a", "b", "c", "d"]
    return [[names[place] for place in row] for row in x.argsort(-1).tolist()]


def compared(x: Tensor, logs: list[Any]) -> Any:
    rows = x.tolist()
    return rows == [[1.0, 2.0, 3.0], [2.0, 1.0, 0.5]], max(rows), sum(map(sum, rows)), str(rows)


CARRIED = [kept, of_integers, deep, without_any]
OTHERS = [searched, looked_up, compared]
INPUTS = [
    [[1.0, 2.0, 3.0], [2.0, 1.0, 0.5]],
    [[3.0, 2.5, 1.0], [0.5, 1.0, 7.0]],
    [[1.0, float("nan"), 3.0], [2.0, float("inf"), -0.0]],
    [[0.25, 2.0, -3.0], [2.0, 1.0, 0.5]],
]


def outcomes(fn: Callable[..., Any]) -> list[str]:
    found = []
    for call in range(16):
        logs: list[Any] = []
        x = torch.tensor(INPUTS[call % 4])
        if call >= 12:
            x = torch.cat([x, x.flip(0)])
        found.append(repr((fn(x, logs), logs)))
    return found


@pytest.mark.parametrize("is_hidden", [False, True])
@pytest.mark.parametrize("fn", [*CARRIED, *OTHERS])
def test_rows_are_plain_ones(fn: Callable[..., Any], is_hidden: bool) -> None:
    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=is_hidden, strict=True):
        assert outcomes(compiled) == outcomes(fn)
    if fn in CARRIED and not is_hidden:
        told = stator.stats(compiled)
        assert (told.breaks, told.native) == (0, 0), told
        assert told.traces <= 3


@pytest.mark.parametrize("dtype", [torch.int16, torch.float64, torch.bfloat16, torch.bool])
def test_of_every_dtype(dtype: torch.dtype) -> None:
    def fn(x: Tensor) -> Any:
        return x.tolist(), x

    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False, strict=True):
        for start in range(5):
            x = (torch.arange(6).view(2, 3) + start).to(dtype)
            assert repr(compiled(x)) == repr(fn(x))


def test_many_numbers_are_read_by_plain_python() -> None:
    def fn(x: Tensor) -> Any:
        return (x + 1).tolist()

    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False, strict=True):
        for start in range(4):
            x = torch.arange(66.0).view(6, 11) + start
            assert compiled(x) == fn(x)
