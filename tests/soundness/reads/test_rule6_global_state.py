"""Rule 6: global state is guarded at entry; foreign modes make the call native."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ..probe import Probe, Steps, flip, right_after

X = torch.ones(3, 3)


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    yield
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(False)
    torch.set_default_device(None)
    torch.set_float32_matmul_precision("highest")


@flip
def test_grad_mode() -> Steps:
    w = torch.ones(3, 3, requires_grad=True)
    yield (lambda x: x * w), (X,)
    torch.set_grad_enabled(False)
    yield None
    torch.set_grad_enabled(True)
    yield None


@flip
def test_grad_mode_asked_for() -> Steps:
    yield (lambda x: x * 2 if torch.is_grad_enabled() else x), (X,)
    torch.set_grad_enabled(False)
    yield None
    torch.set_grad_enabled(True)
    yield None


@flip
def test_default_dtype() -> Steps:
    yield (lambda x: x + torch.zeros(3)), (X,)
    torch.set_default_dtype(torch.float64)
    yield None
    torch.set_default_dtype(torch.float32)
    yield None


@right_after
def test_default_device() -> Steps:
    yield (lambda x: torch.zeros(3).device.type), (X,)
    torch.set_default_device("meta")
    yield None
    torch.set_default_device(None)
    yield None


@flip
def test_deterministic_flag() -> Steps:
    yield (lambda x: x + torch.are_deterministic_algorithms_enabled()), (X,)
    torch.use_deterministic_algorithms(True)
    yield None
    torch.use_deterministic_algorithms(False)
    yield None


@right_after
def test_matmul_precision() -> Steps:
    yield (lambda x: (x, torch.get_float32_matmul_precision())), (X,)
    torch.set_float32_matmul_precision("high")
    yield None


@right_after
def test_number_of_threads() -> Steps:
    before = torch.get_num_threads()
    yield (lambda x: x * torch.get_num_threads()), (X,)
    torch.set_num_threads(before + 1)
    yield None
    torch.set_num_threads(before)
    yield None


MANAGERS: dict[str, Any] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast bfloat16": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast float16": lambda: torch.autocast("cpu", dtype=torch.float16),
    "autocast off": lambda: torch.autocast("cpu", enabled=False),
    "anomaly": torch.autograd.detect_anomaly,
    "saved tensor hooks": lambda: torch.autograd.graph.saved_tensors_hooks(
        lambda v: v * 1, lambda v: v
    ),
    "no attention backends but math": lambda: torch.nn.attention.sdpa_kernel(
        torch.nn.attention.SDPBackend.MATH
    ),
    "forward AD": torch.autograd.forward_ad.dual_level,
}


def _read(x: Tensor, w: Tensor) -> tuple[Any, ...]:
    y = x @ w
    return y, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), y.dtype


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("name", MANAGERS)
def test_entered_after_recording(name: str) -> None:
    w = torch.ones(3, 3, requires_grad=True)
    probe = Probe(_read)
    probe.right(X, w)
    probe.right(X, w)
    with MANAGERS[name]():
        probe.right(X, w)
        probe.right(X, w)
    probe.steady(X, w)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("name", MANAGERS)
def test_left_after_recording(name: str) -> None:
    w = torch.ones(3, 3, requires_grad=True)
    probe = Probe(_read)
    with MANAGERS[name]():
        probe.right(X, w)
        probe.right(X, w)
    probe.right(X, w)
    probe.right(X, w)
    with MANAGERS[name]():
        probe.right(X, w)


@pytest.mark.parametrize("outer", ["no_grad", "inference_mode", "autocast bfloat16"])
def test_modes_share_no_entry(outer: str) -> None:
    """Plain, then inside, then plain: three right answers, and both entries stay usable."""
    probe = Probe(_read)
    w = torch.ones(3, 3, requires_grad=True)
    probe.right(X, w)
    with MANAGERS[outer]():
        probe.retraced(X, w)
        probe.steady(X, w)
    probe.steady(X, w)


def test_autocast_dtypes_differ() -> None:
    probe = Probe(lambda x: x @ x)
    for dtype in (torch.bfloat16, torch.float16, torch.bfloat16):
        with torch.autocast("cpu", dtype=dtype):
            assert probe.right(X)
            result = probe.compiled(X)
            assert result.dtype is dtype


@pytest.mark.parametrize(
    "device", ["cpu", "cuda", "hpu", "ipu", "maia", "mps", "mtia", "xla", "xpu", "privateuseone"]
)
def test_autocast_dtypes_of_every_device(device: str) -> None:
    """Most of them need no such device to be read and set."""
    before = torch.get_autocast_dtype(device)
    probe = Probe(lambda x: (x + 1, torch.get_autocast_dtype(device)))
    try:
        for dtype in (before, before, torch.float64, torch.float64, torch.float16, before):
            torch.set_autocast_dtype(device, dtype)
            probe.right(X)
    finally:
        torch.set_autocast_dtype(device, before)


def test_inference_tensors_are_another_kind() -> None:
    probe = Probe(lambda x: x + 1)
    probe.right(X)
    with torch.inference_mode():
        inference = torch.ones(3, 3)
    probe.right(inference)
    with torch.inference_mode():
        probe.right(inference)
    probe.right(X)


class Doubling(TorchFunctionMode):
    """Sees every function, and doubles additions."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if getattr(func, "__name__", "") == "add" else result


class Counting(TorchDispatchMode):
    """Counts operators."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def _sum(x: Tensor) -> Tensor:
    return torch.add(x, 1) * x


@pytest.mark.parametrize("recorded_before", [True, False])
def test_function_mode_at_entry(recorded_before: bool) -> None:
    compiled = api.compile(_sum)
    if recorded_before:
        compiled(X)
        compiled(X)
    before = api.native(compiled)
    with Doubling():
        expected = _sum(X)
        for _ in range(2):
            assert torch.equal(compiled(X), expected)
    assert torch.equal(compiled(X), _sum(X))
    if before is not None:
        assert api.native(compiled) == before + 2
        assert api.traces(compiled) == 1


@pytest.mark.parametrize("recorded_before", [True, False])
def test_dispatch_mode_at_entry(recorded_before: bool) -> None:
    compiled = api.compile(_sum)
    if recorded_before:
        compiled(X)
        compiled(X)
    before = api.native(compiled)
    with Counting() as mode:
        _sum(X)
        expected = list(mode.seen)
        mode.seen.clear()
        compiled(X)
        assert mode.seen == expected
    if before is not None:
        assert api.native(compiled) == before + 1
        assert torch.equal(compiled(X), _sum(X))


@pytest.mark.parametrize("recorded_before", [True, False])
def test_under_vmap_and_grad(recorded_before: bool) -> None:
    compiled = api.compile(_sum)
    if recorded_before:
        compiled(X)
        compiled(X)
    assert torch.equal(torch.func.vmap(compiled)(X), torch.func.vmap(_sum)(X))
    ours = torch.func.grad(lambda v: compiled(v).sum())(X)
    assert torch.equal(ours, torch.func.grad(lambda v: _sum(v).sum())(X))
    assert torch.equal(compiled(X), _sum(X))


def test_mode_left_open_by_exception() -> None:
    """Nothing of ours stays behind when a recorded call raises."""

    def fails(x: Tensor) -> Tensor:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            return (x @ x).view(7)

    compiled = api.compile(fails)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="shape"):
            compiled(X)
        assert torch.is_grad_enabled()
        assert not torch.is_autocast_enabled("cpu")
        with contextlib.ExitStack() as stack:
            mode = stack.enter_context(Counting())
            torch.ones(1)
        assert mode.seen


@right_after
def test_torch_jit_trace() -> Steps:
    """Below `torch.jit.trace` a call runs natively, so that the tracer sees what it asks for."""
    compiled: Any = None

    def fn(x: Tensor) -> Tensor:
        return x * 2 if torch.jit.is_tracing() else x * 3

    compiled = api.compile(fn)

    def traced(x: Tensor) -> Tensor:
        return torch.jit.trace(compiled, (x,), check_trace=False)(x)

    for _ in range(3):
        assert torch.equal(compiled(X), X * 3)
    assert torch.equal(traced(X), X * 2)
    assert torch.equal(compiled(X), X * 3)
    yield fn, (X,)


@right_after
def test_cuda_initialized() -> Steps:
    """It becomes true once in a process: here as if CUDA had been initialised."""
    before = torch.cuda._initialized
    yield (lambda x: x * 2 if torch.cuda.is_initialized() else x * 3), (X,)
    torch.cuda._initialized = True
    try:
        yield None
    finally:
        torch.cuda._initialized = before
    yield None
