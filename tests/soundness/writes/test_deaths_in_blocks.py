"""Objects that die as a block or a generator ends behind a graph break: as early as in plain Python, and in its order."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

Log = list[Any]


class Told:
    """Says when it dies."""

    def __init__(self, log: Log, name: str) -> None:
        self.log, self.name = log, name

    def __del__(self) -> None:
        self.log.append(f"{self.name} dead")


class Manager:
    """Swallows a `ValueError`."""

    def __init__(self, log: Log) -> None:
        self.log, self.told = log, Told(log, "manager's")

    def __enter__(self) -> Manager:
        return self

    def __exit__(self, kind: Any, *rest: Any) -> bool:
        self.log.append(f"left by {kind}")
        return kind is ValueError


class Owner:
    depth = 0
    held: Any = None


@stator.disable
def cut(log: Log) -> None:
    log.append("break")


@contextlib.contextmanager
def block(log: Log, name: str = "block") -> Iterator[Told]:
    told = Told(log, name)
    try:
        yield told
    finally:
        log.append(f"{name} left")


@contextlib.contextmanager
def swallowing(log: Log) -> Iterator[None]:
    told = Told(log, "swallowing")
    try:
        yield
    except ValueError as error:
        log.append(f"swallowed {error}")
    log.append(told.name)


def count(log: Log) -> Iterator[int]:
    told = Told(log, "count")  # noqa: F841 - it dies with the generator
    try:
        yield from range(4)
    finally:
        log.append("count left")


def left(x: Tensor, log: Log) -> Tensor:
    with block(log):
        x = x * 2
        cut(log)
        x = x + 1
    log.append("behind")
    return x * 2


def left_by_an_exception(x: Tensor, log: Log) -> Tensor:
    try:
        with block(log):
            cut(log)
            x = x + 1
            raise KeyError("k")
    except KeyError as error:
        log.append(str(error))
    log.append("behind")
    return x * 2


def raising(x: Tensor, log: Log) -> Tensor:
    with block(log, "inner"):
        cut(log)
        x = x + 1
        raise KeyError("inner")


def left_by_an_inner_function(x: Tensor, log: Log) -> Tensor:
    try:
        raising(x, log)
    except KeyError:
        log.append("handler")
        cut(log)
        x = x + 1
    return x * 3


def left_by_two_exceptions(x: Tensor, log: Log) -> Tensor:
    try:
        with block(log, "outer"), block(log, "inner"):
            cut(log)
            x = x / 2
            raise KeyError("k")
    except KeyError as error:
        log.append(str(error))
        cut(log)
        x = x + 2
    cut(log)
    return x


def swallowed(x: Tensor, log: Log) -> Tensor:
    with swallowing(log):
        cut(log)
        x = x * 2
        raise ValueError("v")
    log.append("behind")
    return x


def swallowed_by_an_instance(x: Tensor, log: Log) -> Tensor:
    with Manager(log):
        cut(log)
        x = x * 2
        raise ValueError("v")
    log.append("behind")
    return x


def referred_to(x: Tensor, log: Log) -> Tensor:
    manager: Any = block(log)
    reference = weakref.ref(manager)
    with manager:
        cut(log)
        x = x + 1
    del manager
    log.append(reference() is None)
    return x


def returned_from(x: Tensor, log: Log) -> Tensor:
    try:
        with block(log):
            cut(log)
            return x + 1
    finally:
        log.append("finally")


def repeated(x: Tensor, log: Log) -> Tensor:
    for name in "ab":
        with block(log, name) as told, block(log, f"{name} inner"):
            cut(log)
            x = x + len(told.name)
        log.append("next")
    return x


def stacked(x: Tensor, log: Log) -> Tensor:
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, "called")
        stack.enter_context(block(log))
        stack.push(Manager(log))
        cut(log)
        x = x + 1
        raise ValueError
    log.append("behind")
    return x


def method_called_by_hand(x: Tensor, log: Log) -> Tensor:
    leave: Any = Manager(log).__exit__
    cut(log)
    x = x + 1
    leave(None, None, None)
    log.append("left")
    leave = None
    log.append("behind")
    return x


def loop_that_is_left(x: Tensor, log: Log) -> Tensor:
    """The variable that holds what says when it dies is dead before."""
    for n in count(log):
        x = x + n
        cut(log)
        if n == 1:
            break
    log.append("behind")
    return x * 2


def generator_that_is_dropped(x: Tensor, log: Log) -> Tensor:
    numbers: Any = count(log)
    next(numbers)
    cut(log)
    x = x + next(numbers)
    numbers = None
    log.append("behind")
    return x


def generator_that_is_closed(x: Tensor, log: Log) -> Tensor:
    numbers = count(log)
    next(numbers)
    cut(log)
    x = x + next(numbers)
    numbers.close()  # type: ignore[attr-defined]
    log.append("behind")
    return x


OWNER = Owner()


def written_before_and_behind(x: Tensor, log: Log) -> Tensor:
    """What a write replaces dies behind those that came first."""
    OWNER.held = Told(log, "held")
    cut(log)
    OWNER.held = OWNER.held
    OWNER.depth = OWNER.depth + 1
    log.append(OWNER.depth)
    OWNER.held = None
    log.append("behind")
    OWNER.depth = 0
    return x + 1


CASES: list[Callable[[Tensor, Log], Tensor]] = [
    left,
    left_by_an_exception,
    left_by_an_inner_function,
    left_by_two_exceptions,
    swallowed,
    swallowed_by_an_instance,
    referred_to,
    returned_from,
    repeated,
    stacked,
    method_called_by_hand,
    loop_that_is_left,
    generator_that_is_dropped,
    generator_that_is_closed,
    written_before_and_behind,
]


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("fn", CASES)
def test_it_dies_in_plain_order(fn: Callable[[Tensor, Log], Tensor], skips: bool) -> None:
    def run(called: Callable[[Tensor, Log], Tensor], value: float) -> tuple[Log, list[float]]:
        log: Log = []
        result = called(torch.full((3,), value), log)
        log.append("returned")
        return log, result.tolist()

    def left_to_collector(log: Log) -> Log:
        """From CPython 3.12 on `contextlib` ties the exception that it swallows to itself."""
        return log if "swallowing dead" in log else [*log, "swallowing dead"]

    compiled = stator.compile(fn)
    is_left = fn is swallowed and sys.version_info >= (3, 12)
    with stator.config.patch(skip_unprofitable=skips):
        for call in range(7):
            (log, result), expected = run(compiled, call), run(fn, call)
            if is_left:
                assert sorted(left_to_collector(log)) == sorted(left_to_collector(expected[0]))
            assert (expected[0] if is_left else log, result) == expected, call


def passed_through(x: Tensor, log: Log) -> Tensor:
    """Its block ends without a break of its own: what the generator held is noticed by nobody."""
    with quiet():
        cut(log)
        x = x + 1
    return x * 2


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    yield


def test_a_tool_that_refers_to_code_ends_no_trace() -> None:
    """TorchDynamo keeps tables of code objects, by weak references."""

    def breaks() -> int:
        compiled = stator.compile(passed_through)
        log: Log = []
        with stator.config.patch(skip_unprofitable=False):
            for call in range(4):
                assert torch.equal(
                    compiled(torch.full((3,), call), log), torch.full((3,), 2 * call + 2)
                )
        assert log == ["break"] * 4
        return stator.stats(compiled).breaks

    before = breaks()
    stator.reset()
    codes = weakref.WeakKeyDictionary({quiet.__wrapped__.__code__: 1})  # type: ignore[attr-defined]
    assert breaks() == before
    assert len(codes) == 1
