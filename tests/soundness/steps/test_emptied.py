"""Containers that are emptied or turned around: numbers in them that were read from tensors aren't looked at."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from .within_nodes import Program, Programs, nothing

PROGRAMS = Programs(most_traced=3)
program, whole = PROGRAMS.program, PROGRAMS.whole


@program
def lists() -> Program:
    kept = SimpleNamespace(losses=[], means=[])

    def step(x: Tensor) -> Any:
        kept.losses.append(x.square().mean().item())
        kept.losses.append(x.sum().item())
        kept.losses.reverse()
        kept.means.append(sum(kept.losses) / 2)
        first = kept.losses[0]
        kept.losses.clear()
        del kept.means[:-2]
        return x * 2, first

    return step, nothing, lambda: [list(kept.losses), list(kept.means)]


@whole
def own_lists() -> Program:
    def step(x: Tensor) -> Any:
        found = [x.sum().item(), x.max().item(), x.min().item()]
        kept = list(found)
        found.reverse()
        kept.clear()
        return found, kept

    return step, nothing, lambda: None


@program
def deques() -> Program:
    kept = SimpleNamespace(last=deque([0.0, 1.0]))

    def change(call: int) -> None:
        if call == 5:
            kept.last.append(3.0)

    def step(x: Tensor) -> Any:
        kept.last.append(x.mean().item())
        kept.last.appendleft(x.sum().item())
        kept.last.reverse()
        first, last = kept.last.popleft(), kept.last.pop()
        return first * 2, last, x + first

    return step, change, lambda: list(kept.last)


@program
def emptied_deques() -> Program:
    kept = SimpleNamespace(last=deque())

    def step(x: Tensor) -> Any:
        kept.last.append(x.mean().item())
        total = sum(kept.last)
        kept.last.clear()
        return total, len(kept.last)

    return step, nothing, lambda: list(kept.last)


@program
def changed_before() -> Program:
    kept = SimpleNamespace(found=[1.0, 2.0])

    def change(call: int) -> None:
        if call in (4, 5):
            kept.found += [4.0, 3.0]

    def step(x: Tensor) -> Any:
        kept.found.append(x.sum().item())
        kept.found.reverse()
        first = kept.found[0]
        if len(kept.found) > 4:
            kept.found.clear()
        return first, len(kept.found), x * 2

    return step, change, lambda: list(kept.found)


@whole
def sorted_tensors_of_one() -> Program:
    def step(x: Tensor) -> Any:
        lengths = x[:1, 0].abs()
        found, order = torch.sort(lengths, descending=True)
        return found, order, torch.sort(lengths.long()), x + torch.sort(x.flatten()[:1])[0]

    return step, nothing, lambda: None


@pytest.mark.parametrize("name", PROGRAMS.all)
def test_calls_are_plain_ones(name: str) -> None:
    PROGRAMS.check(name)
