"""What custom functions are given that the step itself has made: instances, modules, methods of these.

The function keeps them for the way back, as adjoints of solvers do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .within_nodes import HELD, Program, Programs, gradients, network, nothing, step_of

PROGRAMS = Programs()
program, whole = PROGRAMS.program, PROGRAMS.whole


class Adjoint(torch.autograd.Function):
    """Euler's steps, whose way back solves the adjoint equation with what it was given."""

    @staticmethod
    def forward(ctx: Any, func: Any, y: Tensor, steps: int, *weights: Tensor) -> Tensor:
        ctx.func, ctx.steps = func, steps
        with torch.no_grad():
            for at in range(steps):
                y = y + func(at / steps, y) / steps
        ctx.save_for_backward(y, *weights)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        y, *weights = ctx.saved_tensors
        found = [torch.zeros_like(weight) for weight in weights]
        for at in reversed(range(ctx.steps)):
            with torch.enable_grad():
                y = y.detach().requires_grad_()
                value = ctx.func(at / ctx.steps, y)
            of_y, *of_weights = torch.autograd.grad(
                value, [y, *weights], grad, allow_unused=True, retain_graph=True
            )
            for total, part in zip(found, of_weights, strict=True):
                if part is not None:
                    total += part / ctx.steps
            grad = grad + of_y / ctx.steps
            y = (y - value / ctx.steps).detach()
        return (None, grad, None, *found)


class Kept(torch.autograd.Function):
    """Keeps what it is given, and calls it in both directions."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: Any) -> Tensor:
        ctx.function = function
        ctx.save_for_backward(x)
        return function(x).detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            value = ctx.function(x)
        return torch.autograd.grad(value, x, grad)[0], None


class Field(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, t: float, y: Tensor) -> Tensor:
        return torch.tanh(self.inner(y)) * (1 + t)


class Counted(nn.Module):
    """Wraps a function of the program's, as solvers do for each solve."""

    def __init__(self, base: Any, scale: float) -> None:
        super().__init__()
        self.base = base
        self.scale = scale

    def forward(self, t: float, y: Tensor) -> Tensor:
        return self.base(t, y) * self.scale


class Wrapper:
    def __init__(self, base: Any, sign: float = 1.0) -> None:
        self.base = base
        self.sign = sign

    def __call__(self, t: float, y: Tensor) -> Tensor:
        return self.sign * self.base(self.sign * t, y)

    def reversed(self, t: float, y: Tensor) -> Tensor:
        return -self.sign * self.base(-t, y)


def solved(wrap: Callable[[Field], Any], steps: int = 3) -> Program:
    net, field = network(), Field()
    weights = tuple(field.parameters())
    optimizer = torch.optim.SGD([*net.parameters(), *weights], lr=0.1)

    def step(x: Tensor) -> Any:
        optimizer.zero_grad()
        loss = Adjoint.apply(wrap(field), net(x), steps, *weights).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, nothing, lambda: (gradients(net), gradients(field))


@whole
def an_instance() -> Program:
    return solved(lambda field: Wrapper(field))


@whole
def an_instance_around_an_instance() -> Program:
    return solved(lambda field: Wrapper(Wrapper(field, -1.0), -1.0))


@whole
def a_method_of_an_instance() -> Program:
    return solved(lambda field: Wrapper(field, -1.0).reversed)


@whole
def a_module_made_for_the_solve() -> Program:
    return solved(lambda field: Counted(field, 0.5))


@whole
def modules_within_one_another() -> Program:
    return solved(lambda field: Counted(Counted(field, 0.5), 2.0))


@whole
def a_closure_over_an_instance() -> Program:
    def wrap(field: Field) -> Any:
        kept = Wrapper(field)
        return lambda t, y: kept(t, y) + 0.1 * y

    return solved(wrap)


@dataclass
class Settings:
    scale: float
    shift: Tensor
    names: list[str] = field(default_factory=list)

    def __call__(self, x: Tensor) -> Tensor:
        return self.scale * x.sin() + self.shift + len(self.names)


def kept(make: Callable[[Tensor], Any]) -> Program:
    net = network()
    return step_of(net, lambda x: Kept.apply(x, make(x))), nothing, lambda: gradients(net)


@whole
def a_data_class_with_a_tensor_of_the_step() -> Program:
    return kept(lambda x: Settings(2.0, x.detach().mean(0), ["a", "b"]))


class Slotted:
    __slots__ = ("offset", "scale")

    def __init__(self, scale: float, offset: Tensor) -> None:
        self.scale = scale
        self.offset = offset

    def __call__(self, x: Tensor) -> Tensor:
        return x.tanh() * self.scale + self.offset


@whole
def an_instance_with_slots() -> Program:
    return kept(lambda x: Slotted(3.0, x.detach().amax(0)))


class Point(NamedTuple):
    scale: Tensor
    power: int

    def of(self, x: Tensor) -> Tensor:
        return (x * self.scale) ** self.power


@whole
def a_method_of_a_named_tuple() -> Program:
    return kept(lambda x: Point(x.detach().std(0), 2).of)


@whole
def a_module_with_a_parameter_of_its_own() -> Program:
    def make(x: Tensor) -> nn.Module:
        layer = nn.Linear(2, 2)
        with torch.no_grad():
            layer.weight.fill_(0.3)
            layer.bias.zero_()
        return layer

    return kept(make)


class Counts:
    """It counts its calls, which the step reads behind the way back."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * x


@program
def an_instance_that_counts() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        net.zero_grad()
        counts = Counts()
        Kept.apply(net(x), counts).sum().backward()
        return counts.calls

    return step, nothing, lambda: gradients(net)


@program
def an_instance_that_the_step_writes_behind() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        net.zero_grad()
        settings = Settings(2.0, x.mean().detach())
        loss = Kept.apply(net(x), settings).sum()
        settings.scale = 3.0
        loss.backward()
        return loss.detach(), settings.scale

    return step, nothing, lambda: gradients(net)


@program
def an_instance_that_is_returned() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        net.zero_grad()
        settings = Settings(2.0, x.mean().detach())
        settings.names.append("x")
        HELD.run = settings
        Kept.apply(net(x), settings).sum().backward()
        return settings.shift, settings.names, HELD.run is settings, settings.scale

    return step, nothing, lambda: gradients(net)


@program
def a_class_that_changes() -> Program:
    net = network()

    def change(call: int) -> None:
        Plain.factor = 2.0 if call < 4 else 3.0
        Plain.__call__ = cubed if call == 6 else squared

    Plain.factor = 2.0
    return (
        step_of(net, lambda x: Kept.apply(x, Plain(0.5))),
        change,
        lambda: gradients(net),
    )


def squared(self: Plain, x: Tensor) -> Tensor:
    return x * x * self.by * self.factor


def cubed(self: Plain, x: Tensor) -> Tensor:
    return x * x * x * self.by * self.factor


class Plain:
    factor = 2.0

    def __init__(self, by: float) -> None:
        self.by = by

    __call__ = squared


@program
def what_an_instance_holds_changes() -> Program:
    net, field, weights = network(), Field(), []
    weights.extend(field.parameters())

    def change(call: int) -> None:
        HELD.factor = 2.0 if call < 4 else 3.0
        field.train(call < 6)

    def step(x: Tensor) -> Any:
        net.zero_grad()
        field.zero_grad()
        loss = Adjoint.apply(Wrapper(field, HELD.factor), net(x), 2, *weights).sum()
        loss.backward()
        return loss.detach()

    return step, change, lambda: (gradients(net), gradients(field))


@program
def an_instance_that_holds_itself() -> Program:
    net = network()

    def make() -> Any:
        settings = Plain(2.0)
        settings.own = settings
        return settings

    return step_of(net, lambda x: Kept.apply(x, make())), nothing, lambda: gradients(net)


class Late:
    """A finalizer of the program's."""

    gone = 0

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, x: Tensor) -> Tensor:
        return F.softplus(x) * self.by

    def __del__(self) -> None:
        Late.gone += 1


@program
def an_instance_with_a_finalizer() -> Program:
    net = network()
    Late.gone = 0
    return step_of(net, lambda x: Kept.apply(x, Late(2.0))), nothing, lambda: Late.gone


@pytest.mark.parametrize("name", sorted(PROGRAMS.all))
def test_calls_are_plain_ones(name: str) -> None:
    PROGRAMS.check(name)
