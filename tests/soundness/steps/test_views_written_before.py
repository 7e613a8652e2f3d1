"""Going back through a history from before the trace in which views were written: rows of a buffer, caches, padding.

What a note of such a write holds no attribute of PyTorch's tells: functions of the program's, packed tensors, hooks.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from .within_nodes import Program, Programs, gradients, network, nothing

PROGRAMS = Programs(most_traced=6)
program, whole = PROGRAMS.program, PROGRAMS.whole


class Doubled(torch.autograd.Function):
    """Writes to what it is given, and says so."""

    seen: list[float] = []

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        Doubled.seen.append(grad.sum().item())
        return grad * 2


def back(write: Any) -> Program:
    """Writes before each call, through a view of what leads to the network."""
    Doubled.seen.clear()
    net = network()
    kept = SimpleNamespace(rows=torch.zeros(3, 2))

    def change(call: int) -> None:
        kept.rows = net(torch.full((3, 3), call + 1.0)).clone()
        write(kept.rows, net(torch.ones(3)), call)

    def step(x: Tensor) -> Tensor:
        loss = kept.rows.square().sum() + net(x).mean()
        loss.backward()
        return loss.detach()

    return step, change, lambda: [gradients(net), list(Doubled.seen)]


@whole
def copied_into() -> Program:
    def write(rows: Tensor, row: Tensor, call: int) -> None:
        rows[1] = row
        rows[:, 0] = 2.5
        rows[2].zero_()

    return back(write)


@whole
def added_to() -> Program:
    def write(rows: Tensor, row: Tensor, call: int) -> None:
        rows[0] += row
        rows.t()[1] -= 1
        rows[1:].neg_()

    return back(write)


@program
def with_saved_tensors() -> Program:
    def write(rows: Tensor, row: Tensor, call: int) -> None:
        rows[0] *= row
        rows.t()[1].masked_fill_(torch.tensor([True, False, True]), 0.5)

    return back(write)


@program
def packed() -> Program:
    def unpack(x: Tensor) -> Tensor:
        Doubled.seen.append(x.sum().item())
        return x

    def write(rows: Tensor, row: Tensor, call: int) -> None:
        if call > 3:
            with torch.autograd.graph.saved_tensors_hooks(lambda x: x, unpack):
                rows[0] *= row
        else:
            rows[0] += row

    return back(write)


@program
def by_a_function() -> Program:
    def write(rows: Tensor, row: Tensor, call: int) -> None:
        rows[0] = row
        if call > 3:
            Doubled.apply(rows[0])

    return back(write)


@program
def somebody_is_told() -> Program:
    def write(rows: Tensor, row: Tensor, call: int) -> None:
        rows[0] = row
        if call in (4, 6):
            rows.grad_fn.register_hook(lambda *it: Doubled.seen.append(it[1][0].sum().item()))  # type: ignore[union-attr]
        if call == 5:
            rows[1].register_hook(lambda grad: Doubled.seen.append(grad.sum().item()))
            rows.register_hook(lambda grad: grad * 2)

    return back(write)


@program
def other_leaves() -> Program:
    net, other = network(), network(1)
    kept = SimpleNamespace(rows=torch.zeros(3, 2))

    def change(call: int) -> None:
        kept.rows = net(torch.ones(3, 3)).clone() if call < 6 else torch.zeros(3, 2)
        kept.rows[1] = (other if call in (3, 4, 7) else net)(torch.ones(3))

    def step(x: Tensor) -> Tensor:
        loss = (kept.rows + net(x)[:3]).square().sum()
        loss.backward()
        return loss.detach()

    return step, change, lambda: [gradients(net), gradients(other)]


@program
def gone_back_before() -> Program:
    net = network()
    kept = SimpleNamespace(rows=torch.zeros(3, 2))

    def change(call: int) -> None:
        kept.rows = net(torch.ones(3, 3)).clone()
        kept.rows[1] = net(torch.ones(3))
        if call in (3, 6):
            kept.rows.sum().backward(retain_graph=call == 6)

    def step(x: Tensor) -> Tensor:
        kept.rows.square().sum().backward()
        return x + 1

    return step, change, lambda: gradients(net)


@whole
def rows_behind_a_decision() -> Program:
    net = network()

    def step(x: Tensor) -> Tensor:
        net.zero_grad()
        rows = torch.zeros(5, 2)
        row = x[0]
        for at in range(1, 5):
            rows[at] = net(row)
            row = torch.cat([rows[at], x[at, 2:]]) if x[at, 0] > 0 else x[at]
        loss = rows[1:].square().sum()
        loss.backward()
        return loss.detach()

    return step, nothing, lambda: gradients(net)


@whole
def copied_whole() -> Program:
    net = network()
    kept = SimpleNamespace(rows=torch.zeros(3, 2))

    def change(call: int) -> None:
        kept.rows = torch.zeros(3, 2)
        kept.rows.copy_(net(torch.ones(3, 3)))

    def step(x: Tensor) -> Tensor:
        loss = kept.rows.square().sum() + net(x).mean()
        loss.backward()
        return loss.detach()

    return step, change, lambda: gradients(net)


@whole
def buffers_of_a_module() -> Program:
    class Memory(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)
            self.register_buffer("rows", torch.zeros(5, 3))

        def forward(self, x: Tensor) -> Tensor:
            rows = self.rows.clone()  # type: ignore[operator]
            rows[: len(x)] = self.inner(x)
            return rows

    memory = Memory()
    kept = SimpleNamespace(rows=torch.zeros(5, 3))

    def change(call: int) -> None:
        kept.rows = memory(torch.full((2, 3), float(call)))

    def step(x: Tensor) -> Tensor:
        loss = (kept.rows + memory(x)).square().sum()
        loss.backward()
        return loss.detach()

    return step, change, lambda: gradients(memory)


@pytest.mark.parametrize("name", PROGRAMS.all)
def test_gradients_are_plain_ones(name: str) -> None:
    torch.set_num_threads(1)
    PROGRAMS.check(name)
