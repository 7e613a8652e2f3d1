"""`when="background"`: the replay serves until there is code, and no call waits."""

from __future__ import annotations

import gc
import logging
import threading
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

import stator
from background.slow import LONG, Slow, made, no_compiler
from stator import _background, stats
from stator.errors import ApiError, ConfigError, NotCompilableError

X = torch.arange(6.0).view(2, 3)


def scaled(x: Tensor) -> Tensor:
    return (x * 2 + 1).relu().sum()


def swapped(compiled: Any, backend: Slow, *args: Any) -> Any:
    """Lets the backend end, and returns what the call gives that takes the code over."""
    backend.go.set()
    assert stator.wait(compiled, timeout=LONG)
    return compiled(*args)


def test_the_replay_serves_until_there_is_code() -> None:
    backend = Slow()
    compiled = stator.compile(scaled, backend=backend, when="background")
    assert torch.equal(compiled(X), scaled(X))
    assert stats(compiled).tiers in (["waiting"], ["compiling"])
    assert not stator.wait(compiled, timeout=0)
    for call in range(2, 6):
        assert torch.equal(compiled(X + call), scaled(X + call))
    assert (backend.ran, stats(compiled).hits) == (0, 4)
    assert backend.begun.wait(LONG)
    assert stats(compiled).tiers == ["compiling"]
    assert backend.threads[0] is not threading.current_thread()

    backend.go.set()
    assert stator.wait(timeout=LONG)
    assert stats(compiled).tiers == ["made"]
    # Once to compare, once for the call.
    assert torch.equal(compiled(X), scaled(X))
    assert (backend.ran, stats(compiled).tiers) == (2, ["compiled"])
    for call in range(3):
        assert torch.equal(compiled(X - call), scaled(X - call))
    assert (backend.ran, len(backend.asked)) == (5, 1)
    assert (stats(compiled).traces, stats(compiled).native) == (1, 0)


def test_guards_hold_for_the_code_as_for_the_replay() -> None:
    settings = {"factor": 2}

    def scaled_by(x: Tensor) -> Tensor:
        return x * settings["factor"]

    backend = Slow()
    compiled = stator.compile(scaled_by, backend=backend, when="background", dynamic=False)
    compiled(X)
    assert torch.equal(swapped(compiled, backend, X), X * 2)
    settings["factor"] = 3
    for _ in range(3):
        assert torch.equal(compiled(X), X * 3)
    assert stats(compiled).traces == 2
    settings["factor"] = 2
    before = backend.ran
    assert torch.equal(compiled(X), X * 2)
    assert backend.ran == before + 1


def test_what_waits_isnt_begun_while_the_program_warms_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_background, "QUIET", 1e6)
    backend = Slow()
    backend.go.set()
    compiled = stator.compile(scaled, backend=backend, when="background")
    for _ in range(3):
        compiled(X)
    assert stats(compiled).tiers == ["waiting"] and not backend.begun.is_set()
    # Whoever waits wants it at once.
    assert stator.wait(timeout=LONG)
    assert backend.begun.is_set()


@pytest.mark.parametrize("timeout", ["soon", float("nan"), [1]])
def test_a_time_that_is_none(timeout: Any) -> None:
    with pytest.raises(stator.errors.ApiError, match="a number of seconds is expected"):
        stator.wait(timeout=timeout)


def test_two_functions_at_once() -> None:
    first, second = Slow(), Slow()
    one = stator.compile(scaled, backend=first, when="background")
    two = stator.compile(lambda x: (x - 1).sum(), backend=second, when="background")
    for _ in range(2):
        one(X), two(X)
    first.go.set()
    assert stator.wait(one, timeout=LONG)
    assert not stator.wait(two, timeout=0)
    assert torch.equal(one(X), scaled(X))
    assert (stats(one).tiers, first.ran) == (["compiled"], 2)
    assert torch.equal(swapped(two, second, X), (X - 1).sum())
    assert stats(two).tiers == ["compiled"]


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_sizes_that_change_meanwhile(dynamic: bool | None) -> None:
    backend = Slow()
    compiled = stator.compile(scaled, backend=backend, when="background", dynamic=dynamic)
    for size in (3, 4, 5, 3, 4):
        x = torch.arange(float(size))
        assert torch.equal(compiled(x), scaled(x))
    assert backend.ran == 0
    backend.go.set()
    for _ in range(2):
        assert stator.wait(timeout=LONG)
        for size in (3, 4, 5, 6):
            x = torch.arange(float(size))
            assert torch.equal(compiled(x), scaled(x))
    assert "compiled" in stats(compiled).tiers


def test_behind_graph_breaks() -> None:
    def broken(x: Tensor) -> Tensor:
        y = x * 2
        stator.graph_break()
        return y + 1

    backend = Slow()
    backend.go.set()
    compiled = stator.compile(broken, backend=backend, when="background")
    for _ in range(3):
        assert torch.equal(compiled(X), broken(X))
        assert stator.wait(timeout=LONG)
    assert torch.equal(compiled(X), broken(X))
    assert stats(compiled).tiers == ["compiled", "compiled"]


def test_results_with_gradients() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    backend = Slow()
    compiled = stator.compile(model, backend=backend, when="background")

    def gradients(call: Any) -> list[Tensor]:
        model.zero_grad()
        call(X).sum().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    expected = gradients(model)
    gradients(compiled)
    backend.go.set()
    assert stator.wait(timeout=LONG)
    # The comparison leaves no gradient behind.
    for _ in range(3):
        found = gradients(compiled)
        assert all(map(torch.equal, found, expected)) and len(found) == len(expected)
    assert stats(compiled).tiers == ["compiled"]


def test_threads_that_call_while_it_compiles() -> None:
    backend = Slow()
    compiled = stator.compile(scaled, backend=backend, when="background")
    compiled(X)
    wrong: list[Any] = []

    def call() -> None:
        for step in range(50):
            x = X + step
            if not torch.equal(compiled(x), scaled(x)):
                wrong.append(step)
            if step == 20:
                backend.go.set()

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stator.wait(timeout=LONG)
    assert torch.equal(compiled(X), scaled(X))
    assert not wrong and len(backend.asked) == 1 and stats(compiled).tiers == ["compiled"]


def test_reset_cancels() -> None:
    backend = Slow()
    compiled = stator.compile(scaled, backend=backend, when="background")
    compiled(X)
    assert backend.begun.wait(LONG)
    stator.reset()
    assert stats(compiled).tiers == []
    # It's asked anew, for the new trace.
    assert torch.equal(compiled(X), scaled(X))
    assert torch.equal(swapped(compiled, backend, X), scaled(X))
    assert len(backend.asked) == 2 and stats(compiled).tiers == ["compiled"]


def test_what_is_dropped_isnt_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_background, "QUIET", 1e6)
    backend = Slow()
    compiled = stator.compile(lambda x: x * 2, backend=backend, when="background")
    known, x = weakref.ref(compiled), torch.ones(3)
    compiled(x)
    data = weakref.ref(x)
    del compiled, x
    gc.collect()
    assert known() is None and data() is None
    assert stator.wait(timeout=LONG)
    assert not backend.begun.is_set()


def test_what_is_dropped_while_it_is_compiled() -> None:
    backend = Slow()
    compiled = stator.compile(lambda x: x * 2, backend=backend, when="background")
    known = weakref.ref(compiled)
    compiled(X)
    assert backend.begun.wait(LONG)
    del compiled
    gc.collect()
    assert known() is None
    backend.go.set()
    assert stator.wait(timeout=LONG)


def test_a_backend_that_fails() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled, backend = made(scaled, no_compiler, X)
    with pytest.warns(stator.BackendFailedWarning, match="no compiler here") as given:
        for _ in range(3):
            assert torch.equal(compiled(X), scaled(X))
    assert len(given) == 1 and stats(compiled).tiers == ["failed"] and len(backend.asked) == 1
    assert "begins in scaled" in str(given[0].message)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, MemoryError])
def test_what_ends_a_program_ends_no_thread_of_stators(error: type[BaseException]) -> None:
    def ends(graph: Any) -> Any:
        raise error

    compiled, _ = made(scaled, ends, X)
    with pytest.warns(stator.BackendFailedWarning, match=error.__name__):
        assert torch.equal(compiled(X), scaled(X))
    assert torch.equal(compiled(X), scaled(X))
    assert stats(compiled).tiers == ["failed"]


def test_strict_raises_at_a_call() -> None:
    compiled, _ = made(scaled, no_compiler, X)
    with stator.config.patch(strict=True), pytest.raises(RuntimeError, match="no compiler here"):
        compiled(X)
    assert torch.equal(compiled(X), scaled(X))


def test_what_is_no_code() -> None:
    backend = Slow()
    backend.go.set()
    compiled = stator.compile(
        scaled, backend=lambda graph, inputs: (backend(graph, inputs), None)[1], when="background"
    )
    compiled(X)
    assert stator.wait(timeout=LONG)
    with pytest.warns(stator.BackendFailedWarning, match="returned None"):
        assert torch.equal(compiled(X), scaled(X))


def test_a_backend_sees_the_modes_of_the_call() -> None:
    seen: list[Any] = []

    def look(graph: Any) -> Any:
        seen.append(
            (
                torch.is_grad_enabled(),
                torch.is_inference_mode_enabled(),
                torch.is_autocast_enabled("cpu"),
                torch.get_autocast_dtype("cpu"),
                torch.get_default_device(),
            )
        )
        return graph

    backend = Slow(look)
    backend.go.set()
    compiled = stator.compile(scaled, backend=backend, when="background")
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        compiled(X)
    with torch.inference_mode():
        compiled(X)
    compiled(X)
    assert stator.wait(timeout=LONG)
    here = torch.device("cpu")
    assert seen == [
        (False, False, True, torch.bfloat16, here),
        (False, True, False, torch.bfloat16, here),
        (True, False, False, torch.bfloat16, here),
    ]
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def test_a_backend_may_call_what_is_compiled() -> None:
    inner = stator.compile(lambda x: x + 1)
    found: list[Tensor] = []

    def calls(graph: Any) -> Any:
        found.extend(inner(X) for _ in range(3))
        return graph

    backend = Slow(calls)
    compiled = stator.compile(scaled, backend=backend, when="background")
    compiled(X)
    assert torch.equal(swapped(compiled, backend, X), scaled(X))
    assert all(torch.equal(each, X + 1) for each in found) and stats(inner).hits == 2


def test_a_backend_cant_wait_for_itself() -> None:
    def waits(graph: Any) -> Any:
        stator.wait()

    backend = Slow(waits)
    backend.go.set()
    compiled = stator.compile(scaled, backend=backend, when="background")
    compiled(X)
    assert stator.wait(timeout=LONG)
    with pytest.warns(stator.BackendFailedWarning, match="it is what compiles"):
        compiled(X)


def test_the_thread_gives_way_to_calls() -> None:
    """It does nothing but call functions, while another does nothing but call a compiled one."""
    is_enough = threading.Event()

    def nothing() -> None:
        pass

    def busy(graph: Any) -> Any:
        while not is_enough.is_set():
            nothing()
        return graph

    backend = Slow(busy)
    backend.go.set()
    compiled = stator.compile(scaled, backend=backend, when="background")
    compiled(X)
    assert backend.begun.wait(LONG)
    before = stator._stator._parked()
    calls = 0
    while stator._stator._parked() < before + 3:
        assert torch.equal(compiled(X), scaled(X))
        calls += 1
        assert calls < 1_000_000
    is_enough.set()
    assert torch.equal(swapped(compiled, backend, X), scaled(X))


def test_slow_backends_by_default() -> None:
    backend = Slow()
    stator.register_backend(backend, name="slow_by_default", slow=True)
    for chosen in ("slow_by_default", backend):
        compiled = stator.compile(scaled, backend=chosen)
        compiled(X)
        assert torch.equal(compiled(X), scaled(X))
        assert stats(compiled).tiers in (["waiting"], ["compiling"])
    # The backend must not be waited for here: it waits for `go`.
    backend.go.set()
    asked = stator.compile(scaled, backend="slow_by_default", when="second_call")
    asked(X)
    asked(X)
    assert stats(asked).tiers == ["compiled"]


def test_others_are_waited_for_by_default() -> None:
    backend = Slow()
    backend.go.set()
    compiled = stator.compile(scaled, backend=backend)
    compiled(X)
    compiled(X)
    assert stats(compiled).tiers == ["compiled"]
    assert backend.threads == [threading.current_thread()]


def test_deterministic_programs_swap_at_a_fixed_call() -> None:
    backend = Slow()
    backend.go.set()
    stator.register_backend(backend, name="slow_and_fixed", slow=True)
    compiled = stator.compile(scaled, backend="slow_and_fixed")
    told = stator.compile(scaled, backend="slow_and_fixed", when="background")
    torch.use_deterministic_algorithms(True)
    try:
        for call in range(3):
            assert torch.equal(compiled(X), scaled(X))
            assert (len(backend.asked), backend.ran) == (1, call)
        assert backend.threads == [threading.current_thread()]
        told(X)
        assert stator.wait(told, timeout=LONG)
        assert backend.threads[-1] is not threading.current_thread()
    finally:
        torch.use_deterministic_algorithms(False)


def test_the_setting_of_the_process() -> None:
    backend = Slow()
    backend.go.set()
    compiled = stator.compile(scaled, backend=backend, dynamic=False)
    told = stator.compile(scaled, backend=backend, when="second_call")
    with stator.config.patch(when="background"):
        compiled(X)
        assert stator.wait(timeout=LONG)
        assert backend.threads[0] is not threading.current_thread()
        told(X)
        told(X)
        assert backend.threads[1] is threading.current_thread()
    with stator.config.patch(when="call:3"):
        for asked in (2, 2, 3):
            compiled(X[:1])
            assert len(backend.asked) == asked
    assert stator.config.when is None
    with pytest.raises(ConfigError, match=r"stator\.config\.when takes 'background', .*not 'soon'"):
        stator.config.when = "soon"


def test_what_wait_takes() -> None:
    assert stator.wait(timeout=0)
    with pytest.raises(NotCompilableError, match=r"stator\.wait takes what stator\.compile"):
        stator.wait(scaled)
    assert stator.wait(stator.compile(scaled), timeout=0)
    assert issubclass(NotCompilableError, ApiError)


def test_the_log(caplog: pytest.LogCaptureFixture) -> None:
    backend = Slow()
    backend.go.set()
    compiled = stator.compile(scaled, backend=backend, when="background")
    compiled(X)
    assert stator.wait(timeout=LONG)
    with caplog.at_level(logging.INFO, "stator.background"):
        compiled(X)
        compiled(X)
    [record] = [record for record in caplog.records if record.name == "stator.background"]
    assert record.getMessage().startswith("from call 2 on the code of <background.slow.Slow")
    assert "begins in scaled" in record.getMessage()
    assert "differ from the replay's by 0 at most" in record.getMessage()


def test_threads_that_end_leave_nothing_to_pytorch() -> None:
    """PyTorch would use what the first thread that entered its fake mode has owned."""

    def fakes(graph: Any) -> Any:
        with FakeTensorMode():
            pass
        return graph

    for _ in range(3):
        backend = Slow(fakes)
        compiled = stator.compile(scaled, backend=backend, when="background")
        compiled(X)
        assert torch.equal(swapped(compiled, backend, X), scaled(X))
        backend.threads[0].join(LONG)
        assert stats(compiled).tiers == ["compiled"]


def test_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    x = torch.ones(3)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fails)
        compiled = stator.compile(lambda x: x * 3, backend=Slow(), when="background")
        with pytest.warns(stator.BackendFailedWarning, match="in: can't start new thread") as given:
            for _ in range(3):
                assert torch.equal(compiled(x), x * 3)
    assert len(given) == 1 and stats(compiled).tiers == ["failed"]
    # Others may be compiled later on.
    other, _ = made(lambda x: x * 4, lambda graph: graph, x)
    other(x)
    assert stats(other).tiers == ["compiled"]
