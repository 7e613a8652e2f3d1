"""PyTorch's machinery: a call of it is one break, wherever its own frames would break."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.utils.checkpoint import checkpoint

import stator

Program = Callable[[Tensor], Any]


class Exp(torch.autograd.Function):
    """`exp`, with a backward pass of its own."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return grad * y


def cond(x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x * 2,)) * 3


def vmap(x: Tensor) -> Any:
    return torch.vmap(lambda row: row * row.sum())(x * 2) + 1


def grad(x: Tensor) -> Any:
    return torch.func.grad(lambda y: (y**3).sum())(x * 2) + 1


def jacobian(x: Tensor) -> Any:
    return torch.func.jacrev(lambda y: y**3)(x[0] * 2) + 1


def forward_mode(x: Tensor) -> Any:
    value, tangent = torch.func.jvp(lambda y: y**3, (x * 2,), (x,))
    return value + 1, tangent * 2


def custom_function(x: Tensor) -> Any:
    return Exp.apply(x * 2) + 1


def checkpointed(x: Tensor) -> Any:
    return checkpoint(lambda y: torch.relu(y @ y.t()), x * 2, use_reentrant=False) + 1


PROGRAMS: list[Program] = [
    cond,
    vmap,
    grad,
    jacobian,
    forward_mode,
    custom_function,
    checkpointed,
]


def leaves(value: Any) -> list[Tensor]:
    return list(value) if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_results(program: Program) -> None:
    compiled = stator.compile(program)
    inputs = [torch.randn(3, 4) for _ in range(3)] + [torch.randn(5, 4), torch.randn(3, 4)]
    for x in inputs:
        for expected, found in zip(leaves(program(x)), leaves(compiled(x)), strict=True):
            assert torch.equal(expected, found)
    stats = stator.stats(compiled)
    # Another size makes another trace of each kind; the machinery's own frames make none.
    assert (stats.native, stats.traces <= 8) == (0, True), stats


@pytest.mark.parametrize("program", [custom_function, checkpointed], ids=lambda p: p.__name__)
def test_gradients(program: Program) -> None:
    compiled = stator.compile(program)
    for _ in range(3):
        x = torch.randn(3, 4)
        ours, plain = x.clone().requires_grad_(), x.clone().requires_grad_()
        compiled(ours).sum().backward()
        program(plain).sum().backward()
        assert ours.grad is not None and plain.grad is not None
        assert torch.equal(ours.grad, plain.grad)


def test_what_it_reads_changes() -> None:
    scale = [2.0]
    compiled = stator.compile(lambda x: torch.vmap(lambda row: row * scale[0])(x) + 1)
    x = torch.randn(3, 4)
    for factor in (2.0, 2.0, 5.0, 2.0):
        scale[0] = factor
        assert torch.equal(compiled(x), x * factor + 1)


def test_the_break_is_at_the_users_call() -> None:
    compiled = stator.compile(cond)
    compiled(torch.ones(3, 4))
    reason = stator.stats(compiled).reason or ""
    assert "SB024" in reason and "test_machinery.py" in reason and reason.endswith("in cond)")
    with pytest.raises(stator.GraphBreakError, match="SB024"):
        stator.compile(cond, fullgraph=True)(torch.ones(3, 4))


def test_what_pytorch_puts_around_modules_is_no_machinery() -> None:
    """`torch.compile` wraps `nn.Module.__init__` when it is first used."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    compiled = stator.compile(lambda x: torch.nn.Identity()(x) + 1, fullgraph=True)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
