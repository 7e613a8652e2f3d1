"""Errors of Stator's own never reach the program: the call ends as plain Python ends it, the function runs
natively from then on, and one warning says what to report.

Every stage of Stator's work fails here, at each point where it is passed, with an error and with a panic.
"""

from __future__ import annotations

import collections
import gc
import os
import pickle
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import pytest
import torch
from torch import nn

import stator
import stator.programs
from stator import _stator, _testing
from stator._internal import own_error
from stator.errors import InternalError

CALLS = 5


class World:
    """What programs write to."""

    def __init__(self) -> None:
        self.count = 0
        self.log: list[Any] = []
        self.table: dict[Any, Any] = {}
        self.x = torch.arange(3.0)
        self.large = torch.zeros(2, 3)
        self.deque: collections.deque[int] = collections.deque()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.optimizer = torch.optim.SGD([self.weight], lr=0.5)


def effects(world: World) -> Any:
    world.count += 1
    world.table["last"] = world.x * world.count
    world.log.append(world.count)
    y = world.x * 2
    return sum([y + 1, y - 1]), {"count": world.count}


def breaks(world: World) -> Any:
    y = world.x + 1

    def inner(value: torch.Tensor) -> torch.Tensor:
        world.count += 1
        total = float(value.sum())  # a graph break in an inlined call
        world.log.append(total)
        return value * 2

    z = inner(y) + inner(y * 2)
    print(end="")
    world.log.append("end")
    return z - 1


def raises(world: World) -> Any:
    y = world.x * 2
    try:
        world.log.append("tried")
        y = y @ torch.ones(4, 4)
    except RuntimeError as error:
        world.log.append(type(error).__name__)
        world.count += 1
    if world.count % 2:
        raise ValueError(world.count)
    return y


def modes(world: World) -> Any:
    with torch.no_grad():
        noise = torch.rand(3)
        y = (world.x + noise).relu()
    world.log.append(torch.is_grad_enabled())
    return [float(part) for part in y.tolist()] if world.count else y


def writes(world: World) -> Any:
    """Nothing behind its writes raises, so only an entry's first replay has copies."""
    world.x.add_(1)
    world.count += 1
    y = world.x * 2
    world.large[1].mul_(2).add_(y)
    world.deque.append(world.count)
    world.log.append(world.count)
    with torch.no_grad():
        world.x.mul_(0.5)
    return [y, y - 1, world.large.sum(0)], {"count": world.count}


def writes_and_breaks(world: World) -> Any:
    """Replays behind breaks that go on in frames that are there, and in others."""
    world.x.add_(1)

    def inner(y: torch.Tensor) -> torch.Tensor:
        world.deque.append(len(world.log))
        world.large += y
        try:
            stator.graph_break()
            world.large.mul_(2)
            y = y * world.large[0]
            print(end="")
            world.log.append(y.shape[0])
            return y + 1
        finally:
            world.count += 1

    try:
        y = inner(world.x * 2)
    finally:
        world.x.sub_(0.5)
    stator.graph_break()
    world.x.sub_(0.25)
    return y + world.x


def trains(world: World) -> Any:
    """A step of an optimizer, gradients included."""
    loss = (world.weight * world.x.detach()).exp().mean()
    world.optimizer.zero_grad()
    loss.backward()
    world.log.append(world.weight.grad)
    world.optimizer.step()
    return loss.detach(), world.weight.detach().clone()


def decides(world: World) -> Any:
    """Ways that depend on data, with writes before, between and behind; a number that is carried."""
    world.count += 1
    world.x.add_(world.count - 3)
    total = world.x.sum().item()
    if world.x.sum() > 0:
        world.log.append(total)
        world.large.mul_(2)
    if total < 4:
        world.deque.append(world.count)
        world.x.mul_(0.5)
    return world.x * total, world.large.sum()


class Number:
    """Most of what an instruction may ask in several steps."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __iadd__(self, other: Any) -> Any:
        return NotImplemented

    def __add__(self, other: Any) -> Any:
        return Number(self.value + other.value) if isinstance(other, Number) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return Number(self.value * 10 + other)

    def __eq__(self, other: object) -> Any:
        return NotImplemented

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < other.value)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[int]:
        return iter([self.value, self.value + 1])

    def __getitem__(self, key: int) -> int:
        return self.value + key

    def __setitem__(self, key: int, value: int) -> None:
        self.value += value

    def __contains__(self, item: int) -> bool:
        return item == self.value

    def __format__(self, spec: str) -> str:
        return f"<{self.value}>"

    def __enter__(self) -> Number:
        self.value += 1
        return self

    def __exit__(self, *error: object) -> None:
        self.value -= 1

    def __getattr__(self, name: str) -> int:
        if name.startswith("__"):
            raise AttributeError(name)
        return len(name)

    def __repr__(self) -> str:
        return f"Number({self.value})"


def steps(world: World) -> Any:
    """Instructions that are several calls, of which one may fail when others are done."""
    world.count += 1
    a, b = Number(2), Number(3)
    a += b
    c = Number(1)
    c += Number(4)
    world.log.append((a == b, a < b, bool(a), list(a), a[1], 5 in a, f"{a}", 5 + c, a.other))
    with a as entered:
        y = world.x * entered.value
    a[1] = 2
    for part in b:
        y = y + part
    world.log.append(sorted([3, 1, 2], key=lambda key: -key))
    world.log.append(max([a, b], key=lambda number: number.value).value)
    return sum([world.x, y])


def generates(world: World) -> Any:
    def parts(count: int) -> Any:
        try:
            for number in range(count):
                world.log.append((yield world.x * number))
        finally:
            world.log.append("closed")

    made = parts(3)
    total = next(made) + made.send(7)
    made.close()
    try:
        world.table["missing"]
    except KeyError as error:
        world.log.append(error.args)
    return total, sum(part for part in parts(2))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        for layer in self.layers:
            x = layer(x).relu()
        return x


PROGRAMS = [
    effects,
    breaks,
    raises,
    modes,
    writes,
    writes_and_breaks,
    trains,
    decides,
    steps,
    generates,
]


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def run(function: Callable[[World], Any]) -> str:
    """All that can be told of some calls."""
    torch.manual_seed(0)
    world = World()
    results = [outcome(lambda: function(world)) for _ in range(CALLS)]
    weight = world.weight, world.weight.grad
    return repr((results, vars(world), weight, torch.is_grad_enabled(), torch.rand(1)))


@pytest.fixture(autouse=True)
def lenient() -> Iterator[None]:
    with stator.config.patch(strict=False):
        yield


def nothing_is_left() -> None:
    assert _testing._native.hook_on_top() == "nobody"
    assert gc.isenabled() and not stator.is_compiling()
    assert torch._C._len_torch_function_stack() == 0 and torch.is_grad_enabled()


def bugs(caught: list[warnings.WarningMessage]) -> list[warnings.WarningMessage]:
    return [one for one in caught if issubclass(one.category, stator.InternalErrorWarning)]


def fail(program: Callable[..., Any], backend: str, stage: str, number: int, panics: bool) -> bool:
    """One failure; False: the stage isn't passed so often."""
    expected = run(program)
    fast = stator.compile(program, backend=backend)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with _testing.inject(stage, number, panics=panics) as passed:
            found = run(fast)
    if passed.times < number:
        assert not bugs(caught)
        return False
    assert found == expected, (stage, number)
    assert len(bugs(caught)) == 1, (stage, number)
    assert f"injected {'panic' if panics else 'error'}" in str(bugs(caught)[0].message)
    assert "SB030" in (stator.stats(fast).reason or "")
    nothing_is_left()
    before = stator.stats(fast)
    assert run(fast) == expected
    after = stator.stats(fast)
    assert after.native - before.native == CALLS and after.traces == before.traces
    return True


# Each note would take minutes for all programs; steps of 1, 2, 4, ... reach all parts of a call.
MANY = ("note", "look", "step", "executed", "operation", "kept")


def numbers(stage: str) -> Iterator[int]:
    number = 1
    while True:
        yield number
        number += 1 + number // 4 if stage in MANY else 1


@pytest.mark.parametrize("panics", [False, True], ids=["error", "panic"])
@pytest.mark.parametrize("stage", _testing.stages())
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_every_stage(program: Callable[..., Any], stage: str, panics: bool) -> None:
    for number in numbers(stage):
        if not fail(program, "eager", stage, number, panics):
            break


@pytest.mark.parametrize("panics", [False, True], ids=["error", "panic"])
@pytest.mark.parametrize("stage", ["export", "run", "build", "effect", "replay", "settle"])
@pytest.mark.parametrize("program", [effects, writes], ids=lambda program: program.__name__)
def test_every_stage_of_a_backend(program: Callable[..., Any], stage: str, panics: bool) -> None:
    reached = 0
    while fail(program, "fx", stage, reached + 1, panics):
        reached += 1
    assert reached


def passes(stage: str, program: Callable[..., Any], backend: str) -> int:
    with _testing.inject(stage, 0) as passed:
        run(stator.compile(program, backend=backend))
    return passed.times


def test_every_stage_is_reached() -> None:
    for stage in _testing.stages():
        cases = ((program, backend) for program in PROGRAMS for backend in ("eager", "fx"))
        assert any(passes(stage, program, backend) for program, backend in cases), stage


def test_modules() -> None:
    torch.manual_seed(0)
    net, x = Net(), torch.ones(2, 3)
    expected = net(x)
    net.calls = 0
    fast = stator.compile(net)
    with pytest.warns(stator.InternalErrorWarning) as caught, _testing.inject("note", 20):
        found = [fast(x) for _ in range(3)]
    assert all(torch.equal(one, expected) for one in found) and net.calls == 3
    assert len(caught) == 1 and "Net" in str(caught[0].message)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("stage", ["operation", "build"])
@pytest.mark.parametrize("replays", [0, 1])
def test_a_failing_replay_that_wrote_to_its_inputs(stage: str, replays: int) -> None:
    """A first replay is taken back. Of others nothing knows what the inputs were: the rest is done."""

    def program(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    fast = stator.compile(program)
    x = torch.zeros(2)
    for _ in range(1 + replays):
        fast(x)
    before = x[0].item()
    with pytest.warns(stator.InternalErrorWarning), _testing.inject(stage, 2, panics=True):
        # The second operation; results are made once.
        first = fast(x)
        if stage == "build":
            assert stator.stats(fast).hits == 1 + replays
            first = fast(x) - 2
    assert first.tolist() == [2 * before + 2] * 2
    assert x[0].item() == before + 1 + (stage == "build")
    fast(x)
    assert stator.stats(fast).native >= 1


def test_a_bug_that_comes_again_and_again() -> None:
    """The first replay shows it, and is taken back: though nothing can end a replay, none is lost."""

    def program(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    fast = stator.compile(program)
    x = torch.zeros(2)
    fast(x)
    with pytest.warns(stator.InternalErrorWarning), _testing.inject("build", always=True):
        assert fast(x).tolist() == [4, 4]
    assert fast(x).tolist() == [6, 6]


@pytest.mark.parametrize("panics", [False, True], ids=["error", "panic"])
@pytest.mark.parametrize("stage", ["operation", "kept", "build", "effect"])
def test_a_bug_that_comes_again_and_again_in_a_later_replay(stage: str, panics: bool) -> None:
    """Nothing knows any more what the inputs were: the rest is done once more, and nothing but that."""

    def program(world: World) -> Any:
        world.x.add_(1)
        world.count += 1
        world.large[0].add_(world.x)
        world.log.append(world.count)
        return world.x * world.large.sum()

    plain, world, fast = World(), World(), stator.compile(program)
    expected = [program(plain) for _ in range(5)]
    found = [fast(world) for _ in range(3)]
    with (
        pytest.warns(stator.InternalErrorWarning),
        _testing.inject(stage, always=True, panics=panics),
    ):
        found += [fast(world) for _ in range(2)]
    assert repr((found, vars(world))) == repr((expected, vars(plain)))
    # The later one, and the replay that failed before it had written anything; others had their end.
    assert stator.stats(fast).native == (2 if stage == "operation" else 1)
    nothing_is_left()


def test_a_call_with_keywords_that_is_given_back_to_cpython() -> None:
    """Its names come from an instruction of their own, which CPython executes again."""

    def program(x: torch.Tensor) -> Any:
        return sorted([3, 1, 2], key=lambda key: -key), x + 1

    with _testing.inject("look", 0) as passed:
        stator.compile(program)(torch.ones(2))
    for number in range(1, passed.times + 1):
        fast = stator.compile(program)
        with pytest.warns(stator.InternalErrorWarning), _testing.inject("look", number):
            assert repr(fast(torch.ones(2))) == "([3, 2, 1], tensor([2., 2.]))"


@pytest.mark.parametrize(
    "program",
    [
        lambda x: sorted([x * 3, x, x * 2], key=lambda y: y.sum()),
        lambda x: max([1, 3, 2], key=lambda number: x.sum().item() * number),
        lambda x: any(y.sum() > 3 for y in [x, x * 2]),
    ],
)
def test_looks_within_c_code_that_asks(program: Any) -> None:
    expected = repr(program(torch.ones(2)))
    with _testing.inject("look", 0) as passed:
        stator.compile(program)(torch.ones(2))
    for number in range(1, passed.times + 1):
        fast = stator.compile(program)
        with pytest.warns(stator.InternalErrorWarning), _testing.inject("look", number):
            assert repr(fast(torch.ones(2))) == expected


def test_what_the_call_raises_goes_before() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        raise KeyError(x.shape[0])

    fast = stator.compile(program)
    with pytest.warns(stator.InternalErrorWarning), _testing.inject("note", 2):
        with pytest.raises(KeyError):
            fast(torch.ones(2))


def test_strict() -> None:
    world = World()
    with stator.config.patch(strict=True):
        fast = stator.compile(effects)
        with (
            _testing.inject("note", 5, panics=True),
            pytest.raises(InternalError, match="injected"),
        ):
            fast(world)
        assert world.count == 1  # the call was executed, once
        fast.reset()
        fast(world)
        fast(world)
        with _testing.inject("replay"), pytest.raises(InternalError, match="injected"):
            fast(world)
        assert world.count == 3  # nothing of this one was
    with pytest.raises(stator.errors.ConfigError):
        stator.config.strict = 1  # type: ignore[assignment]


def test_tensor_programs_raise() -> None:
    spec = stator.programs.TensorSpec(torch.float32, (2,))
    with _testing.inject("note", 3), pytest.raises(InternalError, match="injected"):
        stator.programs.TensorProgram.trace(lambda x: x + 1, (spec,))
    nothing_is_left()


# -- whose error it is ---------------------------------------------------------------------------


def test_interrupts_are_the_users() -> None:
    for error in (KeyboardInterrupt(), SystemExit(1), MemoryError(), GeneratorExit()):
        assert own_error(error) is None
    assert own_error(stator.errors.BackendError("told")) is None
    assert own_error(RuntimeError("no frame: it comes from Rust")) == (
        "RuntimeError: no frame: it comes from Rust"
    )
    try:
        raise TimeoutError("a signal handler of the program")
    except TimeoutError as error:
        assert own_error(error) is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError, TimeoutError])
def test_interrupts_while_a_graph_is_exported(error: type[BaseException]) -> None:
    """They come in the middle of Stator's own Python code."""

    def handler(*_: object) -> None:
        raise error

    old = signal.signal(signal.SIGUSR1, handler)
    make = torch.fx.Graph.lint

    def lint(graph: torch.fx.Graph) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        make(graph)  # type: ignore[no-untyped-call]

    fast = stator.compile(lambda x: x + 1, backend="fx")
    fast(torch.ones(2))
    try:
        torch.fx.Graph.lint = lint  # type: ignore[method-assign, assignment]
        with pytest.raises(error):
            fast(torch.ones(2))
    finally:
        torch.fx.Graph.lint = make  # type: ignore[method-assign]
        signal.signal(signal.SIGUSR1, old)
    assert fast(torch.ones(2)).tolist() == [2, 2] and stator.stats(fast).hits == 1


def test_errors_around_a_backend_are_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise AssertionError("torch.fx has changed")

    fast = stator.compile(lambda x: x + 1, backend="fx")
    fast(torch.ones(2))
    monkeypatch.setattr(torch.fx.Graph, "create_node", broken)
    broken.__code__ = broken.__code__.replace(co_filename=torch.fx.__file__)
    with pytest.warns(stator.InternalErrorWarning, match="AssertionError: torch.fx has changed"):
        assert fast(torch.ones(2)).tolist() == [2, 2]


def test_errors_of_a_backend_are_not_stators_own() -> None:
    def backend(module: object, inputs: object) -> Any:
        raise ZeroDivisionError("mine")

    fast = stator.compile(lambda x: x + 1, backend=backend)
    fast(torch.ones(2))
    with pytest.warns(stator.BackendFailedWarning, match="ZeroDivisionError: mine"):
        assert fast(torch.ones(2)).tolist() == [2, 2]
    assert stator.stats(fast).native == 0


def test_the_text_of_an_error_starts_no_process() -> None:
    program = (
        "import subprocess, os, sys\n"
        "from stator.errors import InternalError\n"
        "def refuse(*args, **kwargs): raise SystemExit('a process was started')\n"
        "subprocess.Popen.__init__ = refuse\n"
        "os.fork = os.posix_spawn = os.popen = os.system = refuse\n"
        "sys.modules['torch'] = object()\n"
        "print(InternalError('found'))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "Stator has a bug: found" in done.stdout and "torch unknown" in done.stdout, done.stderr


def test_errors_and_warnings_travel() -> None:
    error = InternalError("found")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_stages_cost_nothing_when_none_fails() -> None:
    assert _stator._inject_nothing() >= 0
    with pytest.raises(RuntimeError, match="no stage"):
        _stator._inject("nowhere", 1, False, False, 0)


def test_what_a_signal_handler_raises_is_the_users_wherever_it_was_raised() -> None:
    """The innermost frame is PyTorch's here; a handler is on the way."""

    def handler(number: int, frame: Any) -> None:
        nn.Sequential()[3]

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(IndexError) as caught:
            signal.raise_signal(signal.SIGUSR1)
        assert own_error(caught.value) is None
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(IndexError) as other:
        nn.Sequential()[3]
    other.value.__traceback__ = innermost(other.value.__traceback__)
    assert own_error(other.value) is not None


def innermost(tb: TracebackType | None) -> TracebackType | None:
    while tb is not None and tb.tb_next is not None:
        tb = tb.tb_next
    return tb
