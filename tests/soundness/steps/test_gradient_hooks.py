"""Hooks of leaves within the node that goes back: what they read and write, and what is changed between calls."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from .within_nodes import (
    SETTINGS,
    Keeper,
    Program,
    Programs,
    gradients,
    network,
    nothing,
    step_of,
)

PROGRAMS = Programs()
program, whole = PROGRAMS.program, PROGRAMS.whole


def clip(grad: Tensor) -> Tensor:
    return grad.clamp(-0.05, 0.05)


@whole
def hooked() -> Program:
    net = network()
    for parameter in net.parameters():
        parameter.register_hook(clip)
    return step_of(net, torch.tanh), nothing, lambda: gradients(net)


@program
def hooks_come_and_go() -> Program:
    net, handles = network(), []

    def change(call: int) -> None:
        if call == 2:
            handles.append(net[0].weight.register_hook(clip))
        if call == 4:
            handles.append(net[0].weight.register_hook(lambda grad: grad * SETTINGS.factor))
        if call == 6:
            handles.pop(0).remove()

    SETTINGS.factor = 3.0
    return step_of(net, torch.tanh), change, lambda: gradients(net)


@program
def hooks_are_replaced() -> Program:
    net = network()
    handle = [net[0].weight.register_hook(clip)]

    def change(call: int) -> None:
        if call >= 3:
            handle.pop().remove()
            handle.append(net[0].weight.register_hook(lambda grad, call=call: grad * call))

    return step_of(net, torch.tanh), change, lambda: gradients(net)


@whole
def hooks_that_note_numbers() -> Program:
    net, norms = network(), {}
    for name, parameter in net.named_parameters():
        parameter.register_hook(lambda grad, name=name: norms.__setitem__(name, grad.norm().item()))
    norms.update(dict.fromkeys(dict(net.named_parameters()), 0.0))
    return step_of(net, torch.tanh), nothing, lambda: (gradients(net), dict(norms))


@program
def notes_are_read_behind() -> Program:
    net, norms = network(), {"first": 0.0}
    net[0].weight.register_hook(lambda grad: norms.__setitem__("first", grad.norm().item()))
    step = step_of(net, torch.tanh)

    def read(x: Tensor) -> Any:
        before = norms["first"]
        return step(x), before, norms["first"], len(norms)

    return read, nothing, lambda: dict(norms)


@program
def notes_are_read_under_another_name() -> Program:
    """At some calls two dictionaries are one."""
    net, norms, table = network(), {"first": 0.0}, {"first": 1.0}
    holder = SimpleNamespace(written=norms, read=table)
    net[0].weight.register_hook(lambda grad: holder.written.__setitem__("first", 5.0))
    step = step_of(net, torch.tanh)

    def read(x: Tensor) -> Any:
        return step(x), x * holder.read["first"]

    def change(call: int) -> None:
        norms["first"], table["first"] = 0.0, 1.0
        holder.read = norms if call in (4, 6) else table
        if call in (4, 6):
            norms["first"] = 1.0

    return read, change, lambda: (dict(norms), dict(table))


@program
def hooks_of_all_kinds() -> Program:
    net, kept = network(), []
    keeper = Keeper()
    net[0].weight.register_hook(keeper.hook)
    net[0].bias.register_hook(partial(torch.mul, 2.0))
    net[2].weight.register_hook(kept.append)
    net[2].bias.register_post_accumulate_grad_hook(lambda it: kept.append(it.grad.sum()))

    def change(call: int) -> None:
        keeper.scale = 2.0 if call < 4 else 3.0

    return step_of(net, torch.tanh), change, lambda: (gradients(net), list(kept))


@whole
def methods_as_hooks() -> Program:
    net = network()
    keeper = Keeper()
    for parameter in net.parameters():
        parameter.register_hook(keeper.hook)
    return step_of(net, torch.tanh), nothing, lambda: gradients(net)


@program
def a_hook_that_counts() -> Program:
    net, counts = network(), {"n": 0}

    def hook(grad: Tensor) -> None:
        counts["n"] += 1

    for parameter in net.parameters():
        parameter.register_hook(hook)
    return step_of(net, torch.tanh), nothing, lambda: (gradients(net), dict(counts))


@program
def steps_behind_each_gradient() -> Program:
    net = network()
    optimizers = {
        it: torch.optim.SGD([it], lr=0.1, momentum=0.9, foreach=False) for it in net.parameters()
    }

    def hook(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(hook)

    def step(x: Tensor) -> Any:
        loss = net(x).pow(2).mean()
        loss.backward()
        return loss.detach(), [it.grad is None for it in net.parameters()]

    def change(call: int) -> None:
        if call == 4:
            for optimizer in optimizers.values():
                optimizer.param_groups[0]["lr"] = 0.01

    return step, change, lambda: [it.detach().clone() for it in net.parameters()]


@program
def hooks_that_count_elsewhere() -> Program:
    """A cell, an attribute, a set and a list, which are asked behind it."""
    net, holder, seen, listed, count = network(), SimpleNamespace(n=0), set(), [], 0

    def hook(grad: Tensor) -> None:
        nonlocal count
        count += 1
        holder.n += 1
        seen.add(f"call {count}")
        listed.append(count)

    net[0].weight.register_hook(hook)
    step = step_of(net, torch.tanh)

    def asks(x: Tensor) -> Any:
        before = count, holder.n
        step(x)
        return before, count, holder.n, "call 3" in seen, len(listed), listed[-1]

    return asks, nothing, lambda: (count, holder.n, sorted(seen), list(listed))


@program
def hooks_that_count_a_cell() -> Program:
    net, count = network(), 0

    def hook(grad: Tensor) -> None:
        nonlocal count
        count += 1

    net[0].weight.register_hook(hook)
    step = step_of(net, torch.tanh)

    def asks(x: Tensor) -> Any:
        x = x * count
        step(x)
        return x, count

    return asks, nothing, lambda: count


@program
def a_set_that_hooks_fill() -> Program:
    net, seen, calls = network(), {"other"}, [0]

    def hook(grad: Tensor) -> None:
        seen.add("weight")

    net[0].weight.register_hook(hook)
    step = step_of(net, torch.tanh)

    def asks(x: Tensor) -> Any:
        step(x)
        return x * 2 if "weight" in seen else x

    def change(call: int) -> None:
        calls[0] = call
        seen.discard("weight")

    return asks, change, lambda: sorted(seen)


@whole
def hooks_of_objects() -> Program:
    net = network()

    class Clip:
        def __init__(self, most: float) -> None:
            self.most = most

        def __call__(self, grad: Tensor) -> Tensor:
            return grad.clamp(-self.most, self.most)

    def scaled(by: float, grad: Tensor, plus: float = 0.0) -> Tensor:
        return grad * by + plus

    net[0].weight.register_hook(Clip(0.05))
    net[0].bias.register_hook(partial(scaled, 2.0, plus=0.1))
    return step_of(net, torch.tanh), nothing, lambda: gradients(net)


@program
def hooks_of_objects_change() -> Program:
    net = network()

    class Clip:
        def __init__(self, most: float) -> None:
            self.most = most

        def __call__(self, grad: Tensor) -> Tensor:
            return grad.clamp(-self.most, self.most)

    clip = Clip(0.05)
    net[0].weight.register_hook(clip)

    def change(call: int) -> None:
        if call == 3:
            clip.most = 0.01
        if call == 5:
            Clip.__call__ = lambda self, grad: grad * 3  # type: ignore[method-assign]

    return step_of(net, torch.tanh), change, lambda: gradients(net)


@program
def a_hook_that_raises() -> Program:
    net = network()

    def hook(grad: Tensor) -> None:
        if SETTINGS.factor > 3:
            raise ValueError("stop")

    net[2].weight.register_hook(hook)

    def change(call: int) -> None:
        SETTINGS.factor = 4.0 if call in (3, 5) else 1.0

    def step(x: Tensor) -> Any:
        for parameter in net.parameters():
            parameter.grad = None
        try:
            net(x).sum().backward()
        except ValueError as error:
            return str(error)
        return "fine"

    return step, change, list


@program
def going_back_raises_behind_an_early_write() -> Program:
    """Registering a hook of a module writes to a class, which ends the trace within the node that raises then."""
    net = network()

    def step(x: Tensor) -> Any:
        given = x.detach().requires_grad_()
        (given * 2).register_hook(lambda grad: grad * 3)
        handle = net.register_forward_hook(lambda *_: None)
        y = given.exp()
        y.mul_(2)
        try:
            y.sum().backward()
        except RuntimeError as error:
            return type(error).__name__, len(net._forward_hooks)
        finally:
            handle.remove()
        return "fine"

    return step, nothing, lambda: gradients(net)


@pytest.mark.parametrize("name", PROGRAMS.all)
def test_steps_are_plain_ones(name: str) -> None:
    PROGRAMS.check(name)
