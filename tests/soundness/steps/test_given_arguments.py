"""What custom functions are given besides tensors: functions, modules, lists, dictionaries, instances.

What these hold is changed between calls, by the trace before and behind the call, and by the function itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from .within_nodes import SETTINGS, Program, Programs, gradients, network, nothing, step_of

PROGRAMS = Programs()
program, whole = PROGRAMS.program, PROGRAMS.whole


class Applied(torch.autograd.Function):
    """Calls what it is given, and differentiates it by a function of its own: covariances, kernels."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            value = function(inner)
        ctx.save_for_backward(inner, value)
        return value.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        inner, value = ctx.saved_tensors
        (found,) = torch.autograd.grad(value, inner, grad)
        return found, None


class Recomputed(torch.autograd.Function):
    """Keeps the function, and calls it on the way back: reversible blocks, checkpoints, adjoints."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: Callable[[Tensor], Tensor], *rest: Tensor) -> Tensor:
        ctx.function = function
        ctx.count = len(rest)
        ctx.save_for_backward(x, *rest)
        with torch.no_grad():
            return function(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, *rest = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_(ctx.needs_input_grad[0])
            value = ctx.function(x)
        found = torch.autograd.grad(value, [x, *rest], grad, allow_unused=True)
        return (found[0], None, *found[1:])


class Squared:
    """A function with a state, from outside."""

    def __init__(self) -> None:
        self.scale = 2.0

    def __call__(self, x: Tensor) -> Tensor:
        return self.scale * x * x

    def tanh(self, x: Tensor) -> Tensor:
        return self.scale * torch.tanh(x)


def cubed(x: Tensor) -> Tensor:
    return x * x * x


def scaled(by: float, x: Tensor) -> Tensor:
    return by * x.sin()


def of_function(make: Callable[[nn.Module], Any], apply: Any = Applied.apply) -> Program:
    net = network()
    between = make(net)
    return step_of(net, lambda x: apply(x, between())), nothing, lambda: gradients(net)


@whole
def a_lambda_of_the_step() -> Program:
    return of_function(lambda net: lambda: lambda x: x * x)


@whole
def a_lambda_kept_for_the_way_back() -> Program:
    return of_function(lambda net: lambda: lambda x: x * x.exp(), Recomputed.apply)


@whole
def a_function_from_outside() -> Program:
    return of_function(lambda net: lambda: cubed)


@whole
def a_function_from_outside_kept() -> Program:
    return of_function(lambda net: lambda: cubed, Recomputed.apply)


@whole
def a_function_of_c_code() -> Program:
    return of_function(lambda net: lambda: torch.sin)


@whole
def a_method_from_outside() -> Program:
    squared = Squared()
    return of_function(lambda net: lambda: squared.tanh, Recomputed.apply)


@whole
def a_partial() -> Program:
    return of_function(lambda net: lambda: partial(scaled, 3.0), Recomputed.apply)


@whole
def a_callable_object() -> Program:
    squared = Squared()
    return of_function(lambda net: lambda: squared, Recomputed.apply)


@whole
def a_closure_over_a_number_and_a_tensor() -> Program:
    net, offset = network(), torch.tensor([0.5, -0.5])

    def between(x: Tensor) -> Tensor:
        factor = 1.5
        shift = offset * 2
        return Applied.apply(x, lambda it: (it * factor + shift).tanh())

    return step_of(net, between), nothing, lambda: gradients(net)


@program
def another_function_from_some_call_on() -> Program:
    net, held = network(), SETTINGS

    def change(call: int) -> None:
        held.run = cubed if call < 4 else torch.sin if call < 6 else Squared()

    return (
        step_of(net, lambda x: Recomputed.apply(x, held.run)),
        change,
        lambda: gradients(net),
    )


@program
def a_state_that_changes() -> Program:
    net, squared = network(), Squared()

    def change(call: int) -> None:
        squared.scale = 2.0 if call < 4 else 1.0 + call

    return (
        step_of(net, lambda x: Recomputed.apply(x, squared.tanh)),
        change,
        lambda: gradients(net),
    )


@program
def a_state_that_the_step_writes_before() -> Program:
    net, squared = network(), Squared()

    def between(x: Tensor) -> Tensor:
        squared.scale += 0.5
        return Recomputed.apply(x, squared.tanh)

    return step_of(net, between), nothing, lambda: (gradients(net), squared.scale)


@program
def a_state_that_the_step_writes_behind() -> Program:
    net, squared = network(), Squared()

    def between(x: Tensor) -> Tensor:
        x = Recomputed.apply(x, squared)
        squared.scale += 0.5
        return x

    return step_of(net, between), nothing, lambda: (gradients(net), squared.scale)


@program
def a_variable_that_the_step_writes_behind() -> Program:
    net = network()

    def between(x: Tensor) -> Tensor:
        factor = 1.0

        def scaled(it: Tensor) -> Tensor:
            return it * factor

        x = Recomputed.apply(x, scaled)
        factor = 3.0
        return x

    return step_of(net, between), nothing, lambda: gradients(net)


class Layer(torch.autograd.Function):
    """Given a module from outside, and its parameters: as reversible blocks are."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, module: nn.Module, names: Any, *weights: Tensor) -> Tensor:
        ctx.module, ctx.names = module, names
        ctx.save_for_backward(x, *weights)
        return module(x).detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, *weights = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            value = ctx.module(x)
        found = torch.autograd.grad(value, [x, *weights], grad)
        return (found[0], None, None, *found[1:])


@whole
def a_module_and_its_parameters() -> Program:
    net, layer = network(), nn.Linear(2, 2)
    parameters = list(layer.parameters())

    def between(x: Tensor) -> Tensor:
        return Layer.apply(x, layer, ["weight", "bias"], *parameters)

    return step_of(net, between), nothing, lambda: (gradients(net), gradients(layer))


class Listed(torch.autograd.Function):
    """Given a list that it reads and adds to."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factors: list[float], log: list[Any] | None) -> Tensor:
        ctx.factors = factors
        if log is not None:
            log.append(len(factors))
        return x * sum(factors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad * sum(ctx.factors), None, None


@whole
def a_list_of_the_step() -> Program:
    net = network()
    return (
        step_of(net, lambda x: Listed.apply(x, [1.0, 0.5], None)),
        nothing,
        lambda: gradients(net),
    )


@program
def a_list_from_outside_that_grows() -> Program:
    net, factors = network(), [1.0, 0.5]

    def change(call: int) -> None:
        if call > 4:
            factors.append(0.1)

    return (
        step_of(net, lambda x: Listed.apply(x, factors, None)),
        change,
        lambda: (gradients(net), list(factors)),
    )


@program
def a_list_from_outside_that_it_adds_to() -> Program:
    net, log = network(), []
    return (
        step_of(net, lambda x: Listed.apply(x, [1.0], log)),
        nothing,
        lambda: (gradients(net), list(log)),
    )


@program
def a_list_of_the_step_that_it_adds_to() -> Program:
    net = network()

    def between(x: Tensor) -> Tensor:
        log: list[Any] = []
        x = Listed.apply(x, [1.0, 2.0], log)
        return x * len(log) * sum(log)

    return step_of(net, between), nothing, lambda: gradients(net)


@program
def a_list_written_between_forward_and_backward() -> Program:
    net, factors = network(), [1.0, 0.5]

    def between(x: Tensor) -> Tensor:
        x = Listed.apply(x, factors, None)
        factors.append(0.25)
        return x

    return step_of(net, between), nothing, lambda: (gradients(net), list(factors))


@program
def a_list_of_the_step_written_between() -> Program:
    net = network()

    def between(x: Tensor) -> Tensor:
        factors = [1.0, 0.5]
        x = Listed.apply(x, factors, None)
        factors.append(0.25)
        return x

    return step_of(net, between), nothing, lambda: gradients(net)


class Optioned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, options: dict[str, Any], names: tuple[Any, ...]) -> Tensor:
        ctx.options = options
        ctx.set_materialize_grads(False)
        options["calls"] = options.get("calls", 0) + 1
        return x * options["scale"] + len(names)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return grad * ctx.options["scale"], None, None


@program
def a_dictionary_from_outside() -> Program:
    net, options = network(), {"scale": 2.0}

    def change(call: int) -> None:
        if call > 4:
            options["scale"] = 2.0 + call

    return (
        step_of(net, lambda x: Optioned.apply(x, options, ("a", None, cubed))),
        change,
        lambda: (gradients(net), dict(options)),
    )


@program
def a_dictionary_of_the_step() -> Program:
    net = network()

    def between(x: Tensor) -> Tensor:
        options = {"scale": 2.0}
        x = Optioned.apply(x, options, ("a", [1, 2], lambda: None))
        return x * options["calls"]

    return step_of(net, between), nothing, lambda: gradients(net)


class Solved(torch.autograd.Function):
    """An implicit layer: a fixed point, and its gradient by the implicit function theorem."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Tensor, run: Any, steps: int) -> Tensor:
        z = torch.zeros_like(x)
        for _ in range(steps):
            z = run(z, weight, x)
        ctx.run, ctx.steps = run, steps
        ctx.save_for_backward(weight, x, z)
        return z

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        weight, x, z = (it.detach().requires_grad_() for it in ctx.saved_tensors)
        with torch.enable_grad():
            value = ctx.run(z, weight, x)
        u = grad
        for _ in range(ctx.steps):
            u = grad + torch.autograd.grad(value, z, u, retain_graph=True)[0]
        to_weight, to_x = torch.autograd.grad(value, [weight, x], u)
        return to_weight, to_x, None, None


@whole
def an_implicit_layer() -> Program:
    net, weight = network(), nn.Parameter(torch.tensor([[0.1, 0.2], [0.0, 0.3]]))

    def between(x: Tensor) -> Tensor:
        return Solved.apply(weight, x, lambda z, w, it: torch.tanh(z @ w + it), 5)

    step = step_of(net, between)

    def around(x: Tensor) -> Any:
        weight.grad = None
        return step(x), weight.grad

    return around, nothing, lambda: (gradients(net), weight.grad)


class Marked(torch.autograd.Function):
    """Two outputs, of which one has no gradient, and what is written in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, key: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        order = key(x)
        ctx.mark_non_differentiable(order)
        ctx.save_for_backward(order)
        return x.gather(1, order), order

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, None]:
        (order,) = ctx.saved_tensors
        return torch.zeros_like(grad).scatter(1, order, grad), None


@whole
def an_output_without_a_gradient() -> Program:
    net = network()

    def between(x: Tensor) -> Tensor:
        found, order = Marked.apply(x, lambda it: it.argsort(1))
        return found * (1 + order)

    return step_of(net, between), nothing, lambda: gradients(net)


class Twice(torch.autograd.Function):
    """A gradient that is differentiated itself, by a function that it is given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(x)
        ctx.slope = slope
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad * ctx.slope(x), None


@program
def a_gradient_penalty() -> Program:
    net = network()

    def between(x: Tensor) -> Tensor:
        value = Twice.apply(x, torch.cos)
        (slope,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        other = Twice.apply(x, lambda it: it.cos())
        (again,) = torch.autograd.grad(other.sum(), x, create_graph=True)
        return value + slope.pow(2) + again.pow(2)

    return step_of(net, between), nothing, lambda: gradients(net)


@program
def a_function_that_raises() -> Program:
    net, limit = network(), [10]

    def change(call: int) -> None:
        limit[0] = 10 if call < 4 else 0

    def checked(x: Tensor) -> Tensor:
        if not limit[0]:
            raise ValueError("no more")
        return x * 2

    return (
        step_of(net, lambda x: Applied.apply(x, checked)),
        change,
        lambda: (gradients(net), limit),
    )


class Keeps(torch.autograd.Function):
    """Puts what it is given elsewhere."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, held: Any) -> Tensor:
        SETTINGS.log.append(held)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * 2, None


@program
def what_is_given_is_kept_elsewhere() -> Program:
    net, outer = network(), [3]
    SETTINGS.log = []

    def between(x: Tensor) -> Tensor:
        return Keeps.apply(Keeps.apply(Keeps.apply(x, outer), [1, 2]), cubed)

    def watched() -> Any:
        log = SETTINGS.log
        return (
            [it if isinstance(it, list) else it.__name__ for it in log],
            [it is outer for it in log],
            len({id(it) for it in log}),
        )

    return step_of(net, between), nothing, watched


@pytest.mark.parametrize("name", PROGRAMS.all)
def test_steps_are_plain_ones(name: str) -> None:
    PROGRAMS.check(name)
