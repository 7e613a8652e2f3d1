"""Inductor beside the program: real compilations, of small functions."""

from __future__ import annotations

import gc
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from background.slow import LONG, no_compiler
from stator import _backends, _background, stats
from stator._fx import process
from stator.errors import BackendError

X = torch.linspace(-1, 1, 24).view(6, 4)
WEIGHT = torch.linspace(-2, 2, 16).view(4, 4)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    yield


def test_a_process_compiles_and_a_library_serves() -> None:
    layer = torch.nn.Linear(4, 4)
    call = type(layer).__call__

    # The least that the C++ compiler can do.
    options = {"aot_inductor.compile_wrapper_opt_level": "O0"}

    @stator.compile(backend="inductor", options=options)
    @torch.no_grad()
    def score(x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.nn.functional.gelu(layer(x) @ WEIGHT)
        return y.t(), y.sum(0)

    state = torch.get_rng_state()
    expected = score(X)
    assert stats(score).tiers in (["waiting"], ["compiling"])
    while not stator.wait(timeout=0.2):
        # PyTorch's tracer, in this process, would stand in the way of modules.
        assert type(layer).__call__ is call
        score(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            found = score(X)
            torch.testing.assert_close(found, expected)
            assert [each.stride() for each in found] == [each.stride() for each in expected]
    assert stats(score).tiers == ["compiled"]
    assert torch.equal(torch.get_rng_state(), state)


START = """
import sys
import torch
import stator

torch.manual_seed(0)
layer = torch.nn.Linear(4, 4)
x = torch.linspace(-1, 1, 24).view(6, 4)

@stator.compile(backend="inductor")
@torch.no_grad()
def score(x):
    return torch.nn.functional.gelu(layer(x) @ torch.ones(4, 4))

expected = score(x)
assert stator.wait(timeout=300)
torch.testing.assert_close(score(x), expected)
assert stator.stats(score).tiers == ["compiled"], stator.stats(score).tiers
"""


def test_the_next_start_finds_the_library(tmp_path: Path) -> None:
    def start(program: str, **environment: str) -> None:
        store = {"STATOR_CACHE": str(tmp_path / "store")}
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            env={**os.environ, **store, **environment},
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""

    start(START)
    # The first one's files, a compiler and Inductor itself aren't there any more.
    shutil.rmtree(tmp_path / "inductor")
    found = f"{START}\nassert 'torch._inductor' not in sys.modules"
    start(found, PATH="/nowhere")
    library = next(path for path in (tmp_path / "store").iterdir() if path.name != "secret")
    # Without a store it would have to be compiled: there is no compiler.
    with pytest.raises(AssertionError, match="needs a C\\+\\+ compiler"):
        start(START, PATH="/nowhere", STATOR_CACHE="off")
    assert library.stat().st_size > 1000


def stand_in(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[Any], Any] = lambda graph: graph
) -> list[int]:
    """Something quicker stands for Inductor in this process; it notes what it's asked."""
    asked: list[int] = []

    def stands_for_inductor(graph: Any, inputs: Any) -> Any:
        asked.append(1)
        return make(graph)

    find = _backends._find
    instead = ("inductor", stands_for_inductor, True)
    monkeypatch.setattr(
        _backends, "_find", lambda name: instead if name == "inductor" else find(name)
    )
    return asked


class Never:
    """Stands for the process: nothing is compiled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        monkeypatch.setattr(subprocess, "run", self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.asked += 1
        return subprocess.CompletedProcess(args, 1, b"", b"Traceback\nKilled: no memory\n")


def test_a_process_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    never = Never(monkeypatch)
    compiled = stator.compile(lambda x: x * 3, backend="inductor")
    compiled(X)
    assert stator.wait(timeout=LONG)
    with pytest.warns(stator.BackendFailedWarning, match="ended early: Killed: no memory"):
        assert torch.equal(compiled(X), X * 3)
    assert torch.equal(compiled(X), X * 3)
    assert stats(compiled).tiers == ["failed"] and never.asked == 1


def writes(x: Tensor) -> Tensor:
    return x.add_(1) * 2


def gradients(x: Tensor) -> Tensor:
    return (x * PARAMETER).sum()


PARAMETER = torch.nn.Parameter(torch.ones(4))


@pytest.mark.parametrize(
    ("function", "dynamic", "why"),
    [
        (writes, None, "it writes to its inputs"),
        (gradients, None, "gradients are computed through it"),
        (lambda x: x * x.shape[0], True, "it has symbolic sizes"),
    ],
)
def test_what_cant_go_to_a_process(
    function: Any, dynamic: bool | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    never, asked = Never(monkeypatch), stand_in(monkeypatch)
    # By default the second call waits.
    compiled = stator.compile(function, backend="inductor", dynamic=dynamic)
    for count in (0, 1, 1):
        assert torch.equal(compiled(X.clone()), function(X.clone()))
        assert len(asked) == count
    assert stats(compiled).tiers == ["compiled"]
    # Who has asked for the background is told.
    told = stator.compile(function, backend="inductor", dynamic=dynamic, when="background")
    with pytest.warns(stator.BackendFailedWarning, match=f"beside the program: {why}"):
        for _ in range(3):
            assert torch.equal(told(X.clone()), function(X.clone()))
    assert stats(told).tiers == ["failed"] and len(asked) == 1 and never.asked == 0


class Expired(Exception):
    pass


def test_a_call_that_waits_gets_what_a_signal_handler_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(graph: Any) -> Any:
        if len(asked) == 1:
            signal.raise_signal(signal.SIGUSR1)
        return graph

    def expire(number: int, frame: Any) -> None:
        raise Expired

    asked = stand_in(monkeypatch, interrupted)
    before = signal.signal(signal.SIGUSR1, expire)
    try:
        compiled = stator.compile(gradients, backend="inductor")
        compiled(X)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(Expired):
                compiled(X)
            assert torch.equal(compiled(X), gradients(X))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert stats(compiled).tiers == ["compiled"] and len(asked) == 2


def test_pytorchs_other_backends_arent_called_in_a_thread() -> None:
    compiled = stator.compile(lambda x: x * 3, backend="aot_eager", when="background")
    with pytest.warns(stator.BackendFailedWarning, match="change the process while they trace"):
        for _ in range(2):
            assert torch.equal(compiled(X), X * 3)


def test_inputs_arent_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_background, "QUIET", 1e6)
    compiled = stator.compile(lambda x: x * 3, backend="inductor")
    x = torch.randn(3)
    known = weakref.ref(x)
    compiled(x)
    assert stats(compiled).tiers == ["waiting"]
    del x
    gc.collect()
    assert known() is None


def refusing(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The process finds that it can't compile a graph ahead of time; what it was asked for."""
    orders: list[Any] = []

    def runs_here(command: Any, *, input: bytes, **kwargs: Any) -> Any:
        orders.append(pickle.loads(input))
        Path(orders[-1].answer).write_text(json.dumps({"error": "a result shares memory"}))
        return subprocess.CompletedProcess(command, 0, b"", b"")

    monkeypatch.setattr(subprocess, "run", runs_here)
    return orders


def test_the_call_that_waits_instead_is_told_of_what_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = stand_in(monkeypatch, no_compiler)
    refusing(monkeypatch)
    compiled = stator.compile(lambda x: x * 3, backend="inductor")
    compiled(X)
    assert stator.wait(timeout=LONG)
    with pytest.warns(stator.BackendFailedWarning, match="RuntimeError: no compiler here") as given:
        for _ in range(3):
            assert torch.equal(compiled(X), X * 3)
    assert len(given) == 1 and "failed on a graph" in str(given[0].message)
    assert stats(compiled).tiers == ["failed"] and len(asked) == 1


def test_what_cant_be_compiled_ahead_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library would give a copy of what the graph gives a view of."""
    asked, orders = stand_in(monkeypatch), refusing(monkeypatch)

    def view(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.t(), x * 2

    compiled = stator.compile(view, backend="inductor")
    for call in range(4):
        transposed, doubled = compiled(X)
        assert transposed.data_ptr() == X.data_ptr() and torch.equal(doubled, X * 2)
        assert stator.wait(timeout=LONG) and len(asked) == (call > 0)
    assert stats(compiled).tiers == ["compiled"]
    told = stator.compile(view, backend="inductor", when="background")
    told(X)
    assert stator.wait(timeout=LONG)
    with pytest.warns(stator.BackendFailedWarning, match="a result shares memory"):
        told(X)
    # What the process itself finds out.
    with pytest.raises(BackendError, match="a result shares memory with an input"):
        process._check_outputs(orders[0].module, [torch.empty_like(X)])
