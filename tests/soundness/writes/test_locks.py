"""Locks: held by replays while they read and write, given back whatever happens, never waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

from ..objects import X

LOCK, SECOND, AGAIN = threading.Lock(), threading.Lock(), threading.RLock()
LOCKS: list[Any] = [LOCK, SECOND]


class Counter:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.seen: list[bool] = []


def is_free(lock: Any) -> bool:
    """Asked by another thread, to whom an RLock says more."""
    found: list[bool] = []

    def ask() -> None:
        found.append(lock.acquire(False))
        if found[0]:
            lock.release()

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found[0]


def locked(x: Tensor) -> Tensor:
    with LOCK:
        return x + 1


def again(x: Tensor) -> Tensor:
    with AGAIN:
        x = x + 1
        with AGAIN:
            return x * 2


def two(x: Tensor) -> Tensor:
    with LOCK, SECOND:
        x = x + 1
    with SECOND:
        return x * 2


def explicit(x: Tensor) -> Tensor:
    LOCK.acquire()
    try:
        return x * 3
    finally:
        LOCK.release()


def returned(x: Tensor) -> Any:
    taken = LOCK.acquire(True)
    x = x - 1
    LOCK.release()
    return x, taken


def in_turns(x: Tensor) -> Tensor:
    for _ in range(3):
        with LOCK:
            x = x + 1
        with SECOND:
            x = x * 2
    return x


CONDITION = threading.Condition()


def with_condition(x: Tensor) -> Tensor:
    with CONDITION:
        return x + 5


SEMAPHORE = threading.Semaphore(2)


def with_semaphore(x: Tensor) -> Tensor:
    with SEMAPHORE:
        return x + 6


def tried(x: Tensor) -> Any:
    with LOCK, AGAIN:
        first, second = LOCK.acquire(False), AGAIN.acquire(blocking=False)
        AGAIN.release()
        third = AGAIN.acquire(False)
        AGAIN.release()
    return x, first, second, third


WHOLE = [locked, again, two, explicit, returned, in_turns, with_condition, with_semaphore]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, tuple):
        return all(map(same, left, right))
    return torch.equal(left, right) if isinstance(left, Tensor) else left == right


@pytest.mark.parametrize("fn", WHOLE, ids=lambda fn: fn.__name__)
def test_locks_are_part_of_the_graph(fn: Callable[..., Any]) -> None:
    compiled = api.compile(fn, fullgraph=True)
    for _ in range(4):
        assert same(compiled(X), fn(X))
        assert all(is_free(lock) for lock in (*LOCKS, AGAIN))
    if not api.PLAIN:
        assert api.hits(compiled) == 3


@pytest.mark.parametrize("fn", [locked, two, again], ids=lambda fn: fn.__name__)
def test_a_call_waits_for_another_thread(fn: Callable[..., Any]) -> None:
    compiled = api.compile(fn)
    for _ in range(3):
        compiled(X)
    lock: Any = {"locked": LOCK, "two": SECOND, "again": AGAIN}[fn.__name__]
    for first in (False, True):
        if first:
            compiled = api.compile(fn)
        done = threading.Event()
        holds, goes = threading.Event(), threading.Event()

        def hold(holds: Any = holds, goes: Any = goes) -> None:
            with lock:
                holds.set()
                goes.wait()

        def call(done: Any = done, compiled: Any = compiled) -> None:
            assert same(compiled(X), fn(X))
            done.set()

        threads = [threading.Thread(target=hold), threading.Thread(target=call)]
        threads[0].start()
        holds.wait()
        threads[1].start()
        assert not done.wait(0.1), "it didn't wait"
        goes.set()
        for thread in threads:
            thread.join()
        assert done.is_set() and is_free(lock)


def test_no_update_is_lost() -> None:
    counter = Counter()

    def fn(x: Tensor, counter: Counter) -> Tensor:
        with counter.lock:
            counter.count += 1
        return x + 1

    compiled = api.compile(fn)
    for _ in range(4):
        compiled(X, counter)
    counter.count = 0

    def work(call: Callable[..., Any]) -> None:
        for _ in range(150):
            assert torch.equal(call(X, counter), X + 1)

    threads = [threading.Thread(target=work, args=(call,)) for call in (compiled, fn, compiled)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.count == 450 and is_free(counter.lock)


def test_what_is_written_is_written_under_the_lock() -> None:
    counter = Counter()

    def fn(x: Tensor, counter: Counter) -> Tensor:
        with counter.lock:
            counter.seen.append(x.shape[0] == 3)
            y = x + len(counter.seen)
        return y

    other = Counter()
    compiled = api.compile(fn, fullgraph=True)
    for _ in range(4):
        assert torch.equal(compiled(X, counter), fn(X, other))
        assert counter.seen == other.seen and is_free(counter.lock)


def raising(x: Tensor, index: Tensor) -> Tensor:
    with LOCK:
        return x[index] + 1


def handled(x: Tensor, index: Tensor) -> Tensor:
    try:
        with LOCK:
            x = x + 1
            return x[index]
    except IndexError:
        return x - int(LOCK.acquire(False) and not LOCK.release())


def written(x: Tensor, index: Tensor) -> Tensor:
    with AGAIN:
        x.add_(1)
        return x[index] + 1


def refused(x: Tensor, index: Tensor) -> Tensor:
    with LOCK:
        if index.shape[0] > 1:
            raise ValueError("too many")
        return x + 1


def swallowed(x: Tensor, index: Tensor) -> Tensor:
    try:
        with LOCK:
            if index.shape[0] > 1:
                raise ValueError("too many")
            return x + 1
    except ValueError:
        return x - 1


ERRORS = [raising, handled, written, refused, swallowed]


@pytest.mark.parametrize("fn", ERRORS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("first", ["fine", "raises"])
def test_errors_give_the_lock_back(fn: Callable[..., Any], first: str) -> None:
    indices = [torch.tensor([0]), torch.tensor([99]), torch.tensor([0, 1]), torch.tensor([0, 98])]
    if first == "raises":
        indices.reverse()
    compiled = api.compile(fn)
    for index in indices * 4:
        shown = []
        for call in (fn, compiled):
            x = X.clone()
            try:
                shown.append((call(x, index), x))
            except (IndexError, ValueError) as error:
                shown.append((str(error), x))
            assert is_free(LOCK) and is_free(AGAIN)
        assert same(*shown), index


def broken(x: Tensor) -> Any:
    with LOCK:
        x = x + 1
        stator.graph_break()
        free = LOCK.acquire(False)
        x = x * 2
    return x, free, LOCK.locked()


def taken_and_kept(x: Tensor) -> Tensor:
    LOCK.acquire()
    return x + 1


def given_back(x: Tensor) -> Tensor:
    x = x + 1
    LOCK.release()
    return x


def for_some_time(x: Tensor) -> Any:
    if not LOCK.acquire(timeout=1):
        return x
    LOCK.release()
    return x + 1


def without_waiting(x: Tensor) -> Any:
    free = LOCK.acquire(False)
    if free:
        LOCK.release()
    return x + 1, free


def made_inside(x: Tensor) -> Tensor:
    with threading.Lock():
        return x + 1


@pytest.mark.parametrize(
    "fn",
    [broken, tried, for_some_time, without_waiting, made_inside],
    ids=lambda fn: fn.__name__,
)
def test_what_breaks(fn: Callable[..., Any]) -> None:
    compiled = api.compile(fn)
    for _ in range(5):
        assert same(compiled(X), fn(X))
        assert is_free(LOCK)


def test_locks_that_stay() -> None:
    take, give = api.compile(taken_and_kept), api.compile(given_back)
    for _ in range(5):
        assert torch.equal(take(X), X + 1) and LOCK.locked()
        assert torch.equal(give(X), X + 1) and not LOCK.locked()


def test_a_lock_that_is_another_at_another_call() -> None:
    def fn(x: Tensor, first: Any, second: Any) -> Tensor:
        with first:
            x = x + 1
        with second:
            return x * 2

    compiled = api.compile(fn)
    locks = [LOCK, SECOND, AGAIN, threading.Condition()]
    for first in locks:
        for second in locks:
            for _ in range(2):
                assert torch.equal(compiled(X, first, second), fn(X, first, second))
    assert all(is_free(lock) for lock in LOCKS)


@pytest.mark.skipif(api.PLAIN, reason="asks for a node of the graph")
def test_code_of_the_users_own_that_takes_the_lock() -> None:
    @stator.allow_in_graph
    def takes(x: Tensor) -> Tensor:
        with LOCK:
            return x + 1

    def before(x: Tensor) -> Tensor:
        x = takes(x)
        with LOCK:
            return x * 2

    def behind(x: Tensor) -> Tensor:
        with LOCK:
            x = x * 2
        return takes(x)

    for fn in (before, behind):
        compiled = api.compile(fn)
        for _ in range(4):
            assert torch.equal(compiled(X), fn(X))
            assert is_free(LOCK)
