"""Ways back through a history that began outside, or behind an exit, with hooks, custom functions and each form of `grad`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from .within_nodes import Program, Programs, gradients, network, nothing, rows

PROGRAMS = Programs(most_traced=4)
program, whole = PROGRAMS.program, PROGRAMS.whole


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, limit: float) -> Tensor:
        ctx.limit = limit
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad.clamp(-ctx.limit, ctx.limit), None


@whole
def a_custom_function_behind_a_decision() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        net.zero_grad()
        loss = Clipped.apply(net(x), 0.05).pow(2).mean()
        if loss > 0.4:
            loss = loss * 0.5
        loss.backward()
        return loss.detach()

    return step, nothing, lambda: gradients(net)


@whole
def a_tensor_hook_behind_a_decision() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        net.zero_grad()
        hidden = net[0](x)
        hidden.register_hook(lambda grad: grad * 0.5)
        loss = net[2](hidden.tanh()).pow(2).mean()
        if loss > 0.4:
            loss = loss * 0.5
        loss.backward()
        return loss.detach()

    return step, nothing, lambda: gradients(net)


@whole
def a_hook_of_a_parameter_behind_a_decision() -> Program:
    net = network()
    net[0].weight.register_hook(lambda grad: grad.clamp(-0.1, 0.1))

    def step(x: Tensor) -> Any:
        net.zero_grad()
        loss = net(x).pow(2).mean()
        if loss > 0.4:
            loss = loss * 0.5
        loss.backward()
        return loss.detach()

    return step, nothing, lambda: gradients(net)


@whole
def a_custom_function_of_the_branch() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        net.zero_grad()
        out = net(x)
        if out.pow(2).mean() > 0.4:
            out = Clipped.apply(out, 0.05)
        loss = out.pow(2).mean()
        loss.backward()
        return loss.detach()

    return step, nothing, lambda: gradients(net)


@whole
def some_inputs_behind_a_decision() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        net.zero_grad()
        loss = net(x).pow(2).mean()
        if loss > 0.4:
            loss = loss * 0.5
        loss.backward(inputs=[net[0].weight, net[2].weight])
        return loss.detach(), net[0].weight.grad.norm()

    return step, nothing, lambda: gradients(net)


@whole
def grad_with_unused_behind_a_decision() -> Program:
    net, other = network(), nn.Parameter(torch.ones(3))

    def step(x: Tensor) -> Any:
        loss = net(x).pow(2).mean()
        if loss > 0.4:
            loss = loss * 0.5
        found = torch.autograd.grad(loss, [*net.parameters(), other], allow_unused=True)
        return [None if it is None else it.norm() for it in found]

    return step, nothing, lambda: gradients(net)


@program
def grad_of_a_batch_of_directions() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        x = x.clone().requires_grad_()
        out = net(x).sum(0)
        if out.sum() > 0:
            out = out * 2
        (found,) = torch.autograd.grad(out, x, torch.eye(2), is_grads_batched=True)
        return found

    return step, nothing, lambda: gradients(net)


@whole
def kept_and_gone_back_through_twice() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        net.zero_grad()
        loss = net(x).pow(2).mean()
        if loss > 0.4:
            loss = loss * 0.5
        loss.backward(retain_graph=True)
        first = net[0].weight.grad.norm()
        loss.backward()
        return first, net[0].weight.grad.norm()

    return step, nothing, lambda: gradients(net)


@whole
def a_penalty_behind_a_decision() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        net.zero_grad()
        x = x.clone().requires_grad_()
        out = net(x)
        if out.sum() > 0:
            out = out * 2
        (found,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        loss = out.pow(2).mean() + found.norm(dim=1).sub(1).pow(2).mean()
        loss.backward()
        return loss.detach()

    return step, nothing, lambda: gradients(net)


@whole
def all_gradients_of_second_order_behind_a_decision() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        weights = list(net.parameters())
        loss = net(x).pow(2).mean()
        if loss > 0.4:
            loss = loss * 0.5
        found = torch.autograd.grad(loss, weights, create_graph=True)
        along = sum((it * rows(3, *it.shape)).sum() for it in found)
        return [
            it.norm()
            for it in torch.autograd.grad(along, weights, allow_unused=True)
            if it is not None
        ]

    return step, nothing, lambda: gradients(net)


@program
def a_loss_of_the_caller() -> Program:
    """The forward pass is the caller's, the step is given its loss."""
    net = network()
    net[0].weight.register_hook(lambda grad: grad * 0.5)
    made: list[Tensor] = []

    def change(call: int) -> None:
        net.zero_grad()
        made[:] = [net(rows(call, 5, 3)).pow(2).mean()]

    def step(x: Tensor) -> Any:
        loss = made[0] * x.abs().mean().detach()
        loss.backward()
        return loss.detach()

    return step, change, lambda: gradients(net)


def of_the_caller(hooked: bool, later: bool = False) -> Program:
    """The step knows the leaves, and applies a function of its own to a loss of the caller's."""
    net, made = network(), []
    factor = [0.5]
    if hooked:
        net[0].weight.register_hook(lambda grad: grad * factor[0])

    def change(call: int) -> None:
        factor[0] = 0.5 if call < 5 else 2.0
        out = net(rows(call, 5, 3))
        if later and call == 4:
            out.register_hook(lambda grad: grad * 3)
        if later and call == 6:
            net[2].weight.register_hook(lambda grad: grad * 5)
        made[:] = [Clipped.apply(out, 0.5) if later and call == 5 else out]

    def step(x: Tensor) -> Any:
        for weight in net.parameters():
            weight.grad = None
        loss = Clipped.apply(made[0], 0.1 if hooked else 0.2).pow(2).mean()
        loss.backward()
        return loss.detach(), net[0].weight.grad.norm()

    return step, change, lambda: gradients(net)


@whole
def a_function_behind_a_history_of_the_caller() -> Program:
    return of_the_caller(False)


@whole
def a_function_and_a_hook_behind_a_history_of_the_caller() -> Program:
    return of_the_caller(True)


@program
def a_history_of_the_caller_that_gets_hooks() -> Program:
    return of_the_caller(True, True)


@whole
def a_graph_break_between() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        net.zero_grad()
        loss = Clipped.apply(net(x), 0.05).pow(2).mean()
        if loss.item() > 0.4:
            loss = loss * 0.5
        grads = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for weight, grad in zip(net.parameters(), grads, strict=True):
                weight.sub_(grad, alpha=0.1)
        return loss.detach()

    return step, nothing, lambda: gradients(net)


@pytest.mark.parametrize("name", sorted(PROGRAMS.all))
def test_calls_are_plain_ones(name: str) -> None:
    PROGRAMS.check(name)
