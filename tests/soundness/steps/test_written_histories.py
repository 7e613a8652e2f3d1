"""Going back through tensors that the call has written to: losses that are added up over calls, buffers that are filled.

What they were before, whose leaves that leads to and who is told on the way change between calls.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .within_nodes import Program, Programs, gradients, network, nothing

PROGRAMS = Programs(most_traced=4)
program, whole = PROGRAMS.program, PROGRAMS.whole


@whole
def losses_added_up() -> Program:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    kept = SimpleNamespace(total=torch.zeros(()), calls=0)

    def step(x: Tensor) -> Tensor:
        loss = net(x).square().mean()
        kept.total += loss
        kept.calls += 1
        if kept.calls % 2 == 0:
            optimizer.zero_grad()
            kept.total.backward()
            optimizer.step()
            kept.total = torch.zeros(())
        return loss.detach()

    return step, nothing, lambda: [gradients(net), kept.total]


@whole
def a_loss_from_outside_is_added_to() -> Program:
    net = network()
    kept = SimpleNamespace(total=torch.zeros(()))

    def change(call: int) -> None:
        kept.total = net(torch.full((2, 3), float(call))).mean() * 2

    def step(x: Tensor) -> Tensor:
        kept.total += net(x).square().mean()
        kept.total.backward()
        return kept.total.detach()

    return step, change, lambda: gradients(net)


@program
def other_leaves_are_reached() -> Program:
    net, other = network(), network(1)
    kept = SimpleNamespace(total=torch.zeros(()))

    def change(call: int) -> None:
        base = net if call < 4 or call == 6 else other
        kept.total = base(torch.ones(2, 3)).mean() * 2
        if call == 5:
            kept.total = torch.ones(())

    def step(x: Tensor) -> Tensor:
        kept.total += net(x).square().mean()
        kept.total.backward()
        return kept.total.detach()

    return step, change, lambda: [gradients(net), gradients(other)]


@program
def somebody_is_told() -> Program:
    net, seen = network(), []
    kept = SimpleNamespace(total=torch.zeros(()))

    def change(call: int) -> None:
        kept.total = net(torch.ones(2, 3)).mean() * 2
        if call == 4:
            kept.total.register_hook(lambda grad: seen.append(grad.item()))
        if call == 6:
            net[0].weight.register_hook(lambda grad: seen.append(grad.sum().item()) or grad * 2)

    def step(x: Tensor) -> Tensor:
        kept.total += net(x).square().mean()
        kept.total.backward()
        return kept.total.detach()

    return step, change, lambda: [gradients(net), list(seen)]


@whole
def rows_of_a_buffer() -> Program:
    net = network()
    kept = SimpleNamespace(rows=torch.zeros(3, 2))

    def change(call: int) -> None:
        kept.rows = torch.zeros(3, 2)

    def step(x: Tensor) -> Tensor:
        for at in range(3):
            kept.rows[at] = net(x[at])
        loss = kept.rows.square().sum()
        loss.backward()
        return loss.detach()

    return step, change, lambda: [gradients(net), kept.rows.detach().clone()]


@program
def a_row_of_a_buffer_with_others() -> Program:
    net = network()
    kept = SimpleNamespace(rows=torch.zeros(3, 2))

    def change(call: int) -> None:
        kept.rows = torch.zeros(3, 2)
        kept.rows[0] = net(torch.full((3,), float(call)))

    def step(x: Tensor) -> Tensor:
        kept.rows[1] = net(x[1])
        loss = kept.rows.square().sum()
        loss.backward()
        return loss.detach()

    return step, change, lambda: [gradients(net), kept.rows.detach().clone()]


@whole
def used_before_it_is_written() -> Program:
    before = nn.Parameter(torch.ones(3))
    kept = SimpleNamespace(hidden=torch.zeros(3))

    def change(call: int) -> None:
        before.grad = None
        kept.hidden = before * (call + 1)

    def step(x: Tensor) -> Tensor:
        first = kept.hidden + x[0]
        kept.hidden.add_(x[1])
        # Only what was there before leads to the leaf.
        first.square().sum().backward()
        return kept.hidden.detach()

    return step, change, lambda: before.grad.clone()


@program
def what_was_saved_is_written() -> Program:
    before = nn.Parameter(torch.ones(3))
    kept = SimpleNamespace(hidden=torch.zeros(3), factor=1)

    def change(call: int) -> None:
        kept.hidden = (before * (call + 1)).exp()

    def step(x: Tensor) -> Tensor:
        kept.hidden.mul_(2)
        kept.hidden.sum().backward()
        return x + 1

    return step, change, lambda: before.grad


@program
def gone_back_twice() -> Program:
    before = nn.Parameter(torch.ones(3))
    kept = SimpleNamespace(hidden=torch.zeros(()))

    def change(call: int) -> None:
        if call % 2 == 0:
            kept.hidden = (before * before).sum()

    def step(x: Tensor) -> Tensor:
        kept.hidden += x.sum()
        kept.hidden.backward()
        return x * 2

    return step, change, lambda: [before.grad, kept.hidden.detach().clone()]


@program
def through_a_view_of_it() -> Program:
    net = network()
    kept = SimpleNamespace(rows=torch.zeros(3, 2), row=torch.zeros(2))

    def change(call: int) -> None:
        kept.rows = torch.zeros(3, 2) if call % 3 else net(torch.ones(3, 3))
        kept.row = kept.rows[1]

    def step(x: Tensor) -> Any:
        kept.row += net(x[0])
        kept.rows.square().sum().backward(retain_graph=True)
        kept.row.sum().backward()
        return kept.rows.requires_grad, kept.row.detach().clone()

    return step, change, lambda: gradients(net)


@program
def let_go_of() -> Program:
    cell, head = nn.GRUCell(3, 4), nn.Linear(4, 2)
    params = [*cell.parameters(), *head.parameters()]
    kept = SimpleNamespace(hidden=torch.zeros(5, 4), calls=0, losses=[])

    def step(x: Tensor) -> Any:
        kept.hidden = cell(x, kept.hidden)
        kept.losses.append(F.mse_loss(head(kept.hidden), x[:, :2]))
        kept.calls += 1
        if kept.calls % 2 == 0:
            sum(kept.losses).backward()
            kept.losses.clear()
            kept.hidden.detach_()
        return kept.hidden.requires_grad, kept.hidden.detach().clone()

    return step, nothing, lambda: [None if it.grad is None else it.grad.clone() for it in params]


@whole
def asked_for() -> Program:
    net = network()
    kept = SimpleNamespace(total=torch.zeros(()))

    def change(call: int) -> None:
        kept.total = torch.zeros(())

    def step(x: Tensor) -> Any:
        kept.total += net(x).square().mean()
        found = torch.autograd.grad(kept.total, list(net.parameters()), create_graph=True)
        sum(it.square().sum() for it in found).backward()
        return [it.detach() for it in found]

    return step, change, lambda: gradients(net)


@pytest.mark.parametrize("name", PROGRAMS.all)
def test_gradients_are_plain_ones(name: str) -> None:
    torch.set_num_threads(1)
    PROGRAMS.check(name)
