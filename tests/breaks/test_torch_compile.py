"""Functions and modules under `torch.compile` are opaque: one break, and PyTorch's tracer does its work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._C._dynamo.eval_frame import set_eval_frame

import stator
from stator import _stator

testing = _stator.testing


class Counting:
    """A backend that counts the graphs it was given, and how often they ran."""

    def __init__(self) -> None:
        self.graphs = self.runs = 0

    def __call__(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        self.graphs += 1

        def run(*args: Any) -> Any:
            self.runs += 1
            return module.forward(*args)

        return run


@pytest.fixture(autouse=True)
def _slate() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    assert testing.hook_on_top() == "nobody", "everybody has put back what was there"
    torch._dynamo.reset()


SCALE = {"by": 3.0}


def inner(x: Tensor) -> Tensor:
    return torch.relu(x) * 2


def called(theirs: Any) -> Any:
    return lambda x: theirs(x + 1) * SCALE["by"]


def in_callee(theirs: Any) -> Any:
    def callee(x: Tensor) -> Any:
        return theirs(x + 1) - 1

    return lambda x: callee(x) * SCALE["by"]


def by_c_code(theirs: Any) -> Any:
    return lambda x: sum(map(theirs, [x, x + 1])) * SCALE["by"]


def by_sort(theirs: Any) -> Any:
    return lambda x: sorted([x, x + 1], key=lambda y: -float(theirs(y).sum()))[0] * SCALE["by"]


def behind_a_break(theirs: Any) -> Any:
    def program(x: Tensor) -> Any:
        y = x * 2
        stator.graph_break()
        return theirs(y) * SCALE["by"]

    return program


def in_a_disabled_function(theirs: Any) -> Any:
    disabled = stator.disable(lambda x: theirs(x) + 1)
    return lambda x: disabled(x * 2) * SCALE["by"]


def with_modes(theirs: Any) -> Any:
    def program(x: Tensor) -> Any:
        with torch.no_grad():
            y = theirs(x) + 1
        return y * SCALE["by"]

    return program


def twice(theirs: Any) -> Any:
    return lambda x: theirs(theirs(x + 1) - 1) * SCALE["by"]


PROGRAMS = [
    called, in_callee, by_c_code, by_sort, behind_a_break, in_a_disabled_function, with_modes, twice
]  # fmt: skip
KINDS = {
    "function": lambda backend: torch.compile(inner, backend=backend),
    "whole": lambda backend: torch.compile(inner, backend=backend, fullgraph=True),
    "module": lambda backend: torch.compile(nn.ReLU(), backend=backend),
    "own": lambda backend: torch.compile(Own(), backend=backend),
}


class Own(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) * 2


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_results(
    make: Callable[[Any], Any], kind: str, warm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Counting()
    theirs = KINDS[kind](backend)
    plain = make(nn.ReLU() if kind == "module" else inner)
    if warm:
        theirs(torch.randn(2, 3))
    compiled = stator.compile(make(theirs))
    calls = 2 if make in (by_c_code, by_sort, twice) else 1
    for _ in range(3):
        x, before = torch.randn(2, 3), backend.runs
        assert torch.equal(compiled(x), plain(x))
        assert backend.runs == before + calls, "PyTorch's graph runs"
    monkeypatch.setitem(SCALE, "by", 5.0)
    assert torch.equal(compiled(x), plain(x))
    assert backend.graphs <= (2 if make is with_modes else 1), "one for each grad mode"
    assert testing.hook_on_top() == "nobody"


def test_one_break_at_the_users_call() -> None:
    theirs = torch.compile(inner, backend="eager")
    module = torch.compile(Own(), backend="eager")
    compiled = stator.compile(lambda x: theirs(x + 1) * 2)
    for _ in range(3):
        compiled(torch.randn(3))
    stats = stator.stats(compiled)
    assert (stats.breaks, stats.graphs, stats.hits, stats.native) == (1, 2, 2, 0), stats
    reason = stats.reason or ""
    assert (
        "SB024" in reason
        and "inner under torch.compile" in reason
        and "test_torch_compile.py" in reason
    )
    compiled = stator.compile(lambda x: module(x + 1) * 2)
    compiled(torch.randn(3))
    assert "a module under torch.compile (at" in (stator.stats(compiled).reason or "")


def test_fullgraph_refuses() -> None:
    theirs = torch.compile(inner, backend="eager")
    whole = stator.compile(lambda x: theirs(x) + 1, fullgraph=True)
    for _ in range(2):
        with pytest.raises(stator.GraphBreakError, match="inner under torch.compile"):
            whole(torch.ones(2))
    assert torch.equal(theirs(torch.ones(2)), torch.full((2,), 2.0))


def test_submodules() -> None:
    backend = Counting()
    linear = nn.Linear(3, 3)
    model = nn.Sequential(nn.Linear(3, 3), torch.compile(linear, backend=backend), nn.ReLU())
    plain = nn.Sequential(model[0], linear, model[2])
    compiled = stator.compile(model)
    for runs in range(1, 4):
        x = torch.randn(2, 3)
        assert torch.equal(compiled(x), plain(x))
        assert (backend.graphs, backend.runs) == (1, runs)
    with torch.no_grad():
        linear.weight.mul_(2)
    assert torch.equal(compiled(x), plain(x))


def test_module_compiled_in_place() -> None:
    backend = Counting()
    own = Own()
    own.compile(backend=backend)
    compiled = stator.compile(lambda x: own(x) + 1)
    for runs in range(1, 4):
        x = torch.randn(2, 3)
        assert torch.equal(compiled(x), own.forward(x) + 1)
        assert (backend.graphs, backend.runs) == (1, runs)


def test_gradients() -> None:
    linear = nn.Linear(3, 3)
    theirs = torch.compile(linear, backend="eager")
    compiled = stator.compile(lambda x: theirs(x * 2).relu())
    for _ in range(3):
        x = torch.randn(2, 3)
        linear.weight.grad = None
        compiled(x).sum().backward()
        found = linear.weight.grad
        linear.weight.grad = None
        linear(x * 2).relu().sum().backward()
        assert found is not None and linear.weight.grad is not None
        assert torch.equal(found, linear.weight.grad)


def test_what_is_theirs_is_returned_as_it_is() -> None:
    records: list[str] = []
    for theirs in torch.compile(inner, backend="eager"), torch.compile(Own(), backend="eager"):
        with pytest.raises(stator.GraphBreakError, match="is under torch.compile"):
            stator.compile(theirs, fullgraph=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("stator._logs.is_enabled", lambda name: True)
            patch.setattr("stator._logs.emit", lambda name, text: records.append(text))
            assert stator.compile(theirs) is theirs
        assert torch.equal(theirs(torch.ones(2)), torch.full((2,), 2.0))
    assert len(records) == 2 and all("is under torch.compile" in text for text in records)


def test_ours_inside_theirs() -> None:
    ours = stator.compile(inner)
    backend = Counting()
    theirs = torch.compile(lambda x: ours(x + 1) - 1, backend=backend)
    for _ in range(3):
        x = torch.randn(3)
        assert torch.equal(theirs(x), inner(x + 1) - 1)
    assert stator.stats(ours).hits == 2 and backend.graphs == 2


def test_theirs_inside_ours_inside_theirs() -> None:
    backend = Counting()
    lowest = torch.compile(inner, backend=backend)
    ours = stator.compile(lambda x: lowest(x + 1) * 2)
    top = torch.compile(lambda x: ours(x) - 1, backend=backend)
    for _ in range(3):
        x = torch.randn(3)
        assert torch.equal(top(x), inner(x + 1) * 2 - 1)


def test_errors_pass_through() -> None:
    def fails(x: Tensor) -> Tensor:
        raise KeyError(x.shape[0])

    theirs = torch.compile(fails, backend="eager")

    def program(x: Tensor) -> Any:
        try:
            return theirs(x + 1)
        except KeyError as error:
            return error.args[0]

    compiled = stator.compile(program)
    assert [compiled(torch.ones(2)) for _ in range(3)] == [2, 2, 2]


# --- hooks that come and go -------------------------------------------------------------------------


def plain_call() -> int:
    return sum(map(lambda n: n + 1, range(3)))


def frames_of(function: Callable[[], Any]) -> int:
    before = testing.counts()[0]
    function()
    return testing.counts()[0] - before


def test_theirs_stays_when_ours_goes() -> None:
    def program() -> None:
        set_eval_frame(False)

    testing.call_evaluated(program)
    plain_call()
    theirs = torch.compile(inner, backend="eager")
    assert torch.equal(theirs(torch.ones(2)), torch.full((2,), 2.0))
    set_eval_frame(None)
    plain_call()


def test_threads() -> None:
    """Both tracers come and go on several threads, within each other and beside each other."""
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for turn in range(6):

                def function(x: Tensor, seed: int = seed, turn: int = turn) -> Tensor:
                    return torch.relu(x + seed) * turn

                theirs = torch.compile(function, backend="eager")
                ours = stator.compile(lambda x: sum(map(lambda y: y * 2, [x, theirs(x)])))  # noqa: B023
                alone = stator.compile(lambda x: max([x, x + 1], key=lambda y: float(y.sum())))
                for _ in range(3):
                    x = torch.randn(3)
                    assert torch.equal(ours(x), sum(y * 2 for y in [x, function(x)]))
                    assert torch.equal(alone(x), x + 1)
                    assert torch.equal(theirs(x), function(x))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    if errors:
        raise errors[0]
    plain_call()
