"""The mode that the recorder pushes around C code is gone when the call is."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import math
import operator
import sys
import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import stator


def test_a_frame_inside_an_operation_that_c_code_calls() -> None:
    packed = []

    def pack(x: Tensor) -> Tensor:
        packed.append(x.shape)
        return x

    def product(x: Tensor, y: Tensor) -> Tensor:
        return functools.reduce(operator.mul, [x, y, x]) + 1

    compiled = stator.compile(product)
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    for _ in range(3):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            expected, expected_packed = product(x, y), len(packed)
            packed.clear()
            found, found_packed = compiled(x, y), len(packed)
            packed.clear()
        assert torch.equal(expected, found) and expected_packed == found_packed == 4
        assert torch._C._len_torch_function_stack() == 0
    assert torch.equal(compiled(x, y), product(x, y))
    assert torch._C._len_torch_function_stack() == 0


def test_a_frame_that_begins_while_pytorch_asks_the_mode() -> None:
    """Wherever something is allocated, a callback of the collector begins a frame."""

    def total(xs: list[Tensor]) -> Tensor:
        return functools.reduce(operator.add, xs) * sum(xs)

    xs = [torch.tensor(float(i)) for i in range(20)]
    expected = total(xs)
    with collecting_everywhere():
        for _ in range(20):
            compiled = stator.compile(lambda xs: total(xs))
            assert torch.equal(compiled(xs), expected)
            assert torch._C._len_torch_function_stack() == 0
            assert torch.equal(compiled(xs), expected)


def finite(xs: list[Tensor]) -> Tensor | None:
    if not all(torch.isfinite(x).all() for x in xs):
        return None
    return functools.reduce(operator.add, (x.sum() for x in xs))


@pytest.mark.parametrize("is_off", [False, True])
def test_no_mode_is_asked(is_off: bool) -> None:
    """Where PyTorch asks no mode, nobody tells what C code does to tensors: nothing is recorded."""

    def within(xs: list[Tensor]) -> Tensor | None:
        with torch._C.DisableTorchFunction():
            return finite(xs)

    compiled, compiled_within = stator.compile(finite), stator.compile(within)
    plain, infinite = [torch.ones(2), torch.ones(3)], [torch.ones(2), torch.tensor(math.inf)]
    for _ in range(2):
        for xs in (plain, plain, infinite, infinite, plain):
            with torch._C.DisableTorchFunction() if is_off else contextlib.nullcontext():
                assert str(compiled(xs)) == str(finite(xs))
            assert str(compiled_within(xs)) == str(finite(xs))
        is_off = not is_off


def switches() -> tuple[bool, ...]:
    return (
        torch._C._is_torch_function_all_disabled(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch._C._autograd._saved_tensors_hooks_is_enabled(),
    )


def test_numbers_are_made_where_hooks_are_refused() -> None:
    """A replay's numbers are tensors, which are made apart from the program's state: it is as before."""
    x = torch.ones(3, requires_grad=True)
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        before = switches()
        for n in range(20):
            number = n + 0.123
            compiled = stator.compile(lambda x, k=number: (x * k + 1).sum() * (k + 1))
            for _ in range(3):
                assert torch.equal(compiled(x), (x * number + 1).sum() * (number + 1))
                assert switches() == before


def test_numbers_are_made_near_the_limit_of_recursion() -> None:
    def at(depth: int, number: float) -> float | None:
        if depth > 0:
            return at(depth - 1, number)
        compiled = stator.compile(lambda x: (x * number + 1).sum() * (number + 1))
        return [compiled(torch.ones(3)).item() for _ in range(3)][-1]

    before, room = switches(), sys.getrecursionlimit() - len(inspect.stack())
    for left in range(120):
        number = left + 0.456
        try:
            found = at(room - left, number)
        except RecursionError:
            assert left < 20
        else:
            assert found == ((torch.ones(3) * number + 1).sum() * (number + 1)).item()
        assert switches() == before


@contextlib.contextmanager
def collecting_everywhere() -> Iterator[None]:
    """Collections are off while a call is recorded; another thread turns them on again."""

    until_end = threading.Event()

    def enable() -> None:
        while not until_end.is_set():
            gc.enable()

    def callback(phase: str, info: dict[str, int]) -> list[str]:
        return [phase]

    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    thread = threading.Thread(target=enable)
    gc.callbacks.append(callback)
    gc.set_threshold(1)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        yield
    finally:
        until_end.set()
        thread.join()
        sys.setswitchinterval(interval)
        gc.set_threshold(*threshold)
        gc.callbacks.remove(callback)
