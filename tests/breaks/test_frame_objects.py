"""Frames that are made again, where somebody has their objects: tracebacks of handled exceptions, `sys._getframe`."""

from __future__ import annotations

import gc
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor

import stator


@pytest.fixture(autouse=True)
def replays_without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        with stator.config.patch(skip_unprofitable=False):
            yield
    finally:
        gc.enable()


class Thing:
    """Can be referred to weakly."""


def same_as_plain(fn: Callable[..., Any], *inputs: tuple[Any, ...]) -> None:
    """Each of the inputs three times in a row, as plain Python does it."""
    compiled = stator.compile(fn)
    for args in inputs:
        for call in range(3):
            assert repr(compiled(*args)) == repr(fn(*args)), (args, call)
    assert stator.stats(compiled).hits


def handles(x: Tensor, thing: Thing, fails: bool) -> Tensor:
    try:
        print(end="")
        if fails:
            raise ValueError(thing)
    except ValueError as error:
        print(end="")
        x = x + len(error.args)
    return x * 2


def handles_at_length(x: Tensor, thing: Thing, fails: bool) -> Tensor:
    try:
        print(end="")
        if fails:
            raise ValueError(thing)
    except ValueError as error:
        print(end="")
        x = x + len(error.args)
        print(end="")
    return x * 2


@pytest.mark.parametrize("fn", [handles, handles_at_length])
def test_what_a_handled_exception_refers_to_dies_with_the_call(fn: Callable[..., Tensor]) -> None:
    seen: weakref.WeakSet[Thing] = weakref.WeakSet()

    def thing() -> Thing:
        thing = Thing()
        seen.add(thing)
        return thing

    compiled = stator.compile(fn)
    for fails in (True, True, True, False, False, True):
        x = torch.ones(2)
        assert compiled(x, thing(), fails).equal(fn(x, thing(), fails))
        assert not len(seen), fails


def test_a_kept_exception_shows_its_frame() -> None:
    def fn(x: Tensor, kept: list[Any], n: int) -> Tensor:
        try:
            print(end="")
            raise ValueError(n)
        except ValueError as error:
            print(end="")
            kept.append(error)
            x = x + n
        return x

    compiled = stator.compile(fn)
    for n in (1, 1, 1, 2, 2):
        shown = []
        for each in (compiled, fn):
            kept: list[Any] = []
            each(torch.ones(2), kept, n)
            frame = kept[0].__traceback__.tb_frame
            variables = set(frame.f_locals) - {"x"}
            shown.append((frame.f_code.co_name, variables, frame.f_locals["n"], kept[0].args))
            frame.clear()
        assert shown[0] == shown[1]


def current() -> FrameType | None:
    return sys._getframe(1)


def frames(x: Tensor, n: int) -> Any:
    first = inspect.currentframe()
    print(end="")
    second = current()
    assert first is not None
    assert second is not None
    names = sorted(first.f_locals)
    x = x + n
    print(end="")
    return names, first is second, first is sys._getframe(), x, first.f_lineno - second.f_lineno


def test_a_frame_stays_the_same_behind_breaks_in_what_it_calls() -> None:
    same_as_plain(frames, (torch.ones(2), 1), (torch.ones(2), 2))


def test_so_does_the_frame_of_a_caller() -> None:
    def fn(x: Tensor, n: int) -> Any:
        own = current()
        found = frames(x, n)
        print(end="")
        assert own is not None
        return found, sorted(own.f_locals), own is sys._getframe()

    same_as_plain(fn, (torch.ones(2), 1), (torch.ones(3), 1))
