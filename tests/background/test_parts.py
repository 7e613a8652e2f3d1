"""Graphs in parts, between which data is read or gradients are computed: each part is compiled beside the program."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator
from background.slow import LONG, Slow, no_compiler
from stator import _testing, stats

X = torch.linspace(0.1, 1, 6).view(2, 3)


def halves(x: Tensor, log: list[float]) -> Tensor:
    y = (x * 2).sin() + 1
    log.append(y.sum().item())
    return (y * y).exp() + 2


def loop(x: Tensor) -> Tensor:
    for _ in range(4):
        x = (x * 1.5).cos() + x
        if x.sum() > 40:
            break
    return (x * x).exp() - 1


class Step:
    """A training step, its model made anew for plain Python and for each compiled function."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-2, foreach=False)

    def run(self, x: Tensor) -> float:
        loss = (self.net(x) - 1).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def parameters(self) -> list[Tensor]:
        return [it.detach().clone() for it in self.net.parameters()]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor):
        return torch.equal(left, right)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def test_no_call_waits_and_each_part_is_taken_over() -> None:
    backend = Slow()
    compiled = stator.compile(halves, backend=backend, when="background")
    plain: list[float] = []
    found: list[float] = []
    for call in range(4):
        assert same(compiled(X + call, found), halves(X + call, plain))
    assert plain == found
    assert backend.ran == 0
    assert stats(compiled).tiers in (["waiting"], ["compiling"])
    assert not stator.wait(compiled, timeout=0)

    backend.go.set()
    assert stator.wait(compiled, timeout=LONG)
    assert len(backend.asked) == 2
    for call in range(3):
        assert same(compiled(X - call, found), halves(X - call, plain))
    assert plain == found
    # Each part once to be compared, and once for each call.
    assert backend.ran == 2 * (1 + 3)
    assert stats(compiled).tiers == ["compiled"]
    assert (stats(compiled).traces, stats(compiled).native, stats(compiled).breaks) == (1, 0, 0)


def test_a_training_step() -> None:
    plain, own = Step(), Step()
    backend = Slow()
    compiled = stator.compile(own.run, backend=backend, when="background")
    for call in range(6):
        assert compiled(X + call) == plain.run(X + call)
    backend.go.set()
    for _ in range(2):
        assert stator.wait(compiled, timeout=LONG)
        for call in range(4):
            assert compiled(X - call) == pytest.approx(plain.run(X - call))
    # The first call has made the optimizer's state: that trace serves no other.
    assert "compiled" in stats(compiled).tiers
    assert backend.ran > 0
    for left, right in zip(own.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize("dynamic", [None, False])
def test_other_inputs_have_code_of_their_own(dynamic: bool | None) -> None:
    backend = Slow()
    backend.go.set()
    compiled = stator.compile(loop, backend=backend, when="background", dynamic=dynamic)
    for size in (3, 4, 3, 4, 5, 6):
        for _ in range(4):
            x = torch.linspace(0, 1, size)
            assert same(compiled(x), loop(x))
            assert stator.wait(compiled, timeout=LONG)
    assert backend.ran > 0


def warnings_of(compiled: Any, kind: type[Warning]) -> int:
    """How many warnings some calls give that find what was compiled meanwhile. All calls are right."""
    plain: list[float] = []
    found: list[float] = []
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        for call in range(6):
            assert same(compiled(X + call, found), halves(X + call, plain))
            assert stator.wait(compiled, timeout=LONG)
    assert plain == found
    return sum(issubclass(it.category, kind) for it in given)


def test_a_part_that_differs_is_replayed() -> None:
    def odd(graph: Any) -> Any:
        is_second = any("exp" in str(node.target) for node in graph.graph.nodes)
        return (lambda *given: [it + 1 for it in graph(*given)]) if is_second else graph

    backend = Slow(odd)
    backend.go.set()
    compiled = stator.compile(halves, backend=backend, when="background")
    assert warnings_of(compiled, stator.BackendDiffersWarning) == 1


def test_a_part_that_cant_be_compiled() -> None:
    backend = Slow(no_compiler)
    backend.go.set()
    compiled = stator.compile(halves, backend=backend, when="background")
    assert warnings_of(compiled, stator.BackendFailedWarning) == 1
    assert stats(compiled).tiers == ["failed"]


def test_compared_where_that_is_asked_for() -> None:
    """Also code that a call has waited for."""
    backend = Slow()
    backend.go.set()
    compiled = stator.compile(halves, backend=backend, when="second_call", verify="first")
    plain: list[float] = []
    found: list[float] = []
    for call in range(3):
        assert same(compiled(X + call, found), halves(X + call, plain))
    assert backend.ran == 2 * (1 + 2)
    assert stats(compiled).tiers == ["compiled"]


def test_an_operation_that_raises_while_code_is_compared() -> None:
    """The replay raises, and so does the function: the code is compared at a later call."""

    def fn(x: Tensor, at: Tensor, log: list[float]) -> Tensor:
        y = (x * 2).sin() + 1
        log.append(y.sum().item())
        return (y * y).exp()[at] + 2

    backend = Slow()
    compiled = stator.compile(fn, backend=backend, when="background")
    good, bad = torch.tensor([0]), torch.tensor([7])
    logs: tuple[list[float], list[float]] = ([], [])
    for _ in range(3):
        assert same(compiled(X, good, logs[0]), fn(X, good, logs[1]))
    backend.go.set()
    assert stator.wait(compiled, timeout=LONG)
    for at in (bad, bad, good, good, bad, good):
        outcomes = []
        for function, log in ((compiled, logs[0]), (fn, logs[1])):
            try:
                outcomes.append(function(X, at, log))
            except IndexError as error:
                outcomes.append(str(error))
        assert same(*outcomes)
    assert logs[0] == logs[1]
    assert stats(compiled).tiers == ["compiled"]


def test_what_nobody_wants_any_more_isnt_compiled() -> None:
    backend = Slow()
    compiled = stator.compile(halves, backend=backend, when="background")
    for _ in range(3):
        compiled(X, [])
    stator.reset()
    backend.go.set()
    assert stator.wait(timeout=LONG)
    assert len(backend.asked) <= 1
    assert backend.ran == 0


LOOK = 18
BETWEEN = 32
"""Calls of a look, and between two of them (`crates/tracer/src/pace.rs`)."""


@pytest.mark.parametrize("nanos", [3_000, 9_000])
def test_code_of_a_part_is_kept_only_if_it_is_quicker(
    nanos: int, caplog: pytest.LogCaptureFixture
) -> None:
    backend = Slow()
    backend.go.set()
    stator.register_backend(backend, name="slow parts", slow=True)
    compiled = stator.compile(halves, backend="slow parts")
    logs: tuple[list[float], list[float]] = ([], [])

    def code_serves(calls: int) -> int:
        before = backend.ran
        for call in range(calls):
            assert same(compiled(X + call, logs[0]), halves(X + call, logs[1]))
        return backend.ran - before

    is_quicker = nanos < 5_000
    code_serves(2)
    assert stator.wait(timeout=LONG)
    with (
        _testing.graphs(replay=5_000, code=nanos),
        caplog.at_level(logging.INFO, "stator.background"),
    ):
        # Two parts, each of which is compared once.
        assert code_serves(LOOK) == LOOK + 2
        assert code_serves(BETWEEN) == (2 * BETWEEN if is_quicker else 0)
        assert code_serves(LOOK) == (2 * LOOK if is_quicker else LOOK)
        assert code_serves(20) == (40 if is_quicker else 0)
    assert stats(compiled).tiers == (["compiled"] if is_quicker else ["slower"])
    told = [text for text in caplog.messages if "isn't used any more" in text]
    assert len(told) == (0 if is_quicker else 2)
    assert logs[0] == logs[1]


def test_where_gradients_are_computed_behind_a_part_its_not_measured() -> None:
    backend = Slow()
    backend.go.set()
    stator.register_backend(backend, name="slow parts of a step", slow=True)
    plain, own = Step(), Step()
    compiled = stator.compile(own.run, backend="slow parts of a step")
    with _testing.graphs(replay=5_000, code=9_000):
        for call in range(6):
            assert compiled(X + call) == pytest.approx(plain.run(X + call))
            assert stator.wait(timeout=LONG)
        before = backend.ran
        for call in range(100):
            compiled(X + call)
    # The optimizer's operations are replayed by then, the model's are not.
    assert backend.ran - before >= 100
