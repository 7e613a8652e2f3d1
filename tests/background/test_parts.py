"""Graphs in parts, between which data is read or gradients are computed: each part is compiled beside the program."""

from __future__ import annotations

import gc
import logging
import os
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator
from background.slow import LONG, Slow, no_compiler
from stator import _backends, _testing, stats
from stator._fx import beside, process, sent
from stator._fx.graphs import Code
from stator._fx.libraries import Libraries, Made

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


def down(x: Tensor, depth: int) -> Tensor:
    return down((x * 1.01).sin(), depth - 1) if depth else x


def test_parts_are_replayed_from_frames_that_are_kept() -> None:
    """Else each call makes them anew, and has the garbage collector run: it stops for a fifth of a second where a
    program has much."""

    def fn(x: Tensor, log: list[float]) -> Tensor:
        y = down(x, 30)
        log.append(y.sum().item())
        return down(y, 30)

    backend, runs = Slow(), []

    def note(phase: str, info: dict[str, int]) -> None:
        runs.append(phase)

    compiled = stator.compile(fn, backend=backend, when="background")
    for _ in range(4):
        compiled(X, [])
    assert backend.begun.wait(LONG)
    gc.collect()
    before = gc.get_threshold()
    gc.set_threshold(30)
    gc.callbacks.append(note)
    try:
        for _ in range(50):
            compiled(X, [])
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)
        backend.go.set()
    assert stats(compiled).tiers == ["compiling"] and len(runs) < 20
    assert stator.wait(timeout=LONG)


def test_the_largest_part_comes_first_and_the_word_is_of_all() -> None:
    def fn(x: Tensor, log: list[float]) -> Tensor:
        y = down(x, 3)
        log.append(y.sum().item())
        z = down(y, 20)
        log.append(z.sum().item())
        return down(z, 5)

    sizes: list[int] = []

    def make(graph: Any) -> Any:
        sizes.append(len(list(graph.graph.nodes)))
        words.append(stats(compiled).tiers[0])
        return graph

    words: list[str] = []
    backend = Slow(make)
    compiled = stator.compile(fn, backend=backend, when="background")
    for _ in range(3):
        compiled(X, [])
    backend.go.set()
    assert stator.wait(timeout=LONG)
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 3
    assert words == ["compiling"] * 3
    for _ in range(4):
        found, expected = ([], [])
        assert torch.equal(compiled(X, found), fn(X, expected)) and found == expected
    assert stats(compiled).tiers == ["compiled"]


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
    # Each part once to be compared, and once for each call from then on. The second is compared in the second one.
    assert backend.ran == (1 + 3) + (1 + 2)
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


def fails_on(graph: Any, *operations: str) -> None:
    names = [str(node.target) for node in graph.graph.nodes]
    for operation in operations:
        if any(operation in name for name in names):
            raise RuntimeError(f"{operation} is unknown")


@pytest.mark.parametrize("when", ["background", "second_call"])
def test_a_part_that_cant_be_compiled_is_replayed(when: Any) -> None:
    """The others are compiled all the same."""

    def make(graph: Any) -> Any:
        fails_on(graph, "sin")
        return graph

    backend = Slow(make)
    backend.go.set()
    compiled = stator.compile(halves, backend=backend, when=when)
    assert warnings_of(compiled, stator.BackendFailedWarning) == 1
    assert len(backend.asked) == 2 and backend.ran > 0
    assert stats(compiled).tiers == ["compiled"]
    assert "of 2 parts, one is replayed: RuntimeError: sin is unknown" in (
        stats(compiled).why[0] or ""
    )


def test_other_failures_are_told_of() -> None:
    def make(graph: Any) -> Any:
        return fails_on(graph, "sin", "exp")

    backend = Slow(make)
    backend.go.set()
    compiled = stator.compile(halves, backend=backend, when="background")
    assert warnings_of(compiled, stator.BackendFailedWarning) == 2
    assert stats(compiled).tiers == ["failed"]


def many(x: Tensor, log: list[float]) -> Tensor:
    for _ in range(6):
        x = (x * 1.5).cos() + x
        log.append(x.sum().item())
    return x


@pytest.mark.parametrize("when", ["background", "second_call"])
def test_what_a_backend_misses_everywhere_is_told_once(when: Any) -> None:
    """A call that waits asks for two parts of six, one after the other. Beside the program all are asked for."""
    backend = Slow(no_compiler)
    backend.go.set()
    compiled = stator.compile(many, backend=backend, when=when)
    logs: tuple[list[float], list[float]] = ([], [])
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        for call in range(12):
            assert same(compiled(X + call, logs[0]), many(X + call, logs[1]))
            assert stator.wait(compiled, timeout=LONG)
    assert logs[0] == logs[1]
    assert sum(issubclass(it.category, stator.BackendFailedWarning) for it in given) == 1
    assert len(backend.asked) == (6 if when == "background" else 2)
    assert stats(compiled).tiers == ["failed"]


def test_a_call_hands_over_all_parts_and_compares_one() -> None:
    """Where nobody waits. So who has called twice waits for all."""
    backend = Slow()
    compiled = stator.compile(many, backend=backend, when="background")
    logs: tuple[list[float], list[float]] = ([], [])

    def call(times: int) -> None:
        for number in range(times):
            assert same(compiled(X + number, logs[0]), many(X + number, logs[1]))

    # The recorded call hands over no part.
    call(2)
    backend.go.set()
    assert stator.wait(compiled, timeout=LONG)
    assert len(backend.asked) == 6
    # Each compares one part: it runs once for that, and once for each call from then on.
    for expected in (2, 3, 4, 5, 6, 7, 6):
        before = backend.ran
        call(1)
        assert backend.ran - before == expected
    assert logs[0] == logs[1]


def test_parts_are_handed_over_while_others_are_compared() -> None:
    """A call that has compared a part still hands over those that have no code for its sizes."""
    backend = Slow()
    backend.go.set()
    compiled = stator.compile(many, backend=backend, when="background", dynamic=False)
    logs: tuple[list[float], list[float]] = ([], [])
    longer = torch.linspace(0, 1, 5)
    for x in (X, X, longer, longer):
        assert same(compiled(x, logs[0]), many(x, logs[1]))
        assert stator.wait(compiled, timeout=LONG)
    assert len(backend.asked) == 12
    for _ in range(7):
        for x in (X, longer):
            assert same(compiled(x, logs[0]), many(x, logs[1]))
    before = backend.ran
    for x in (X, longer):
        assert same(compiled(x, logs[0]), many(x, logs[1]))
    assert backend.ran - before == 12
    assert logs[0] == logs[1]


def test_a_part_that_a_call_waits_for_keeps_no_other_from_being_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its call compiles it. What comes behind it is handed over, and what can't be is left to later calls."""
    beside_of = _backends.Prepared.beside

    def beside_or_not(self: Any, description: Any, inputs: Any, is_new: bool, *how: Any) -> Any:
        handed.append(is_new)
        if len(handed) in (1, 3):
            return "a test says so"
        return beside_of(self, description, inputs, is_new, *how)

    handed: list[bool] = []
    monkeypatch.setattr(_backends.Prepared, "beside", beside_or_not)
    backend = Slow()
    backend.go.set()
    compiled = stator.compile(many, backend=backend, when="background")
    logs: tuple[list[float], list[float]] = ([], [])
    for call in range(2):
        assert same(compiled(X + call, logs[0]), many(X + call, logs[1]))
    assert stator.wait(compiled, timeout=LONG)
    # The first part was waited for, and the third is yet to come: others aren't asked for once more.
    assert len(backend.asked) == 5
    assert handed == [False, *[True] * 5]
    for call in range(8):
        assert same(compiled(X + call, logs[0]), many(X + call, logs[1]))
    assert stator.wait(compiled, timeout=LONG)
    assert len(backend.asked) == 6
    assert handed == [False, *[True] * 5, False]
    assert logs[0] == logs[1]


def test_a_call_that_waits_waits_for_all_parts() -> None:
    backend = Slow()
    backend.go.set()
    compiled = stator.compile(many, backend=backend, when="second_call")
    logs: tuple[list[float], list[float]] = ([], [])
    for call in range(2):
        assert same(compiled(X + call, logs[0]), many(X + call, logs[1]))
    assert len(backend.asked) == 6
    assert logs[0] == logs[1]


def test_equal_parts_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their nodes have other names. What differs in a constant, a size or a dtype isn't equal."""
    orders: list[process.Order] = []

    class Library:
        def __init__(self, module: Any) -> None:
            self.module = module

        def run(self, inputs: list[Tensor]) -> list[Tensor]:
            return list(self.module(*inputs))

    def ask(order: process.Order, folder: Any) -> Made:
        orders.append(order)
        return Made([os.devnull], [], [], [])

    def load(bundle: str) -> Any:
        assert isinstance(orders[-1].module, bytes)
        made = Made([os.devnull], [], [], [])
        return made, Libraries(made, [Library(sent.unpack(orders[-1].module))])

    monkeypatch.setenv("STATOR_CACHE", "off")
    monkeypatch.setattr(process, "_ask", ask)
    monkeypatch.setattr(process, "_load", load)

    def fn(x: Tensor, y: Tensor, log: list[float]) -> Tensor:
        first = (x * 1.5).cos() + x
        log.append(first.sum().item())
        second = (first * 1.5).cos() + first
        log.append(second.sum().item())
        third = (second * 2.5).cos() + second
        log.append(third.sum().item())
        fourth = (y * 1.5).cos() + y
        log.append(fourth.sum().item())
        return fourth

    compiled = stator.compile(fn, backend="inductor", when="background", tier="compiled")
    logs: tuple[list[float], list[float]] = ([], [])
    for call in range(12):
        y = torch.linspace(0, 1, 4) + call
        assert same(compiled(X + call, y, logs[0]), fn(X + call, y, logs[1]))
        assert stator.wait(compiled, timeout=LONG)
    assert logs[0] == logs[1]
    assert stats(compiled).tiers == ["compiled"]
    assert len(orders) == 3


def test_parts_whose_sizes_vary(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code says which sizes it is for: nobody else does of what the middle of a trace gives."""
    orders: list[Any] = []

    def compile(module: Any, looks: Any, sizes: Any, *others: Any, **said: Any) -> Any:
        orders.append((looks, sizes, said))

        def run(*inputs: Any) -> Any:
            assert all(x.shape[1:] == like.shape[1:] for x, like in zip(inputs, looks, strict=True))
            return module(*inputs)

        rest = [("size", at, 1) for at, like in enumerate(looks) if like.dim() > 1]
        return Code(run, "inductor", [("fixed", *rest)], looks)

    monkeypatch.setattr(beside, "compile_in_process", compile)
    compiled = stator.compile(halves, backend="inductor", when="background", dynamic=True)
    logs: tuple[list[float], list[float]] = ([], [])
    for call, (rows, columns) in enumerate(
        [(2, 3), (3, 3), (4, 3), (5, 3), (2, 4), (3, 4), (6, 3)] * 2
    ):
        x = torch.linspace(0, 1, rows * columns).view(rows, columns) + call
        assert same(compiled(x, logs[0]), halves(x, logs[1]))
        assert stator.wait(compiled, timeout=LONG)
    assert logs[0] == logs[1]
    assert stats(compiled).tiers == ["compiled"] and stats(compiled).traces == 1
    # Two parts, for three and for four columns.
    assert len(orders) == 4
    for looks, sizes, said in orders:
        assert said == {"are_sizes_guarded": False}
        assert sizes == [
            tuple(f"t{index}.size({at})" for at in range(like.dim()))
            for index, like in enumerate(looks)
        ]


def test_where_gradients_are_computed_sizes_are_those_of_a_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    orders: list[Any] = []

    def compile(module: Any, looks: Any, sizes: Any, *others: Any, **said: Any) -> Any:
        orders.append((looks, sizes, said))

        def run(*inputs: Any) -> Any:
            assert [x.shape for x in inputs] == [like.shape for like in looks]
            return module(*inputs)

        return run

    monkeypatch.setattr(beside, "compile_in_process", compile)

    def step(x: Tensor, w: Tensor) -> float:
        loss = ((x @ w).sin() * 2).exp().mean()
        loss.backward()
        return loss.item()

    compiled = stator.compile(step, backend="inductor", when="background", dynamic=True)
    w, own = (torch.linspace(-1, 1, 6).view(3, 2).requires_grad_() for _ in range(2))
    for call, rows in enumerate([2, 3, 4, 2, 3, 4, 2, 3, 4]):
        x = torch.linspace(0, 1, rows * 3).view(rows, 3) + call
        assert compiled(x, own) == step(x, w)
        assert own.grad is not None and w.grad is not None and torch.equal(own.grad, w.grad)
        assert stator.wait(compiled, timeout=LONG)
    assert "compiled" in stats(compiled).tiers
    assert orders
    for looks, sizes, said in orders:
        assert said == {"are_sizes_guarded": True}
        assert sizes == [()] * len(looks)


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
    code_serves(3)
    assert stator.wait(timeout=LONG)
    with (
        _testing.graphs(replay=5_000, code=nanos),
        caplog.at_level(logging.INFO, "stator.background"),
    ):
        # Two parts, each of which is compared once; the second is a call behind the first.
        assert code_serves(LOOK + 1) == LOOK + 2 + (1 if is_quicker else 0)
        assert code_serves(BETWEEN - 1) == (2 * (BETWEEN - 1) if is_quicker else 0)
        assert code_serves(LOOK + 1) == (2 * (LOOK + 1) if is_quicker else LOOK)
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
