"""Callables that another process finds by name, and those that only look as if it would."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stator
from stator import stats
from stator._fx import beside
from stator._fx.callables import is_pytorchs


@pytest.mark.parametrize(
    "target",
    [
        torch.ops.aten.add.Tensor,
        torch.ops.aten.add,
        torch.conv2d,
        torch._C._nn.gelu,
        torch._C._set_grad_enabled,
        torch.Tensor.add,
        torch.Tensor.__add__,
        operator.getitem,
        F.mse_loss,
        F.max_pool2d,
    ],
)
def test_pytorchs_own(target: Callable[..., Any]) -> None:
    assert is_pytorchs(target)


def in_disguise(x: Tensor, inplace: bool = False) -> Tensor:
    return x * 2 + 17


functools.update_wrapper(in_disguise, F.silu)


def own(x: Tensor) -> Tensor:
    return x


@torch.no_grad()
def decorated(x: Tensor) -> Tensor:
    return x * 3


@pytest.mark.parametrize(
    "target",
    [
        torch.ops.c10d.barrier,
        own,
        in_disguise,
        decorated,
        torch.no_grad()(in_disguise),
        {}.get,
        torch.ones(3).add,
        numpy.sum,
        numpy.ndarray.sum,
        Tensor,
        object(),
    ],
)
def test_others(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_pytorchs(target)
    # In the place of PyTorch's own it's still another one.
    monkeypatch.setattr(F, "silu", target)
    assert not is_pytorchs(F.silu)


def test_what_stands_in_pytorchs_place_goes_to_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process would find PyTorch's function under the name of the program's."""
    orders: list[Any] = []
    monkeypatch.setattr(beside, "compile_in_process", lambda *order: orders.append(order))
    monkeypatch.setattr(F, "silu", in_disguise)
    stator.allow_in_graph(in_disguise)
    compiled = stator.compile(lambda x: F.silu(x).sin(), backend="inductor", when="background")
    x = torch.randn(6)
    with pytest.warns(stator.BackendFailedWarning, match="it calls code of the program's own"):
        for _ in range(3):
            assert torch.equal(compiled(x), (x * 2 + 17).sin())
            assert stator.wait(timeout=60)
    assert stats(compiled).tiers == ["failed"] and not orders
