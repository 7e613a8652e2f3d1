"""Steps that reach other leaves from call to call, and read all gradients: one trace for each set that was reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn

from . import within_nodes
from .within_nodes import CALLS, Make, Program, Programs, gradients, nothing, rows, run

PROGRAMS = Programs()
program = PROGRAMS.program
FEW: set[str] = set()


def few(make: Make) -> Make:
    """A program whose traces are as many as its ways."""
    FEW.add(make.__name__)
    return program(make)


class Experts(nn.Module):
    def __init__(self, count: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.parts = nn.ModuleList(nn.Linear(3, 2) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        """The routing looks at data."""
        which = int(x.sum().abs().item() * 10) % len(self.parts)
        return self.parts[which](x)


def reached(behind: Callable[[nn.Module], Any], to_none: bool = True) -> Program:
    net = Experts()

    def step(x: Tensor) -> Any:
        net.zero_grad(set_to_none=to_none)
        net(x).pow(2).mean().backward()
        return behind(net)

    return step, nothing, lambda: gradients(net)


@program
def a_list_of_gradients() -> Program:
    def behind(net: nn.Module) -> Any:
        found = [it.grad for it in net.parameters()]
        return [None if it is None else it.norm() for it in found]

    return reached(behind)


@program
def clipped_by_hand() -> Program:
    def behind(net: nn.Module) -> Any:
        found = [it.grad for it in net.parameters() if it.grad is not None]
        norm = torch.stack([it.norm() for it in found]).norm()
        scale = (0.5 / (norm + 1e-6)).clamp(max=1.0)
        with torch.no_grad():
            for weight in net.parameters():
                if weight.grad is not None:
                    weight.grad.mul_(scale)
                    weight -= 0.1 * weight.grad
        return norm

    return reached(behind)


@program
def clipped_by_torch() -> Program:
    def behind(net: nn.Module) -> Any:
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        with torch.no_grad():
            for weight in net.parameters():
                if weight.grad is not None:
                    weight -= 0.1 * weight.grad
        return norm

    return reached(behind)


@program
def an_optimizer() -> Program:
    net = Experts()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(x: Tensor) -> Any:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, nothing, lambda: gradients(net)


@program
def gradients_that_are_kept() -> Program:
    def behind(net: nn.Module) -> Any:
        return [None if it.grad is None else it.grad.sum() for it in net.parameters()]

    return reached(behind, to_none=False)


@program
def by_a_decision() -> Program:
    net = Experts(2)

    def step(x: Tensor) -> Any:
        net.zero_grad()
        out = net.parts[0](x) if x.sum() > 0 else net.parts[1](x)
        out.pow(2).mean().backward()
        return [it.grad.norm() for it in net.parameters() if it.grad is not None]

    return step, nothing, lambda: gradients(net)


def given_losses(behind: Callable[[nn.Module], Any]) -> Program:
    """The caller computes the loss through some of the experts; three sets of them take turns."""
    net, made = Experts(), []

    def change(call: int) -> None:
        net.zero_grad()
        x, chosen = rows(call, 5, 3), ((0, 1), (2,), (1, 3))[call % 3]
        made[:] = [sum(net.parts[at](x).pow(2).mean() for at in chosen)]

    def step(x: Tensor) -> Any:
        loss = made[0] * x.abs().mean()
        loss.backward()
        return behind(net)

    return step, change, lambda: gradients(net)


@few
def listed_behind_a_loss_of_the_caller() -> Program:
    def behind(net: nn.Module) -> Any:
        found = [it.grad for it in net.parameters()]
        return [None if it is None else it.norm() for it in found]

    return given_losses(behind)


@few
def clipped_behind_a_loss_of_the_caller() -> Program:
    def behind(net: nn.Module) -> Any:
        found = [it.grad for it in net.parameters() if it.grad is not None]
        norm = torch.stack([it.norm() for it in found]).norm()
        for it in found:
            it.mul_((0.5 / (norm + 1e-6)).clamp(max=1.0))
        return norm

    return given_losses(behind)


@few
def a_loop_behind_a_loss_of_the_caller() -> Program:
    def behind(net: nn.Module) -> Any:
        total = torch.zeros(())
        for it in net.parameters():
            if it.grad is not None:
                total = total + it.grad.norm()
        return total

    return given_losses(behind)


@few
def a_function_of_the_step_behind_a_break() -> Program:
    """A function without a closure that each call makes stands in a frame behind a break."""
    net = Experts()

    def step(x: Tensor) -> Any:
        def size(it: Tensor, power: int = 2) -> Tensor:
            return it.abs().pow(power).sum()

        net.zero_grad()
        loss = net.parts[0](x).pow(2).mean()
        print(end="")
        loss.backward()
        weight, bias = net.parts[0].parameters()
        return size(weight.grad), size(bias.grad, 3)

    return step, nothing, lambda: gradients(net)


@pytest.mark.parametrize("name", sorted(PROGRAMS.all))
def test_calls_are_plain_ones(name: str) -> None:
    PROGRAMS.check(name)


@pytest.mark.skipif(api.PLAIN, reason="counts traces")
@pytest.mark.parametrize("name", sorted(FEW))
def test_traces_are_few(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later calls need no others."""
    counts = []
    for calls in (CALLS, 3 * CALLS):
        monkeypatch.setattr(within_nodes, "CALLS", calls)
        _, compiled = run(PROGRAMS.all[name], lambda step: api.compile(step, backend="eager"))
        counts.append(api.traces(compiled))
    assert counts[0] == counts[1], api.reason(compiled)
