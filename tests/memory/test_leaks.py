"""Trace and reset a thousand times: nothing stays behind."""

from __future__ import annotations

import gc
import os
import sys
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn

CYCLES = 1000
WARM = 200
ALLOWED_BYTES = 64 * 1024
"""Growth of Python's memory over 800 cycles: a leak of one small object per cycle exceeds it."""
ALLOWED_RESIDENT = 12 * 1024 * 1024
X = torch.ones(4)


class Config:
    """Read by the function below."""

    def __init__(self) -> None:
        self.scale = 2
        self.items = [1, 2, 3]
        self.table = {"a": torch.ones(4)}


def reads_much(x: Tensor, config: Config) -> dict[str, Any]:
    total = x * config.scale
    for i, item in enumerate(config.items):
        total = total + item * i
    parts = [total * k for k in range(3)]
    return {"total": total + config.table["a"], "parts": parts, "text": f"{x.shape}"}


def fails(x: Tensor, config: Config) -> Tensor:
    y = x * config.scale
    return y.view(17)


def native(x: Tensor, config: Config) -> Tensor:
    return x * x.sum().item() + config.scale


def writes(x: Tensor, config: Config) -> Tensor:
    config.scale += 1
    config.items.append(config.scale)
    config.table["b"] = x * 2
    return x + len(config.items)


def generates(x: Tensor, config: Config) -> list[Tensor]:
    def steps() -> Any:
        for item in config.items:
            yield x * item

    with torch.no_grad():
        return [step + 1 for step in steps()]


FUNCTIONS = [reads_much, fails, native, writes, generates]


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _cycle(fn: Callable[..., Any]) -> None:
    compiled = api.compile(fn)
    config = Config()
    for _ in range(2):
        try:
            compiled(X, config)
        except RuntimeError:
            pass
    api.reset()


@pytest.fixture(autouse=True)
def _small_heap() -> Iterator[None]:
    """Collections skip what was imported, which makes them a hundred times faster."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_python_memory_over_cycles(fn: Callable[..., Any]) -> None:
    for _ in range(WARM):
        _cycle(fn)
    gc.collect()
    tracemalloc.start()
    try:
        _cycle(fn)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        objects = len(gc.get_objects())
        resident = _resident()
        for _ in range(CYCLES - WARM):
            _cycle(fn)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        top = tracemalloc.take_snapshot().statistics("lineno")[:5]
    finally:
        tracemalloc.stop()
    assert len(gc.get_objects()) - objects < 200
    assert after - before < ALLOWED_BYTES, "\n".join(map(str, top))
    assert _resident() - resident < ALLOWED_RESIDENT


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_objects_die_in_every_cycle(fn: Callable[..., Any]) -> None:
    """What a function read, received and returned dies with its last user."""
    for _ in range(20):
        compiled = api.compile(fn)
        config, x = Config(), torch.ones(4)
        watched = [weakref.ref(item) for item in (config, x, config.table["a"])]
        for _ in range(3):
            try:
                compiled(x, config)
            except RuntimeError:
                pass
        del config, x
        gc.collect()
        assert [ref() for ref in watched] == [None] * len(watched)


def test_compiled_functions_die() -> None:
    def build() -> tuple[Any, Any]:
        big = Config()

        def fn(x: Tensor) -> Tensor:
            return x * big.scale

        return api.compile(fn), weakref.ref(fn)

    for _ in range(20):
        compiled, watched = build()
        compiled(X)
        compiled(X)
        del compiled
        gc.collect()
        assert watched() is None


def test_modules_die_without_collector() -> None:
    """No cycle is added around the user's module."""
    compiled = api.compile(lambda net, x: net(x))
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            net = nn.Linear(4, 4)
            compiled(net, X)
            compiled(net, X)
            watched = weakref.ref(net)
            del net
            assert watched() is None
    finally:
        gc.enable()


def test_reference_counts_of_what_is_read() -> None:
    """The counts of long-lived objects don't drift."""
    config = Config()
    code = reads_much.__code__
    held = [config, config.__dict__, config.items, config.table, X, reads_much, code, Config, None]
    compiled = api.compile(reads_much)
    for _ in range(20):
        compiled(X, config)
    before = [sys.getrefcount(item) for item in held]
    for _ in range(2000):
        compiled(X, config)
    after = [sys.getrefcount(item) for item in held]
    drift = [b - a for a, b in zip(before, after, strict=True)]
    assert all(abs(d) < 20 for d in drift), drift


def test_reference_counts_over_recordings() -> None:
    config = Config()
    held = [config, config.__dict__, config.items, config.table, X, reads_much, Config, int, None]
    for _ in range(20):
        _record(config)
    gc.collect()
    before = [sys.getrefcount(item) for item in held]
    for _ in range(500):
        _record(config)
    gc.collect()
    after = [sys.getrefcount(item) for item in held]
    drift = [b - a for a, b in zip(before, after, strict=True)]
    assert all(abs(d) < 20 for d in drift), drift


def _record(config: Config) -> None:
    compiled = api.compile(reads_much)
    compiled(X, config)
    api.reset()


def test_replays_allocate_nothing_that_stays() -> None:
    config = Config()
    compiled = api.compile(reads_much)
    for _ in range(100):
        compiled(X, config)
    gc.collect()
    tracemalloc.start()
    try:
        compiled(X, config)
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(5000):
            compiled(X, config)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < ALLOWED_BYTES


def test_retraces_are_bounded() -> None:
    """Snapshots of lost arguments are dropped: a fresh dict per call doesn't pile up."""
    compiled = api.compile(lambda x, d: x * d["k"])
    for _ in range(200):
        compiled(X, {"k": 2})
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        resident = _resident()
        for _ in range(3000):
            compiled(X, {"k": 2})
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < ALLOWED_BYTES
    assert _resident() - resident < ALLOWED_RESIDENT
