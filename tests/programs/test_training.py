"""Training inside programs: gradients by every way that PyTorch offers for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from programs.common import F32, I64, check, frames, random, spec
from torch import nn

from stator.errors import ProgramError
from stator.programs import TensorProgram

W, B = spec(4, 3), spec(3)
X, Y = spec(None, 4), spec(None, dtype=I64)


def by_grad(w: Any, b: Any, x: Any, y: Any) -> Any:
    for _ in range(3):
        w, b = w.detach().requires_grad_(), b.detach().requires_grad_()
        loss = F.cross_entropy(x @ w + b, y)
        dw, db = torch.autograd.grad(loss, [w, b])
        w, b = w - 0.1 * dw, b - 0.1 * db
    return {"w": w, "b": b, "loss": loss}


def by_backward(w: Any, b: Any, x: Any, y: Any) -> Any:
    w, b = w.clone().requires_grad_(), b.clone().requires_grad_()
    for _ in range(3):
        loss = F.cross_entropy(x @ w + b, y)
        loss.backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
            b -= 0.1 * b.grad
            w.grad.zero_()
            b.grad = None
    return w, b, loss


def on_inputs(w: Any, b: Any, x: Any, y: Any) -> Any:
    w.requires_grad_()
    b.requires_grad_()
    F.cross_entropy(x @ w + b, y).backward()
    return w.grad, b.grad


def accumulated(w: Any, b: Any, x: Any, y: Any) -> Any:
    w = w.clone().requires_grad_()
    for part, labels in zip(x.chunk(1), y.chunk(1), strict=True):
        F.cross_entropy(part @ w, labels).backward()
        first = w.grad
        F.cross_entropy(part @ w, labels, reduction="sum").backward()
        assert first is w.grad
    return w.grad


def by_func(w: Any, b: Any, x: Any, y: Any) -> Any:
    def loss(params: Any) -> Any:
        out = F.cross_entropy(x @ params["w"] + params["b"], y)
        return out, x @ params["w"]

    params = {"w": w, "b": b}
    for _ in range(3):
        grads, (value, logits) = torch.func.grad_and_value(loss, has_aux=True)(params)
        params = {name: params[name] - 0.1 * grads[name] for name in params}
    return params, value, logits


def nested(w: Any, b: Any, x: Any, y: Any) -> Any:
    def cube(t: Any) -> Any:
        return (t**3).sum()

    def slope(t: Any) -> Any:
        return torch.func.grad(cube)(t).sum()

    inner = torch.func.grad(slope)(b)
    both = torch.func.grad(lambda p, q: (p * q).sum(), argnums=(0, 1))(b, b + 1)
    first, second = torch.func.grad(lambda p, q: (p**2).sum())(w, b), w.sum()
    return inner, both, first, second


def penalty(w: Any, b: Any, x: Any, y: Any) -> Any:
    w = w.clone().requires_grad_()
    (g,) = torch.autograd.grad((w**3).sum(), [w], create_graph=True)
    (h,) = torch.autograd.grad((g**2).sum(), [w])
    return g, h


def of_data(w: Any, b: Any, x: Any, y: Any) -> Any:
    x = x.clone().requires_grad_()
    per_row = F.cross_entropy(x @ w + b, y, reduction="none")
    (g,) = torch.autograd.grad(per_row, x, grad_outputs=torch.ones_like(per_row))
    return g, g.shape[0]


def unused(w: Any, b: Any, x: Any, y: Any) -> Any:
    w, b = w.clone().requires_grad_(), b.clone().requires_grad_()
    first, second = torch.autograd.grad(w.sum(), [w, b], allow_unused=True)
    return first, second is None, torch.func.grad(lambda t: w.sum())(b)


def made_inside(w: Any, b: Any, x: Any, y: Any) -> Any:
    layer = nn.Linear(4, 3)
    with torch.no_grad():
        layer.weight.copy_(w.T)
        layer.bias.copy_(b)
    loss = F.cross_entropy(layer(x), y)
    loss.backward()
    return layer.weight.grad, layer.bias.grad, layer.weight - layer.weight.grad


LENT = nn.Sequential(nn.Linear(4, 3), nn.Tanh())


def lent(w: Any, b: Any, x: Any, y: Any) -> Any:
    def loss(params: Any) -> Any:
        return F.cross_entropy(torch.func.functional_call(LENT, params, (x,)), y)

    params = {"0.weight": w.T.contiguous(), "0.bias": b}
    return torch.func.grad(loss)(params)


FUNCTIONS = [
    by_grad, by_backward, on_inputs, accumulated, by_func, nested, penalty, of_data, unused,
    made_inside, lent,
]  # fmt: skip


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_gradients(fn: Callable[..., Any]) -> None:
    program = TensorProgram.trace(fn, (W, B, X, Y))

    def fresh(*args: torch.Tensor) -> Any:
        return fn(*(arg.clone() for arg in args))

    for size in (1, 3, 6):
        given = random(W, B, X, Y, size=size)
        check(program, fresh, *given)
        assert all(tensor.grad is None and not tensor.requires_grad for tensor in given)


def test_gradient_of_a_tensor_from_outside() -> None:
    """It may be read, not written."""
    weight = torch.randn(4, requires_grad=True)

    def fn(x: torch.Tensor) -> Any:
        return torch.autograd.grad((x * weight).sum(), [weight])[0]

    program = TensorProgram.trace(fn, (spec(None, 4),))
    assert "requires_grad" in program.text
    check(program, fn, torch.randn(2, 4))
    assert weight.grad is None


def test_backward_to_a_tensor_from_outside() -> None:
    weight = torch.randn(4, requires_grad=True)

    def fn(x: torch.Tensor) -> Any:
        loss = (x * weight).sum()
        loss.backward()
        return loss

    with pytest.raises(ProgramError, match="writes the gradient of a tensor from outside") as met:
        TensorProgram.trace(fn, (spec(None, 4),))
    assert weight.grad is None
    assert frames(met.value)[-1] == ("fn", "loss.backward()")
    assert met.value.stack[-1][2].endswith("fn")


def test_nothing_to_differentiate() -> None:
    def fn(x: torch.Tensor) -> Any:
        x.sum().backward()

    with pytest.raises(RuntimeError, match="does not require grad") as met:
        TensorProgram.trace(fn, (spec(3),))
    assert frames(met.value)[-1] == ("fn", "x.sum().backward()")


def test_many_steps() -> None:
    """Gradients keep nothing of the steps before: programs are as long as the steps are many."""

    def fn(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        for _ in range(50):
            w = w - 0.01 * torch.func.grad(lambda w: ((x @ w) ** 2).mean())(w)
        return w

    program = TensorProgram.trace(fn, (spec(4), X))
    assert "create_graph=True" not in program.text
    check(program, fn, torch.randn(4), torch.randn(5, 4))
    assert program.outputs[0].dtype == F32
