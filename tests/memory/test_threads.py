"""Threads call, record, reset and fail at once."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn

import stator

THREADS = 8
CALLS = 200
SCALE = 2


def in_threads(work: Callable[[int], Any], threads: int = THREADS) -> list[Any]:
    """`work(index)` in each thread, started together; exceptions are raised here."""
    barrier = threading.Barrier(threads)

    def run(index: int) -> Any:
        barrier.wait(timeout=30)
        return work(index)

    with ThreadPoolExecutor(threads) as pool:
        return [
            future.result(timeout=120) for future in [pool.submit(run, i) for i in range(threads)]
        ]


def helper(x: Tensor, k: int) -> Tensor:
    return x * k + SCALE


def fn(x: Tensor, k: int) -> Tensor:
    total = x
    for i in range(k):
        total = helper(total, i + 1).sin()
    return total


@pytest.fixture(autouse=True)
def _fresh() -> None:
    api.reset()


def test_first_calls_race() -> None:
    for _ in range(20):
        compiled = api.compile(fn)
        x = torch.ones(3)
        expected = fn(x, 3)
        assert all(torch.equal(found, expected) for found in in_threads(lambda i: compiled(x, 3)))


def test_first_calls_that_race_make_one_entry() -> None:
    """A thread that missed before another one recorded finds what that one recorded."""
    if api.PLAIN:
        pytest.skip("it asks for statistics")
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100):
            compiled = api.compile(fn)
            x = torch.ones(3)
            in_threads(lambda i, compiled=compiled, x=x: [compiled(x, 3) for _ in range(3)])
            assert api.traces(compiled) == 1
    finally:
        sys.setswitchinterval(before)


def test_many_calls_with_different_arguments() -> None:
    compiled = api.compile(fn)

    def work(index: int) -> bool:
        for step in range(CALLS):
            x = torch.full((3,), float(index + step))
            k = (index + step) % 4
            if not torch.equal(compiled(x, k), fn(x, k)):
                return False
        return True

    assert all(in_threads(work))


def test_one_module_from_many_threads() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    compiled = api.compile(net)

    def work(index: int) -> bool:
        generator = torch.Generator().manual_seed(index)
        with torch.no_grad():
            for _ in range(CALLS):
                x = torch.randn(2, 4, generator=generator)
                if not torch.equal(compiled(x), net(x)):
                    return False
        return True

    assert all(in_threads(work))


def test_modes_are_per_thread() -> None:
    """Grad mode differs between threads; an entry of one must not answer the other."""
    compiled = api.compile(fn)
    w = torch.ones(3, requires_grad=True)

    def work(index: int) -> bool:
        with torch.set_grad_enabled(index % 2 == 0):
            return all(compiled(w, 2).requires_grad == (index % 2 == 0) for _ in range(CALLS))

    assert all(in_threads(work))


def test_recording_beside_plain_threads() -> None:
    """While one thread records, others run the same functions natively and stay right."""
    stop = threading.Event()
    wrong: list[str] = []
    x = torch.ones(3)
    expected = fn(x, 3)

    def plain() -> None:
        while not stop.is_set():
            if not torch.equal(fn(x, 3), expected):
                wrong.append("plain")

    workers = [threading.Thread(target=plain) for _ in range(3)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(200):
            if not torch.equal(api.compile(fn)(x, 3), expected):
                wrong.append("recorded")
    finally:
        stop.set()
        for worker in workers:
            worker.join(timeout=30)
    assert not wrong


def test_is_compiling_is_per_thread() -> None:
    """Model code in other threads isn't told that it is being compiled."""
    seen: list[bool] = []
    recording, done = threading.Event(), threading.Event()

    def slow(x: Tensor) -> Tensor:
        recording.set()
        done.wait(timeout=5)
        return x + 1

    def other() -> None:
        recording.wait(timeout=5)
        seen.append(torch.compiler.is_compiling())
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    api.compile(slow, is_compiling=True)(torch.ones(2))
    thread.join(timeout=30)
    assert seen == [False]


def test_exceptions_in_threads() -> None:
    def fails(x: Tensor, k: int) -> Tensor:
        y = x * 2
        if k % 3 == 0:
            raise ValueError(k)
        return y + k

    compiled = api.compile(fails)

    def work(index: int) -> bool:
        x = torch.ones(3)
        for step in range(CALLS):
            k = (index + step) % 6
            try:
                found = compiled(x, k)
            except ValueError as error:
                if k % 3 or error.args != (k,):
                    return False
            else:
                if k % 3 == 0 or not torch.equal(found, x * 2 + k):
                    return False
        return True

    assert all(in_threads(work))


def test_reset_while_others_call() -> None:
    compiled = api.compile(fn)
    x = torch.ones(3)
    expected = fn(x, 2)

    def work(index: int) -> bool:
        for step in range(CALLS):
            if index == 0 and step % 5 == 0:
                api.reset()
            if not torch.equal(compiled(x, 2), expected):
                return False
        return True

    assert all(in_threads(work))


def test_guarded_value_changes_while_others_call() -> None:
    """Each result is right for one of the values; after the writer stopped, for the last one."""

    class Config:
        k = 1

    config = Config()
    compiled = api.compile(lambda x: x * config.k)
    x = torch.ones(3)
    known = {1.0, 2.0, 3.0}

    def work(index: int) -> bool:
        for step in range(CALLS):
            if index == 0:
                config.k = step % 3 + 1
            if float(compiled(x)[0]) not in known:
                return False
        return True

    assert all(in_threads(work))
    config.k = 3
    assert torch.equal(compiled(x), x * 3)


def test_threads_started_inside_the_function() -> None:
    def fn_with_thread(x: Tensor) -> Tensor:
        out: list[Tensor] = []
        thread = threading.Thread(target=lambda: out.append(x * 3))
        thread.start()
        thread.join()
        return out[0] + 1

    compiled = api.compile(fn_with_thread)
    x = torch.ones(3)
    for _ in range(3):
        assert torch.equal(compiled(x), x * 3 + 1)


def test_each_thread_compiles_its_own() -> None:
    def work(index: int) -> bool:
        x = torch.ones(3)
        for step in range(30):
            own = api.compile(lambda v, k=index + step: v * k)
            if not all(torch.equal(own(x), x * (index + step)) for _ in range(3)):
                return False
        return True

    assert all(in_threads(work))


def test_backward_thread_runs_hooks() -> None:
    """Autograd's threads call Python hooks: they meet no leftover of recording."""

    def with_hook(x: Tensor, w: Tensor) -> Tensor:
        y = x * w
        y.register_hook(lambda g: g * 2)  # type: ignore[no-untyped-call]
        return y.sum()

    compiled = api.compile(with_hook)
    x = torch.ones(3)
    grads = []
    for target in (with_hook, compiled, compiled, compiled):
        w = torch.ones(3, requires_grad=True)
        target(x, w).backward()
        grads.append(w.grad)
    assert all(torch.equal(grads[0], grad) for grad in grads[1:])  # type: ignore[arg-type]


def test_calls_finish_while_another_thread_records_slowly() -> None:
    """No global lock is held while user code runs."""
    entered, leave = threading.Event(), threading.Event()

    def slow(x: Tensor) -> Tensor:
        entered.set()
        leave.wait(timeout=20)
        return x + 1

    quick = api.compile(lambda x: x * 2)
    quick(torch.ones(2))
    thread = threading.Thread(target=lambda: api.compile(slow)(torch.ones(2)))
    thread.start()
    entered.wait(timeout=20)
    begin = time.monotonic()
    for _ in range(10):
        quick(torch.ones(2))
    api.compile(lambda x: x * 3)(torch.ones(2))
    spent = time.monotonic() - begin
    leave.set()
    thread.join(timeout=30)
    assert spent < 10


@pytest.mark.skipif(api.PLAIN, reason="nothing is recorded")
def test_who_ends_a_recording_leaves_that_of_another_thread_alone() -> None:
    """Collections, and the callbacks they call, stay off until the last of two recordings has ended."""
    began, ended = threading.Event(), threading.Event()
    collects = []

    @stator.allow_in_graph
    def ends_first(x: Tensor) -> Tensor:
        began.wait(timeout=30)
        return x + 1

    @stator.allow_in_graph
    def ends_last(x: Tensor) -> Tensor:
        began.set()
        ended.wait(timeout=30)
        collects.append(gc.isenabled())
        return x + 2

    first, last = api.compile(lambda x: ends_first(x)), api.compile(lambda x: ends_last(x))
    x = torch.ones(3)

    def run() -> None:
        assert torch.equal(first(x), x + 1)
        ended.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert torch.equal(last(x), x + 2)
    thread.join()
    assert collects == [False]
    assert gc.isenabled()
