"""Backends that fail: the program goes on, on the replay, with one warning; and names of what isn't there."""

from __future__ import annotations

import signal
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator import stats
from stator.errors import BackendError, ConfigError, OptionError

X = torch.arange(6.0).view(2, 3)


def scaled(x: Tensor) -> Tensor:
    y = x * 2
    return (y + 1).relu().sum()


def no_compiler(graph: Any, inputs: Any) -> Any:
    raise RuntimeError("no compiler here")


@pytest.fixture(autouse=True)
def as_users_run_it() -> Any:
    with stator.config.patch(strict=False, skip_unprofitable=False):
        yield


def test_the_replay_serves() -> None:
    compiled = stator.compile(scaled, backend=no_compiler)
    with pytest.warns(stator.BackendFailedWarning) as given:
        for _ in range(4):
            assert torch.equal(compiled(X), scaled(X))
    assert len(given) == 1
    text = str(given[0].message)
    line = scaled.__code__.co_firstlineno + 1
    assert "no_compiler failed on a graph of 4 operations" in text
    assert f"begins in scaled ({__file__}:{line})" in text
    assert "RuntimeError: no compiler here" in text
    assert (given[0].filename, given[0].lineno) == (__file__, line)
    assert (stats(compiled).traces, stats(compiled).hits, stats(compiled).native) == (1, 3, 0)


def test_each_graph_is_asked_for() -> None:
    asked: list[int] = []

    def odd(graph: Any, inputs: Any) -> Any:
        asked.append(len(graph.graph.nodes))
        if len(asked) == 1:
            raise ValueError("the first")
        return graph

    def broken(x: Tensor) -> Tensor:
        y = x * 2
        stator.graph_break()
        return y + 1

    compiled = stator.compile(broken, backend=odd)
    with pytest.warns(stator.BackendFailedWarning, match="the first"):
        for _ in range(4):
            assert torch.equal(compiled(X), broken(X))
    assert len(asked) == 2


def test_writes_happen_once() -> None:
    def adds(x: Tensor, log: list[int]) -> Tensor:
        x.add_(1)
        log.append(1)
        return x * 2

    compiled = stator.compile(adds, backend=no_compiler)
    x, log = torch.zeros(2), []
    with pytest.warns(stator.BackendFailedWarning):
        for step in range(1, 5):
            assert torch.equal(compiled(x, log), torch.full((2,), 2.0 * step))
    assert x.tolist() == [4.0, 4.0] and log == [1] * 4


def test_what_is_no_callable() -> None:
    compiled = stator.compile(scaled, backend=lambda graph, inputs: None)
    with pytest.warns(stator.BackendFailedWarning, match="returned None"):
        for _ in range(3):
            assert torch.equal(compiled(X), scaled(X))


def test_strict_raises() -> None:
    compiled = stator.compile(scaled, backend=no_compiler)
    with stator.config.patch(strict=True):
        compiled(X)
        with pytest.raises(RuntimeError, match="no compiler here"):
            compiled(X)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_what_is_no_failure_of_the_backend(error: type[BaseException]) -> None:
    def interrupted(graph: Any, inputs: Any) -> Any:
        raise error

    compiled = stator.compile(scaled, backend=interrupted)
    compiled(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(error):
            compiled(X)


class Expired(Exception):
    pass


def test_a_signal_handler_raises() -> None:
    def expire(number: int, frame: Any) -> None:
        raise Expired

    def slow(graph: Any, inputs: Any) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return graph

    before = signal.signal(signal.SIGUSR1, expire)
    try:
        compiled = stator.compile(scaled, backend=slow)
        compiled(X)
        with pytest.raises(Expired):
            compiled(X)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("backend", stator.list_backends())
def test_each_name_works_or_says_what_is_missing(backend: str) -> None:
    if backend == "inductor" or "minifier" in backend:
        pytest.skip("compiles for long, or writes files")
    try:
        compiled = stator.compile(scaled, backend=backend)
    except BackendError as error:
        assert "needs the package" in str(error) or "missing a required argument" in str(error)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error", stator.StatorWarning)
        for _ in range(3):
            assert torch.equal(compiled(X), scaled(X))


def test_inductor_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BackendError, match=r"needs a C\+\+ compiler"):
        stator.compile(scaled, backend="inductor")


def test_what_a_backend_does_not_take() -> None:
    with pytest.raises(BackendError, match="no_compiler can't be given .*, mode: .*'mode'"):
        stator.compile(scaled, backend=no_compiler, mode="reduce-overhead")
    with pytest.raises(BackendError, match="missing a required argument: 'more'"):
        stator.compile(scaled, backend=lambda graph, inputs, more: graph)


def test_unknown_options() -> None:
    with pytest.raises(OptionError, match="Did you mean 'max_autotune'"):
        stator.compile(scaled, backend="inductor", options={"max-autotun": True})
    with pytest.raises(OptionError, match="No known name is like it"):
        stator.compile(scaled, backend="inductor", options={"zzzzzz": True})


@pytest.mark.parametrize(
    ("name", "instead"), [("cache_size_limit", "recompile_limit"), ("suppress_errors", "strict")]
)
def test_names_of_another_compiler(name: str, instead: str) -> None:
    with pytest.raises(ConfigError, match=f"is {instead}"):
        setattr(stator.config, name, 1)
