"""Code of a slow backend is kept only if timed calls find it quicker than the replay."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from background.slow import LONG, Slow, no_compiler
from stator import _testing, stats
from stator._fx import comparison

X = torch.arange(6.0).view(2, 3)
LOOK = 18
BETWEEN = 32
"""Calls of a look, and between two of them (`crates/tracer/src/pace.rs`)."""


def scaled(x: Tensor) -> Tensor:
    return (x * 2 + 1).relu().sum()


def slow(**settings: Any) -> tuple[Any, Slow]:
    """A compiled function whose next call has code, and what counts the runs of that."""
    backend = Slow()
    backend.go.set()
    stator.register_backend(backend, name="slow", slow=True)
    return stator.compile(scaled, backend="slow", **settings), backend


def code_serves(compiled: Any, backend: Slow, calls: int, x: Tensor = X) -> int:
    """How many of so many calls the code serves. All of them are right."""
    before = backend.ran
    for call in range(calls):
        given = x + call
        assert torch.equal(compiled(given), scaled(given))
    return backend.ran - before


@pytest.mark.parametrize("when", ["background", "second_call"])
def test_quicker_code_is_kept(when: str) -> None:
    compiled, backend = slow(when=when)
    compiled(X)
    assert stator.wait(timeout=LONG)
    with _testing.graphs(replay=5_000, code=3_000):
        # One run more compares.
        assert code_serves(compiled, backend, LOOK) == LOOK // 2 + (when == "background")
        assert code_serves(compiled, backend, 100) == 100
    assert stats(compiled).tiers == ["compiled"] and stats(compiled).native == 0
    [why] = stats(compiled).why
    assert "measured: the code takes 3.0 µs, the replay 5.0 µs" in why
    assert ("differ from the replay's" in why) == (when == "background")


@pytest.mark.parametrize("nanos", [5_000, 9_000])
@pytest.mark.parametrize("when", ["background", "second_call"])
def test_slower_code_isnt(when: str, nanos: int, caplog: pytest.LogCaptureFixture) -> None:
    compiled, backend = slow(when=when)
    compiled(X)
    assert stator.wait(timeout=LONG)
    with (
        _testing.graphs(replay=5_000, code=nanos),
        caplog.at_level(logging.INFO, "stator.background"),
    ):
        assert code_serves(compiled, backend, LOOK) == LOOK // 2 + (when == "background")
        assert code_serves(compiled, backend, BETWEEN) == 0
        assert stats(compiled).tiers == ["compiled"]
        assert code_serves(compiled, backend, LOOK) == LOOK // 2
        assert code_serves(compiled, backend, 100) == 0
    assert stats(compiled).tiers == ["slower"] and len(backend.asked) == 1
    assert f"the code takes {nanos // 1000}.0 µs, the replay 5.0 µs" in stats(compiled).why[0]
    told = [text for text in caplog.messages if "isn't used any more" in text]
    assert len(told) == 1 and "begins in scaled" in told[0]
    # Another trace is another matter.
    for _ in range(2):
        compiled(torch.ones(1, 1))
    assert stator.wait(timeout=LONG) and len(backend.asked) == 2


def test_a_second_look_may_find_something_else() -> None:
    compiled, backend = slow()
    compiled(X)
    assert stator.wait(timeout=LONG)
    with _testing.graphs(replay=5_000, code=9_000):
        code_serves(compiled, backend, LOOK + BETWEEN)
    with _testing.graphs(replay=5_000, code=2_000):
        code_serves(compiled, backend, LOOK)
        assert code_serves(compiled, backend, 20) == 20
    assert stats(compiled).tiers == ["compiled"]


def test_the_tier_that_is_asked_for_serves() -> None:
    compiled, backend = slow(tier="compiled")
    compiled(X)
    assert stator.wait(timeout=LONG)
    with _testing.graphs(replay=1_000, code=9_000):
        assert code_serves(compiled, backend, 100) == 101
    assert stats(compiled).tiers == ["compiled"] and "measured" not in stats(compiled).why[0]


def test_quick_backends_arent_timed() -> None:
    backend = Slow()
    backend.go.set()
    compiled = stator.compile(scaled, backend=backend)
    compiled(X)
    with _testing.graphs(replay=1_000, code=9_000):
        assert code_serves(compiled, backend, 100) == 100
    assert stats(compiled).tiers == ["compiled"] and stats(compiled).why == [None]


@pytest.mark.parametrize("when", [None, "background"])
def test_nothing_timed_decides_in_deterministic_programs(when: str | None) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        compiled, backend = slow(when=when)
        compiled(X)
        assert stator.wait(timeout=LONG)
        with _testing.graphs(replay=1_000, code=9_000):
            assert code_serves(compiled, backend, 100) == 100 + (when is not None)
        assert "the program wants deterministic algorithms" in stats(compiled).why[0]
    finally:
        torch.use_deterministic_algorithms(False)


def test_gradients_arent_timed() -> None:
    """The code may be slower and its gradients quicker, which no call sees."""
    compiled, backend = slow()
    x = X.clone().requires_grad_()
    compiled(x)
    assert stator.wait(timeout=LONG)
    before = backend.ran
    with _testing.graphs(replay=1_000, code=9_000):
        for _ in range(100):
            compiled(x).backward()
    assert backend.ran - before == 101
    assert "gradients are computed behind the call" in stats(compiled).why[0]
    x.grad = None
    compiled(x).backward()
    expected = X.clone().requires_grad_()
    scaled(expected).backward()
    assert torch.equal(x.grad, expected.grad)


def test_views_of_parameters_are_no_gradients() -> None:
    weight = torch.nn.Parameter(torch.ones(2, 3))
    with torch.no_grad():
        assert comparison.untimed([weight], [weight.t(), weight * 2]) is None
    told = comparison.untimed([weight], [weight.t()])
    assert told == "gradients are computed behind the call"


def test_calls_that_raise_arent_timed() -> None:
    table = torch.arange(4.0)

    def looks_up(index: Tensor) -> Tensor:
        return table[index] * 2

    backend = Slow()
    backend.go.set()
    stator.register_backend(backend, name="slow", slow=True)
    compiled = stator.compile(looks_up, backend="slow")
    right, wrong = torch.tensor([1, 2]), torch.tensor([1, 9])
    compiled(right)
    assert stator.wait(timeout=LONG)
    with _testing.graphs(replay=5_000, code=3_000):
        for _ in range(LOOK):
            with pytest.raises(IndexError):
                compiled(wrong)
        for _ in range(LOOK + 1):
            assert torch.equal(compiled(right), looks_up(right))
    assert stats(compiled).tiers == ["compiled"] and "measured" in stats(compiled).why[0]


def test_writes_and_draws_happen_once_while_it_is_timed() -> None:
    def both(x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x.add_(1), 0.5)

    backend = Slow()
    backend.go.set()
    stator.register_backend(backend, name="slow", slow=True)
    compiled = stator.compile(both, backend="slow")
    found, plain = X.clone(), X.clone()
    torch.manual_seed(0)
    results = [compiled(found)]
    assert stator.wait(timeout=LONG)
    with _testing.graphs(replay=5_000, code=9_000):
        results += [compiled(found) for _ in range(2 * LOOK + BETWEEN + 2)]
    torch.manual_seed(0)
    assert all(torch.equal(result, both(plain)) for result in results)
    assert torch.equal(found, plain) and stats(compiled).tiers == ["slower"]


def test_why_a_graph_is_replayed() -> None:
    backend = Slow(no_compiler)
    backend.go.set()
    compiled = stator.compile(scaled, backend=backend, when="background")
    compiled(X)
    assert stator.wait(timeout=LONG)
    with pytest.warns(stator.BackendFailedWarning):
        compiled(X)
    assert stats(compiled).why == ["RuntimeError: no compiler here"]
    assert stats(compiled).tiers == ["failed"]
    compiled = stator.compile(scaled)
    compiled(X)
    assert (stats(compiled).tiers, stats(compiled).why) == (["replay"], [None])
