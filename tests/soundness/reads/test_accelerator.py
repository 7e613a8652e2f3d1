"""What is selected of an accelerator is guarded where a trace touches its tensors.

There is none here: tensors on `meta` are taken for its tensors, and a stand-in is asked.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator
from stator import _testing

from ..probe import Probe

if api.PLAIN:
    pytest.skip("it looks into guards", allow_module_level=True)

X = torch.ones(3)
NAMES = iter(range(1000))


class Accelerator:
    """Two devices, as `torch.cuda` tells of them."""

    def __init__(self) -> None:
        self.started = True
        self.device = 0
        self.streams = [0, 0]
        self.asked = 0
        self.default_generators: tuple[torch.Generator, ...] = ()

    def is_initialized(self) -> bool:
        return self.started

    def device_count(self) -> int:
        return len(self.streams)

    def current_device(self) -> int:
        assert self.started
        self.asked += 1
        return self.device

    def current_stream(self, device: int) -> Any:
        assert self.started
        self.asked += 1
        return SimpleNamespace(stream_id=self.streams[device])


@pytest.fixture
def accelerator() -> Iterator[Accelerator]:
    api.reset()
    made = Accelerator()
    with _testing.accelerator("meta", made):
        yield made
    api.reset()


def makes(x: Tensor) -> Any:
    return x + 1, torch.zeros(3, device="meta")


def receives(x: Tensor) -> Any:
    return x * 2


def moves(x: Tensor) -> Any:
    return (x + 1).to("meta").shape


CASES = {"makes": (makes, X), "receives": (receives, X.to("meta")), "moves": (moves, X)}


def guards(compiled: Any) -> list[list[str]]:
    """Of each of its traces."""
    return compiled.guards()  # type: ignore[no-any-return]


def traces(probe: Probe, *args: Any) -> int:
    probe.right(*args)
    return api.traces(probe.compiled) or 0


def select_device(accelerator: Accelerator, number: int) -> None:
    accelerator.device = number


def select_stream(accelerator: Accelerator, number: int) -> None:
    accelerator.streams[0] = number


@pytest.mark.parametrize("select", [select_device, select_stream])
@pytest.mark.parametrize("name", CASES)
def test_what_is_selected(accelerator: Accelerator, name: str, select: Any) -> None:
    fn, x = CASES[name]
    probe = Probe(fn)
    probe.right(x)
    probe.steady(x)
    select(accelerator, 1)
    assert traces(probe, x) == 2
    probe.steady(x)
    select(accelerator, 0)
    probe.steady(x)
    assert all(any("check_accelerator" in guard for guard in one) for one in guards(probe.compiled))


def test_a_new_stream_at_each_call(accelerator: Accelerator) -> None:
    """Which one it is doesn't matter: operations of a replay run on the one that is selected."""
    made = iter(range(5, 100))

    @stator.disable  # a break, as `with torch.cuda.stream(torch.cuda.Stream())` is
    def enter() -> None:
        accelerator.streams[0] = next(made)

    @stator.disable
    def leave() -> None:
        accelerator.streams[0] = 0

    def fn(x: Tensor) -> Any:
        y = makes(x)
        enter()
        z = makes(x * 2)
        leave()
        return y, z

    probe = Probe(fn)
    for _ in range(3):
        probe.right(X)
    before = api.traces(probe.compiled)
    for _ in range(20):
        probe.right(X)
    assert api.traces(probe.compiled) == before

    handed_in = Probe(makes)
    for stream in (0, 3, 4, 0, 9, 8):
        accelerator.streams[0] = stream
        handed_in.right(X)
    assert api.traces(handed_in.compiled) == 2


def test_streams_of_other_devices(accelerator: Accelerator) -> None:
    probe = Probe(makes)
    probe.right(X)
    accelerator.streams[1] = 7
    probe.steady(X)


def test_behind_a_break(accelerator: Accelerator) -> None:
    """Each trace has its own guard: here the device is selected between them."""

    def fn(x: Tensor, to: int) -> Any:
        y = x + 1
        accelerator.__setattr__("device", to)
        print(end="")
        return y, torch.zeros(3, device="meta")

    probe = Probe(fn)
    for to in (0, 0, 1, 1, 0, 1):
        probe.right(X, to)


def test_traces_without_its_tensors_dont_ask(accelerator: Accelerator) -> None:
    probe = Probe(lambda x: x * 2)
    probe.right(X)
    accelerator.asked = 0
    probe.steady(X)
    assert accelerator.asked == 0
    accelerator.device = 1
    probe.steady(X)
    assert not any("accelerator" in guard for one in guards(probe.compiled) for guard in one)


def test_it_is_never_started(accelerator: Accelerator) -> None:
    """The stand-in fails if it is asked before it is started."""
    accelerator.started = False
    for fn, x in CASES.values():
        probe = Probe(fn)
        probe.right(x)
        probe.steady(x)


def test_what_it_says(accelerator: Accelerator, caplog: pytest.LogCaptureFixture) -> None:
    compiled = api.compile(makes)
    compiled(X)
    accelerator.device = 1
    stator.set_logs(recompiles=True)
    try:
        compiled(X)
    finally:
        stator.set_logs(recompiles=False)
    (message,) = [record.getMessage() for record in caplog.records]
    guard = (
        "___check_accelerator(torch.device('meta:0') is selected, the default stream on device 0)"
    )
    assert any(guard in one for one in guards(compiled))
    assert guard in message
    assert "found torch.device('meta:1') is selected, the default stream on device 0" in message


def test_one_that_cannot_say(accelerator: Accelerator) -> None:
    """What has nothing to do with it is traced, what touches its tensors isn't."""

    def device_count() -> int:
        raise RuntimeError("no driver")

    accelerator.device_count = device_count  # type: ignore[method-assign]
    probe = Probe(lambda x: x * 2)
    probe.right(X)
    probe.steady(X)
    touching = Probe(makes)
    for _ in range(3):
        touching.right(X)
    assert api.hits(touching.compiled) == 0


def starting(accelerator: Accelerator) -> Any:
    """An operation that starts the accelerator, and draws a number with its generator."""

    def kernel(x: Tensor) -> Tensor:
        accelerator.started = True
        if not accelerator.default_generators:
            accelerator.default_generators = (torch.Generator().manual_seed(3),)
        return x + torch.rand(3, generator=accelerator.default_generators[0])

    name = f"stator_accelerator::start{next(NAMES)}"
    operator = torch.library.custom_op(name, kernel, mutates_args=(), schema="(Tensor x) -> Tensor")
    operator.register_fake(torch.empty_like)
    return operator


def test_generators_that_the_first_call_starts(accelerator: Accelerator) -> None:
    """A replay that raises draws the same numbers again when the call is done natively."""
    accelerator.started = False
    start = starting(accelerator)

    def fn(x: Tensor, m: Tensor) -> Tensor:
        y = start(x)
        try:
            return y + torch.linalg.cholesky(m).sum()
        except RuntimeError:
            return y

    good, bad = torch.eye(2), -torch.eye(2)
    compiled = api.compile(fn)
    results = [compiled(X, m) for m in (good, good, bad, good, bad)]
    assert api.traces(compiled) == 1
    accelerator.default_generators[0].manual_seed(3)
    assert all(
        torch.equal(found, fn(X, m))
        for found, m in zip(results, (good, good, bad, good, bad), strict=True)
    )


def test_an_operation_that_selects(accelerator: Accelerator) -> None:
    """No trace is made of it: which device was selected before it can't be told from the graph."""

    def kernel(x: Tensor) -> Tensor:
        accelerator.device = 1 - accelerator.device
        return x.clone()

    name = f"stator_accelerator::select{next(NAMES)}"
    operator = torch.library.custom_op(name, kernel, mutates_args=(), schema="(Tensor x) -> Tensor")
    operator.register_fake(torch.empty_like)
    compiled = api.compile(lambda x: (operator(x), torch.zeros(3, device="meta")))
    for _ in range(3):
        before = accelerator.device
        compiled(X)
        assert accelerator.device == 1 - before
    assert api.hits(compiled) == 0


def test_without_one() -> None:
    """Without an accelerator nothing is asked, and nothing is started."""
    was_started = torch.cuda.is_initialized()
    compiled = api.compile(makes)
    compiled(X)
    compiled(X)
    assert api.hits(compiled) == 1
    assert torch.cuda.is_initialized() == was_started


def test_a_generator_that_does_not_tell(accelerator: Accelerator) -> None:
    """As CUDA's while a graph is captured: nothing is recorded, and nothing that draws is replayed."""

    own = torch.Generator()

    class Generator:
        tells = True

        def get_state(self) -> Tensor:
            if not Generator.tells:
                raise RuntimeError("Cannot call CUDAGeneratorImpl::current_seed")
            return own.get_state()

        def set_state(self, state: Tensor) -> None:
            own.set_state(state)

    accelerator.default_generators = (Generator(),)  # type: ignore[assignment]

    def kernel(x: Tensor) -> Tensor:
        return x + torch.rand(3, generator=own)

    name = f"stator_accelerator::draw{next(NAMES)}"
    draw = torch.library.custom_op(name, kernel, mutates_args=(), schema="(Tensor x) -> Tensor")
    draw.register_fake(torch.empty_like)

    def draws(x: Tensor) -> Tensor:
        return draw(x) * 2

    def outcomes(fn: Any) -> list[Any]:
        own.manual_seed(3)
        found = []
        for tells in (False, True, True, True, False, False, True, True):
            Generator.tells = tells
            found.append((fn(X), own.get_state()))
        Generator.tells = True
        return found

    compiled, plain = api.compile(draws), api.compile(lambda x: x * 2)
    for ours, expected in zip(outcomes(compiled), outcomes(draws), strict=True):
        assert all(map(torch.equal, ours, expected))
    outcomes(plain)
    # Both are recorded at the second call. What draws nothing is replayed all the time.
    assert (api.traces(compiled), api.hits(compiled), api.native(compiled)) == (1, 4, 3)
    assert (api.traces(plain), api.hits(plain), api.native(plain)) == (1, 6, 1)
    Generator.tells = False
    with pytest.raises(stator.GraphBreakError, match="a random generator does not tell its state"):
        api.compile(draws, fullgraph=True)(X)
    Generator.tells = True


def test_asks_which_device(accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the selected device decides is guarded, without a tensor of the accelerator's too."""
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", accelerator.current_device, raising=False)

    def fn(x: Tensor) -> Tensor:
        return x + 1 + torch.cuda.current_device()

    probe = Probe(fn)
    probe.right(X)
    probe.steady(X)
    accelerator.device = 1
    probe.retraced(X)
    probe.steady(X)
    accelerator.streams[0] = 4  # nothing depends on it
    probe.steady(X)
    accelerator.device = 0
    probe.steady(X)
    guard = "___check_accelerator(torch.device('meta:0') is selected)"
    assert any(guard in line for one in guards(probe.compiled) for line in one)


def test_asks_an_accelerator_that_is_not_started(accelerator: Accelerator) -> None:
    """The question starts it, or raises: it is asked natively."""
    accelerator.started = False
    probe = Probe(lambda x: x + torch.cuda.current_device() if x.shape[0] < 3 else x)
    probe.right(X)
    probe.steady(X)
    for _ in range(3):
        probe.right(X[:2])


def test_asks_for_a_capture(accelerator: Accelerator) -> None:
    """Steps of optimizers ask whether a graph is captured."""
    capturing = False
    accelerator.is_current_stream_capturing = lambda: capturing  # type: ignore[attr-defined]
    with _testing.accelerator("meta", accelerator):
        compiled = api.compile(lambda x: x * (2 if torch.cuda.is_current_stream_capturing() else 3))
        for answer in (False, False, True, True, False, True):
            capturing = answer
            assert torch.equal(compiled(X), X * (2 if answer else 3))
        assert (api.traces(compiled), api.hits(compiled)) == (2, 4)
        text = [line for one in guards(compiled) for line in one if "accelerator" in line]
        assert sorted(text) == [
            "___check_accelerator(a graph of meta is captured)",
            "___check_accelerator(no graph of meta is captured)",
        ]
        accelerator._initialized = False  # type: ignore[attr-defined]
        assert torch.equal(compiled(X), X * 3), "what isn't started captures nothing"


def test_nothing_asks_for_devices() -> None:
    """To count CUDA's devices makes it unusable in forked children: a program's own business."""
    program = """
import torch
asked = []
for name in ("_cuda_getDeviceCount", "_cuda_init"):
    setattr(torch._C, name, lambda name=name: asked.append(name) or 0)
import stator
stator.config.skip_unprofitable = False
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(3))])
compiled = stator.compile(lambda x: torch.nn.functional.dropout(x).sin() + 1)
for _ in range(3):
    compiled(torch.ones(3))
assert stator.stats(compiled).hits == 2
assert not asked, asked
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def clones(call: Callable[[], Any]) -> int:
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, acc_events=True) as profiler:
        call()
    return sum(event.count for event in profiler.key_averages() if event.key == "aten::clone")


@pytest.mark.parametrize("kind", ["plain", "may raise", "handled"])
def test_copies_while_a_graph_is_captured(accelerator: Accelerator, kind: str) -> None:
    """A replay makes none: they would be part of the graph. One that needs them runs natively: where the program may
    handle want of memory. What an operation raises for its inputs leaves by an exit, without copies."""
    copied = kind == "handled"
    capturing = False
    accelerator.is_current_stream_capturing = lambda: capturing  # type: ignore[attr-defined]

    def writes(x: Tensor, m: Tensor) -> Tensor:
        x.mul_(2)
        if kind != "handled":
            return (torch.linalg.cholesky(m) if kind == "may raise" else m) + x[0]
        try:
            return m + x[0]
        except RuntimeError:
            return m

    with _testing.accelerator("meta", accelerator):
        for is_first in (True, False):
            compiled = api.compile(writes)
            x, m = torch.ones(3), torch.eye(2)
            for _ in range(1 if is_first else 3):
                compiled(x, m)
            capturing = True
            before, hits = x.clone(), api.hits(compiled)
            assert clones(lambda: compiled(x, m)) == 0
            assert torch.equal(x, before * 2)
            capturing = False
            assert api.hits(compiled) == hits + (not copied)  # type: ignore[operator]
            assert clones(lambda: compiled(x, m)) == copied


def test_autocast_asks_for_bfloat16(
    accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`torch.autocast("cuda", dtype=torch.bfloat16)` is part of the graph, where there is a device that has it."""
    major = 9
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", lambda: 1, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", accelerator.current_device, raising=False)
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(major=major)
    )
    monkeypatch.setattr(torch.cuda, "_check_bf16_tensor_supported", lambda device: False)

    def fn(x: Tensor) -> Any:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = x + 1, torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
        return y, torch.is_autocast_enabled("cuda")

    probe = Probe(fn)
    probe.right(X)
    probe.steady(X)
    assert api.breaks(probe.compiled) == 0
    major, accelerator.device = 7, 1
    probe.right(X)
    assert "RuntimeError" in probe.last[0]
    major, accelerator.device = 9, 0
    probe.steady(X)
