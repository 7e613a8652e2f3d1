"""Structures of C code, which are tuples with names: what PyTorch's functions return, times, versions."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator


class Holder:
    found: Any = None


HELD = Holder()


def given(found: Any) -> tuple[Tensor, Tensor]:
    values, indices = found
    return values * 2 + found.indices, found[0] - found.values.sum() + indices


def handed_back(found: Any) -> Any:
    return found, found.values, found.indices is found[1]


def held(x: Any) -> Any:
    HELD.found = x.values.sort()
    return HELD.found.values.cumsum(-1), HELD.found.indices[0]


def behind_a_break(x: Any) -> Any:
    found = x.values.max(0)
    stator.graph_break()
    return found.values + 1, found.indices


def in_a_loop(x: Any) -> Any:
    """Each round leaves by a decision, behind which the tuple is one from outside."""
    total = x.values.new_zeros(())
    for found in [x.values.topk(2), x.values.sort()]:
        if found.values[0] > 0:
            total = total + found.values.sum()
        else:
            total = total - found.indices.sum()
    return total


CASES: list[Callable[[Any], Any]] = [given, handed_back, held, behind_a_break, in_a_loop]


def alike(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor):
        return bool(torch.equal(left, right))
    if isinstance(left, tuple):
        return type(left) is type(right) and all(map(alike, left, right))
    return bool(left == right)


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("fn", CASES)
def test_their_fields(fn: Callable[[Any], Any], skips: bool) -> None:
    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=skips):
        for call in range(7):
            torch.manual_seed(call)
            data = torch.randn(4 + call // 5)
            # A field of another structure is at another place, or isn't there.
            found = data.sort() if call == 4 else data.topk(3)
            assert alike(compiled(found), fn(found)), call
    assert skips or bool(stator.stats(compiled).breaks) == (fn is behind_a_break)


def test_fields_that_differ_between_calls() -> None:
    def of_time(x: Tensor, when: time.struct_time) -> Any:
        return x * when.tm_hour + when[4], when.tm_year, when.tm_zone

    compiled = stator.compile(of_time)
    x = torch.ones(2)
    for seconds in (0, 3_700, 3_700, 90_000_000, 0):
        for zone in (time.gmtime, time.localtime):
            when = zone(seconds)
            assert alike(compiled(x, when), of_time(x, when))


def test_what_is_no_item() -> None:
    """`tm_zone` is a field that a time has beside its items: two equal times may differ in it."""

    def zone(x: Tensor, when: time.struct_time) -> Any:
        return x + 1, when.tm_zone

    compiled = stator.compile(zone)
    items = time.gmtime(0)
    x = torch.ones(2)
    for name in ("UTC", "ABC", "UTC", "ABC"):
        when = time.struct_time((*items, name, 0))
        assert tuple(when) == tuple(items)
        assert compiled(x, when)[1] == name


def test_versions() -> None:
    def version(x: Tensor) -> Tensor:
        return x + sys.version_info.major * sys.float_info.mant_dig

    compiled = stator.compile(version)
    x = torch.ones(2)
    for _ in range(3):
        assert alike(compiled(x), version(x))
    assert stator.stats(compiled).breaks == 0
