"""The mode that the recorder pushes around C code is gone when the call is."""

from __future__ import annotations

import contextlib
import functools
import gc
import operator
import sys
import threading
from collections.abc import Iterator

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
