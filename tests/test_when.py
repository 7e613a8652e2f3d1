"""`stator.compile(when=...)`: the call at which a backend is asked for a graph's code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator import stats
from stator.errors import OptionError

X = torch.arange(6.0).view(2, 3)


class Backend:
    """Counts what it is asked for, and what of its code runs."""

    def __init__(self) -> None:
        self.asked: list[list[Any]] = []
        self.ran = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.asked.append(list(inputs))

        def run(*args: Any) -> Any:
            self.ran += 1
            return graph(*args)

        return run


def scaled(x: Tensor) -> Tensor:
    return (x * 2 + 1).relu().sum()


@pytest.mark.parametrize(
    ("when", "at"),
    [("first_call", 1), ("second_call", 2), ("call:1", 1), ("call:2", 2), ("call:5", 5)],
)
def test_the_call(when: str, at: int) -> None:
    backend = Backend()
    compiled = stator.compile(scaled, backend=backend, when=when)
    for call in range(1, 9):
        assert torch.equal(compiled(X), scaled(X))
        assert len(backend.asked) == (call >= at)
        assert backend.ran == max(0, call - max(at, 2) + 1)
    assert (stats(compiled).traces, stats(compiled).hits, stats(compiled).native) == (1, 7, 0)


def test_each_entry_counts_by_itself() -> None:
    backend = Backend()
    compiled = stator.compile(scaled, backend=backend, when="call:3", dynamic=False)
    for x, asked in [(X, 0), (X[:1], 0), (X, 0), (X[:1], 0), (X, 1), (X, 1), (X[:1], 2)]:
        assert torch.equal(compiled(x), scaled(x))
        assert len(backend.asked) == asked


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_change(dynamic: bool | None) -> None:
    backend = Backend()
    compiled = stator.compile(scaled, backend=backend, when="first_call", dynamic=dynamic)
    for size in (3, 4, 5, 6):
        x = torch.arange(float(size))
        assert torch.equal(compiled(x), scaled(x))
    assert len(backend.asked) == stats(compiled).traces


def test_writes_happen_once() -> None:
    def adds(x: Tensor, log: list[int]) -> Tensor:
        x.add_(1)
        log.append(1)
        return x * 2

    backend = Backend()
    compiled = stator.compile(adds, backend=backend, when="first_call")
    x, log = torch.zeros(2), []
    for step in range(1, 5):
        assert torch.equal(compiled(x, log), torch.full((2,), 2.0 * step))
        assert x.tolist() == [step, step] and log == [1] * step
    # The list's length isn't read, so its guards hold behind the first call.
    assert len(backend.asked) == 1


def test_guards_that_do_not_hold_behind_the_call() -> None:
    def counts(x: Tensor, state: dict[str, int]) -> Tensor:
        state["n"] += 1
        return x * state["n"]

    backend = Backend()
    compiled = stator.compile(counts, backend=backend, when="first_call", dynamic=False)
    found, plain = {"n": 0}, {"n": 0}
    for _ in range(4):
        assert torch.equal(compiled(X, found), counts(X, plain))
    assert backend.asked == []


def test_behind_graph_breaks() -> None:
    def broken(x: Tensor) -> Tensor:
        y = x * 2
        stator.graph_break()
        return y + 1

    backend = Backend()
    compiled = stator.compile(broken, backend=backend, when="first_call")
    for asked in (1, 2, 2):
        assert torch.equal(compiled(X), broken(X))
        assert len(backend.asked) == asked


def test_modules() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    backend = Backend()
    compiled = stator.compile(model, backend=backend, when="first_call", fullgraph=True)
    with torch.no_grad():
        expected = model(X)
        for _ in range(3):
            assert torch.equal(compiled(X), expected)
    assert (len(backend.asked), backend.ran) == (1, 2)


def test_a_recorded_call_that_raises() -> None:
    def raises(x: Tensor) -> Tensor:
        raise KeyError(x.shape[0])

    backend = Backend()
    compiled = stator.compile(raises, backend=backend, when="first_call")
    for _ in range(3):
        with pytest.raises(KeyError):
            compiled(X)


def test_a_backend_that_fails() -> None:
    def fails(graph: Any, inputs: Any) -> Callable[..., Any]:
        raise RuntimeError("no compiler here")

    compiled = stator.compile(scaled, backend=fails, when="first_call")
    with stator.config.patch(strict=False), pytest.warns(stator.BackendFailedWarning) as given:
        for _ in range(3):
            assert torch.equal(compiled(X), scaled(X))
    assert len(given) == 1


def test_the_replay_knows_no_calls() -> None:
    compiled = stator.compile(scaled, when="first_call")
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            assert torch.equal(compiled(X), scaled(X))
    assert stats(compiled).hits == 2


@pytest.mark.parametrize("when", ["", "third_call", "call:0", "call:-1", "call:x", "call:", 2])
def test_what_it_takes(when: Any) -> None:
    with pytest.raises(OptionError, match="when"):
        stator.compile(scaled, when=when)
