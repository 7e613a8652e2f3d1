"""The mode that the recorder pushes around C code is gone when the call is."""

from __future__ import annotations

import functools
import operator

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
