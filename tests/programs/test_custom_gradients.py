"""`torch.autograd.Function`s of the program's: `backward` is traced where the gradients have come to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stator.programs import TensorProgram, TensorSpec

X = TensorSpec(torch.float32, (4, 3))


class Rounded(torch.autograd.Function):
    """Straight through."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.round(x * 4) / 4

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class Clipped(torch.autograd.Function):
    """Gradients within a bound: nothing that is linear in them."""

    @staticmethod
    def forward(x: Tensor, bound: float) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.bound = inputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.clamp(-ctx.bound, ctx.bound), None


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


class Scaled(torch.autograd.Function):
    """Two inputs, two results, one of which has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        made = x * w
        place = made.argmax(1)
        ctx.mark_non_differentiable(place)
        ctx.save_for_backward(x, w, made)
        return made, place

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor | None, Tensor | None]:
        x, w, made = ctx.saved_tensors
        of_x = gradient * w * made.sign() if ctx.needs_input_grad[0] else None
        return of_x, (gradient * x).sum(0) if ctx.needs_input_grad[1] else None


class Split(torch.autograd.Function):
    """Gradients of results that nobody uses are zeros, or nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, is_told: bool) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(is_told)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, first: Any, second: Any) -> tuple[Tensor, None]:
        if first is None:
            return second * 5, None
        return first * 7 + (second if second is not None else 100), None


def start(x: Tensor) -> Tensor:
    return (x.detach() * 1.5 + 0.1).requires_grad_()


def straight(x: Tensor) -> Any:
    w = start(x)
    return torch.autograd.grad((Rounded.apply(w) ** 2).sum(), w)[0], Rounded.apply(x)


def in_a_chain(x: Tensor) -> Any:
    w = start(x)
    y = Clipped.apply(Rounded.apply(w * 2) * x, 0.5)
    loss = (y**3).sum() + Reversed.apply(w).sum()
    return loss, torch.autograd.grad(loss, [w])


def many_times(x: Tensor) -> Any:
    w = start(x)
    y = w
    for at in range(3):
        y = Clipped.apply(Rounded.apply(y) * (at + 1) + w, 0.7)
    y.square().mean().backward()
    return w.grad


def several(x: Tensor) -> Any:
    w = torch.ones(3, requires_grad=True)
    made, place = Scaled.apply(x, w)
    other, _ = Scaled.apply(start(x), w)
    first = torch.autograd.grad(made.exp().sum() + other.sum(), w, retain_graph=True)
    return first, torch.autograd.grad(made.sum(), made)[0], place


def split(x: Tensor) -> Any:
    found = []
    for is_told in (True, False):
        w = start(x)
        a, b = Split.apply(w, is_told)
        found += torch.autograd.grad((a * x).sum(), w, retain_graph=True)
        found += torch.autograd.grad((b * x).sum(), w, retain_graph=True)
        found += torch.autograd.grad((a * b).sum(), w)
    return found


def by_functions(x: Tensor) -> Any:
    def loss(w: Tensor) -> Tensor:
        return (Clipped.apply(x * w, 0.4) * x).sum()

    w = torch.ones(3)
    value, back = torch.func.vjp(loss, w)
    gradient, again = torch.func.grad_and_value(loss)(w)
    return value, back(torch.ones(()))[0], gradient, again


def unused(x: Tensor) -> Any:
    w, v = start(x), start(x)
    y = Rounded.apply(w) + v.detach()
    found = torch.autograd.grad(y.sum(), [w, v], allow_unused=True)
    zeros = torch.autograd.grad(Rounded.apply(w).sum(), [w, v], materialize_grads=True)
    return found[0], found[1] is None, zeros


def without_gradients(x: Tensor) -> Any:
    with torch.no_grad():
        y = Rounded.apply(start(x))
    return y, y.requires_grad, Rounded.apply(x).requires_grad


class Quantized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        weight = Rounded.apply(self.first.weight)
        return self.last(F.relu(F.linear(x, weight, self.first.bias)))  # type: ignore[no-any-return]


MODEL = Quantized()


def trained(x: Tensor) -> Any:
    weights = {name: of.detach().clone().requires_grad_() for name, of in MODEL.named_parameters()}
    optimizer = torch.optim.SGD(list(weights.values()), lr=0.3, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        made = torch.func.functional_call(MODEL, weights, (x,))
        Reversed.apply(made.square().mean()).backward()
        optimizer.step()
    return {name: of.detach() for name, of in weights.items()}


CASES = [
    *(straight, in_a_chain, many_times, several, split, by_functions, unused),
    *(without_gradients, trained),
]


def flat(value: Any) -> list[Tensor]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [each for item in value for each in flat(item)]
    return [torch.as_tensor(value).detach()]


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
def test_gradients_are_those_of_plain_python(function: Callable[..., Any]) -> None:
    program = TensorProgram.trace(function, (X,))
    again = TensorProgram.from_bytes(program.to_bytes())
    for seed in range(3):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
        expected = flat(function(x.clone()))
        for run in (program, again):
            found = run(x.clone())
            assert len(found) == len(expected)
            for each, wanted in zip(found, expected, strict=True):
                torch.testing.assert_close(each, wanted)


class Writes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.add_(1)


class Short(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        return x * y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def twice(x: Tensor) -> Any:
    w = start(x)
    (found,) = torch.autograd.grad((Rounded.apply(w) ** 2).sum(), w, create_graph=True)
    return torch.autograd.grad(found.sum(), w)


def of_nothing(x: Tensor) -> Any:
    w, v = start(x), start(x)
    return torch.autograd.grad(Rounded.apply(w).sum(), [w, v])


@pytest.mark.parametrize(
    ("function", "kind", "text"),
    [
        (twice, NotImplementedError, "gradients of gradients, and Jacobians"),
        (lambda x: Writes.apply(x.clone()), NotImplementedError, "doesn't write to what it is"),
        (
            lambda x: Short.apply(start(x), x).sum().backward(),
            RuntimeError,
            "incorrect number of gradients",
        ),
        (of_nothing, RuntimeError, "appears to not have been used in the graph"),
    ],
)
def test_what_cant_be_is_said(function: Callable[..., Any], kind: type, text: str) -> None:
    with pytest.raises(kind, match=text):
        TensorProgram.trace(function, (X,))


def test_a_trace_knows_none_of_another() -> None:
    expected = flat(straight(torch.ones(4, 3)))
    with pytest.raises(NotImplementedError):
        TensorProgram.trace(twice, (X,))
    for _ in range(2):
        found = TensorProgram.trace(straight, (X,))(torch.ones(4, 3))
        for each, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(each, wanted)
