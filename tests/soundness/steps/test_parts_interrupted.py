"""What interrupts calls while other backends run parts of their graphs, or compile them; and parts that aren't compiled."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .results import same


class Rang(Exception):
    pass


@pytest.fixture(autouse=True)
def replayed() -> Iterator[None]:
    with stator.config.patch(skip_unprofitable=False):
        yield


@pytest.fixture
def bell() -> Iterator[None]:
    def rings(*_: Any) -> None:
        raise Rang

    before = signal.signal(signal.SIGUSR1, rings)
    yield
    signal.signal(signal.SIGUSR1, before)


class Ringing:
    """Its code runs a part as it is; a signal comes at the end of that for which `at` says so."""

    def __init__(self) -> None:
        self.parts = 0
        self.at = -1

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        number = self.parts
        self.parts += 1

        def code(*given: Any) -> Any:
            made = graph.forward(*given)
            if number == self.at:
                signal.raise_signal(signal.SIGUSR1)
            return made

        return code


def counting(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Others read of its first part what that has made in its middle and at its end."""
    a.add_(1)
    y = (x * 2).sin()
    b.add_(1)
    z = y.cos() + 1
    if z.sum() > 1e6:
        return z
    a.add_(1)
    return (z * z).exp() + y


@pytest.mark.parametrize("size", [3, 2_000_000])
@pytest.mark.parametrize("at", [0, 1])
def test_a_signal_within_a_part(at: int, size: int, bell: None) -> None:
    """Counters stand as after some instruction of the program; what is raised arrives."""
    backend = Ringing()
    compiled = stator.compile(counting, backend=backend)
    x = torch.linspace(0, 1, 3)
    for _ in range(3):
        compiled(x, torch.zeros(size), torch.zeros(size))
    assert backend.parts == 2
    backend.at = at
    for _ in range(3):
        a, b = torch.zeros(size), torch.zeros(size)
        with pytest.raises(Rang):
            compiled(x, a, b)
        assert torch.equal(a, a[:1].expand(size)) and torch.equal(b, b[:1].expand(size))
        assert (a[0].item(), b[0].item()) in [(0, 0), (1, 0), (1, 1), (2, 1)]
    backend.at = -1
    a, b = torch.zeros(size), torch.zeros(size)
    assert same(compiled(x, a, b), counting(x, torch.zeros(size), torch.zeros(size)))
    assert (a[0].item(), b[0].item()) == (2, 1)


class Interrupted:
    """Its code runs a part as it is; while it compiles the second one, an interrupt comes."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.asked += 1
        if self.asked == 2:
            raise KeyboardInterrupt
        return graph.forward


def test_a_compiler_that_is_interrupted() -> None:
    """The call ends, and what it did is taken back."""
    backend = Interrupted()
    compiled = stator.compile(halves, backend=backend)
    x = torch.ones(3)
    compiled(x)
    with pytest.raises(KeyboardInterrupt):
        compiled(x)
    assert same(compiled(x), halves(x))
    assert backend.asked == 3


def test_a_compiler_that_is_interrupted_behind_large_writes() -> None:
    """The call can't be taken back: it ends whole, and the interrupt comes behind it."""
    backend = Interrupted()

    def fn(x: Tensor, large: Tensor, log: list[str]) -> Tensor:
        log.append("begun")
        large.add_(1)
        y = (x * 2).sin() + 1
        if y.sum() > 1e6:
            return y
        return (y * y).exp() + 2

    compiled = stator.compile(fn, backend=backend)
    x, large = torch.ones(3), torch.zeros(20_000_000)
    log: list[str] = []
    results, caught = [], 0
    for call in range(4):
        try:
            results.append(compiled(x, large, log))
            str(call)
        except KeyboardInterrupt:
            caught += 1
        assert log == ["begun"] * (call + 1)
        assert large[0].item() == large[-1].item() == call + 1
    assert caught == 1 and backend.asked == 2
    assert all(same(result, fn(x, torch.zeros(3), [])) for result in results)


def halves(x: Tensor) -> Tensor:
    y = (x * 2).sin() + 1
    if y.sum() > 0:
        y = (y * y).exp() + 2
    return y


def test_code_of_parts_is_compared_where_that_is_asked_for() -> None:
    backend = Ringing()
    compiled = stator.compile(halves, backend=backend, verify="first")
    for _ in range(4):
        assert same(compiled(torch.ones(3)), halves(torch.ones(3)))
    stats = stator.stats(compiled)
    assert backend.parts == 2
    assert stats.tiers == ["compiled"]
    assert "differ from the replay's" in str(stats.why[0])


def test_parts_of_sizes_that_vary_are_compiled() -> None:
    compiled = stator.compile(halves, backend="aot_eager", dynamic=True)
    for size in (3, 3, 5, 7):
        x = torch.linspace(0, 1, size)
        assert same(compiled(x), halves(x))
    assert stator.stats(compiled).tiers == ["compiled"]
