"""Functions that a step makes and nodes are given: hooks of tensors and modules.

What they read is changed between calls, what they hold is written afterwards, and what they write is read behind.
"""

from __future__ import annotations

import gc
from collections import Counter
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import stator

from .within_nodes import (
    HELD,
    Keeper,
    Program,
    Programs,
    begins,
    changes,
    ends,
    gradients,
    network,
    nothing,
)

PROGRAMS = Programs()
program, whole = PROGRAMS.program, PROGRAMS.whole


# Hooks of tensors.


@whole
def a_local_hook() -> Program:
    net, kept = network(), []

    def step(x: Tensor) -> Tensor:
        begins(net)
        hidden = net[0](x)
        hidden.register_hook(lambda grad: kept.append(grad.norm()))
        return ends(net, net[2](net[1](hidden)).pow(2).mean())

    return step, nothing, lambda: (gradients(net), list(kept))


@program
def a_local_hook_reads_what_changes() -> Program:
    net = network()

    def step(x: Tensor) -> Tensor:
        begins(net)
        hidden = net[0](x)
        hidden.register_hook(lambda grad: grad * HELD.factor)
        return ends(net, net[2](net[1](hidden)).pow(2).mean())

    return step, changes, lambda: gradients(net)


@whole
def a_hook_holds_a_tensor_and_a_default() -> Program:
    net = network()

    def step(x: Tensor) -> Tensor:
        begins(net)
        hidden = net[0](x)
        scale = hidden.detach().abs().mean()

        def hook(grad: Tensor, plus: float = 0.25, *, times: int = 2) -> Tensor:
            return grad * scale * times + plus

        hidden.register_hook(hook)
        return ends(net, net[2](net[1](hidden)).pow(2).mean())

    return step, nothing, lambda: gradients(net)


@whole
def a_hook_is_a_partial() -> Program:
    net = network()

    def scaled(by: Tensor, grad: Tensor, plus: float = 0.0) -> Tensor:
        return grad * by + plus

    def step(x: Tensor) -> Tensor:
        begins(net)
        hidden = net[0](x)
        hidden.register_hook(partial(scaled, hidden.detach().mean(), plus=0.5))
        return ends(net, net[2](net[1](hidden)).pow(2).mean())

    return step, nothing, lambda: gradients(net)


@whole
def a_hook_is_a_method() -> Program:
    net = network()
    keeper = Keeper()

    def step(x: Tensor) -> Tensor:
        begins(net)
        hidden = net[0](x)
        hidden.register_hook(keeper.hook)
        return ends(net, net[2](net[1](hidden)).pow(2).mean())

    return step, nothing, lambda: gradients(net)


@whole
def a_hook_is_removed() -> Program:
    net = network()

    def step(x: Tensor) -> Tensor:
        begins(net)
        hidden = net[0](x)
        handle = hidden.register_hook(lambda grad: grad * 100)
        hidden.register_hook(lambda grad: grad * 3)
        handle.remove()
        return ends(net, net[2](net[1](hidden)).pow(2).mean())

    return step, nothing, lambda: gradients(net)


@program
def a_hook_outlives_the_step() -> Program:
    """Who calls goes back."""
    net, kept = network(), []

    def step(x: Tensor) -> Tensor:
        begins(net)
        hidden = net[0](x)
        hidden.register_hook(lambda grad: kept.append(grad * HELD.factor))
        return net[2](net[1](hidden)).pow(2).mean()

    losses: list[Tensor] = []

    def watched(x: Tensor) -> Any:
        losses.append(step(x))
        return losses[-1].detach()

    def change(call: int) -> None:
        changes(call)
        if losses:
            losses.pop().backward()

    return watched, change, lambda: (gradients(net), [it.clone() for it in kept])


@whole
def a_list_that_a_hook_fills() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        found: list[Tensor] = []
        hidden = net[0](x)
        hidden.register_hook(lambda grad: found.append(grad.norm()))
        ends(net, net[2](net[1](hidden)).pow(2).mean())
        return found, len(found), found[0] * 2

    return step, nothing, lambda: gradients(net)


@whole
def a_dictionary_and_a_variable_that_hooks_fill() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        found: dict[str, Tensor] = {}
        last = None

        def hook(grad: Tensor) -> None:
            nonlocal last
            last = grad.mean()

        hidden = net[0](x)
        hidden.register_hook(lambda grad: found.__setitem__("grad", grad * 2))
        hidden.register_hook(hook)
        ends(net, net[2](net[1](hidden)).pow(2).mean())
        with torch.no_grad():
            found["grad"].mul_(3)
        return found, last * 2, sum(it.sum() for it in found.values())

    return step, nothing, lambda: gradients(net)


@program
def a_list_that_a_hook_fills_with_numbers() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        found: list[Any] = []
        hidden = net[0](x)
        hidden.register_hook(lambda grad: found.append(int(grad.sum() * 1000)))
        hidden.register_hook(lambda grad: found.append(grad.norm().item()))
        hidden.register_hook(lambda grad: found.append(grad))
        ends(net, net[2](net[1](hidden)).pow(2).mean())
        return found, found[0] + 1, found[1] * x, found[2]

    return step, nothing, lambda: gradients(net)


@program
def a_list_that_a_checkpoint_fills() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        seen: list[Tensor] = []

        def run(h: Tensor) -> Tensor:
            out = torch.tanh(net[0](h))
            seen.append(out.detach())
            return out

        hidden = checkpoint(run, x, use_reentrant=False)
        before = [it * 2 for it in seen]
        loss = ends(net, net[2](hidden).pow(2).mean())
        return loss, before, len(seen), seen

    return step, nothing, lambda: gradients(net)


@program
def a_list_that_holds_a_view_of_an_argument() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        found: list[Tensor] = []
        hidden = net[0](x)
        hidden.register_hook(lambda grad: found.append(x.view(-1)))
        net[2](net[1](hidden)).pow(2).mean().backward()
        with torch.no_grad():
            found[0].add_(1)
        return found[0] + 1, x

    return step, lambda call: begins(net), lambda: gradients(net)


@program
def a_list_that_holds_a_gradient() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        found: list[Tensor] = []
        hidden = net[0](x)
        hidden.register_hook(lambda grad: found.extend([grad, net[2].weight, x]))
        loss = net[2](net[1](hidden)).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            found[2].add_(1)
            found[0].add_(1)
        return found[0] + 1, found[1] is net[2].weight, x

    return step, lambda call: begins(net), lambda: gradients(net)


@program
def a_variable_that_a_hook_counts() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        count = 0

        def hook(grad: Tensor) -> None:
            nonlocal count
            count += 1

        hidden = net[0](x)
        hidden.register_hook(hook)
        hidden.register_hook(hook)
        ends(net, net[2](net[1](hidden)).pow(2).mean())
        return x * count, count

    return step, nothing, lambda: gradients(net)


@program
def a_variable_is_written_behind_the_hook() -> Program:
    """The hook sees what the variable holds when it runs."""
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        factor = x.mean()
        hidden = net[0](x)
        hidden.register_hook(lambda grad: grad * factor)
        factor = x.sum()
        return ends(net, net[2](net[1](hidden)).pow(2).mean())

    return step, nothing, lambda: gradients(net)


@program
def a_list_is_written_behind_the_hook() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        factors = [2.0]
        hidden = net[0](x)
        hidden.register_hook(lambda grad: grad * sum(factors))
        factors.append(3.0)
        return ends(net, net[2](net[1](hidden)).pow(2).mean())

    return step, nothing, lambda: gradients(net)


@program
def a_list_is_written_behind_the_end() -> Program:
    """Nothing in the step goes back: who calls does."""
    net, losses = network(), []

    def step(x: Tensor) -> Any:
        begins(net)
        factors = [2.0]
        hidden = net[0](x)
        hidden.register_hook(lambda grad: grad * sum(factors))
        loss = net[2](net[1](hidden)).pow(2).mean()
        factors.append(3.0)
        losses.append(loss)
        return loss.detach()

    def change(call: int) -> None:
        if losses:
            losses.pop().backward()

    return step, change, lambda: gradients(net)


@program
def variables_of_a_loop() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        found = {}
        for name in ("first", "second"):
            x = net[0](x)[:, :3]
            x.register_hook(lambda grad: found.__setitem__(name, grad.norm()))
        ends(net, x.pow(2).mean())
        return found

    return step, nothing, lambda: gradients(net)


@program
def a_hook_that_branches() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        hidden = net[0](x)

        def hook(grad: Tensor) -> Tensor | None:
            return grad * 2 if grad.sum() > 0 else None

        hidden.register_hook(hook)
        return ends(net, net[2](net[1](hidden)).pow(2).mean())

    return step, nothing, lambda: gradients(net)


@program
def a_hook_that_raises() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        hidden = net[0](x)

        def hook(grad: Tensor) -> None:
            if HELD.flag:
                raise ValueError("stop")

        hidden.register_hook(hook)
        try:
            return ends(net, net[2](net[1](hidden)).pow(2).mean())
        except ValueError as error:
            return str(error)

    def change(call: int) -> None:
        HELD.flag = call in (3, 5)

    return step, change, lambda: gradients(net)


@program
def a_hook_where_no_gradient_is() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        hidden = (x * 2).detach()
        hidden.register_hook(lambda grad: grad)
        return hidden

    return step, nothing, lambda: gradients(net)


@whole
def gradients_that_are_retained() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        hidden = net[0](x)
        hidden.retain_grad()
        loss = ends(net, net[2](net[1](hidden)).pow(2).mean())
        return loss, hidden.grad.norm()

    return step, nothing, lambda: gradients(net)


# Hooks of modules.


def norms(net: nn.Module, kept: dict[str, Any]) -> None:
    for name, child in net.named_children():
        child.register_full_backward_hook(
            lambda module, gi, go, name=name: kept.__setitem__(name, go[0].norm())
        )


@whole
def hooks_of_modules() -> Program:
    net, kept = network(), {}
    norms(net, kept)
    kept.update(dict.fromkeys(["0", "1", "2"], torch.zeros(())))

    def step(x: Tensor) -> Tensor:
        begins(net)
        return ends(net, net(x).pow(2).mean())

    return step, nothing, lambda: (gradients(net), dict(kept))


@program
def hooks_of_modules_come_and_go() -> Program:
    net, handles = network(), []

    def change(call: int) -> None:
        changes(call)
        if call == 2:
            handles.append(
                net[2].register_full_backward_hook(lambda module, gi, go: (gi[0] * HELD.factor,))
            )
        if call == 3:
            handles.append(net[1].register_full_backward_pre_hook(lambda module, go: (go[0] * 2,)))
        if call == 6:
            handles.pop(0).remove()

    def step(x: Tensor) -> Tensor:
        begins(net)
        return ends(net, net(x).pow(2).mean())

    return step, change, lambda: gradients(net)


@program
def hooks_of_a_module_that_is_given_more() -> Program:
    """A tuple of results, arguments that are no tensors, and inputs without gradients."""

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(
            self, x: Tensor, times: int, mask: Tensor | None
        ) -> tuple[Tensor, None, Tensor]:
            y = self.linear(x) * times
            return y, None, y.detach() * 2

    torch.manual_seed(0)
    net, kept = Pair(), []
    net.register_full_backward_hook(
        lambda module, gi, go: kept.append([None if it is None else it.shape for it in (*gi, *go)])
    )

    def step(x: Tensor) -> Any:
        begins(net)
        out, nothing_, other = net(x.requires_grad_(len(kept) % 2 == 0), 2, None)
        return ends(net, out.mean()), nothing_, other

    return step, nothing, lambda: (gradients(net), list(kept))


@program
def a_module_hook_counts_in_the_module() -> Program:
    net = network()
    net[1].count = 0

    def hook(module: nn.Module, gi: Any, go: Any) -> None:
        module.count += 1

    net[1].register_full_backward_hook(hook)

    def step(x: Tensor) -> Any:
        begins(net)
        before = net[1].count
        loss = ends(net, net(x).pow(2).mean())
        return loss, before, net[1].count

    return step, nothing, lambda: (gradients(net), net[1].count)


# What becomes of functions that were given.


@whole
def a_function_is_given_twice_and_returned() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        scale = x.mean()

        def hook(grad: Tensor) -> Tensor:
            return grad * scale

        first, second = net[0](x), net[0](x * 2)
        first.register_hook(hook)
        second.register_hook(hook)
        loss = ends(net, net[2](net[1](first + second)).pow(2).mean())
        return loss, hook(x), hook

    def called(x: Tensor) -> Any:
        loss, found, hook = step(x)
        return loss, found, hook(x * 3), hook.__name__, hook.__qualname__

    return called, nothing, lambda: gradients(net)


@program
def a_handle_is_returned() -> Program:
    net, handles = network(), []

    def step(x: Tensor) -> Any:
        begins(net)
        hidden = net[0](x)
        handles.append(hidden.register_hook(lambda grad: grad * 5))
        return net[2](net[1](hidden)).pow(2).mean()

    losses: list[Tensor] = []

    def called(x: Tensor) -> Any:
        losses.append(step(x))
        return losses[-1].detach()

    def change(call: int) -> None:
        if losses:
            if call % 2:
                handles.pop().remove()
            losses.pop().backward()
        handles.clear()

    return called, change, lambda: gradients(net)


@program
def a_handle_in_a_with() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        hidden = net[0](x)
        with hidden.register_hook(lambda grad: grad * 5):
            (first,) = torch.autograd.grad(net[2](net[1](hidden)).sum(), hidden, retain_graph=True)
        return ends(net, net[2](net[1](hidden)).pow(2).mean()), first

    return step, nothing, lambda: gradients(net)


@program
def a_break_behind_the_hook() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        found: list[Tensor] = []
        factor = x.mean()
        hidden = net[0](x)
        hidden.register_hook(lambda grad: found.append(grad * factor))
        out = net[2](net[1](hidden))
        if out.sum() > HELD.factor - 2:
            out = out * 2
        gc.isenabled()
        loss = ends(net, out.pow(2).mean())
        return loss, found, factor

    return step, changes, lambda: gradients(net)


@program
def hooks_go_back_twice() -> Program:
    net, kept = network(), []
    net[0].register_full_backward_hook(lambda module, gi, go: kept.append(go[0].norm()))

    def step(x: Tensor) -> Any:
        begins(net)
        x = x.clone().requires_grad_()
        out = net(x).sum()
        (first,) = torch.autograd.grad(out, x, create_graph=True)
        return ends(net, first.pow(2).sum() + out)

    return step, nothing, lambda: (gradients(net), [it.detach() for it in kept])


@program
def a_default_that_is_a_list() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        hidden = net[0](x)

        def hook(grad: Tensor, seen: list[Tensor] = []) -> None:  # noqa: B006
            seen.append(grad.norm())
            if len(seen) > 1:
                seen.clear()

        hidden.register_hook(hook)
        return ends(net, net[2](net[1](hidden)).pow(2).mean()), len(hook.__defaults__[0])

    return step, nothing, lambda: gradients(net)


@program
def hooks_of_pytorch() -> Program:
    """What they do isn't looked at: the graph breaks."""
    net, counts = network(), Counter()
    net[0].register_full_backward_hook(partial(told, counts))
    net[1].register_full_backward_pre_hook(lambda module, go: counts.update(["pre"]))

    def step(x: Tensor) -> Any:
        begins(net)
        before = sum(counts.values())
        return ends(net, net(x).pow(2).mean()), before, sum(counts.values())

    return step, nothing, lambda: dict(counts)


def told(counts: Counter[str], *args: Any) -> None:
    counts["post"] += 1


@pytest.mark.parametrize("name", PROGRAMS.all)
def test_steps_are_plain_ones(name: str) -> None:
    HELD.factor, HELD.flag = 2.0, False
    PROGRAMS.check(name)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_function_keeps_what_is_set_in_it(when: str) -> None:
    weight = torch.ones(3, requires_grad=True)

    def told(function: Any) -> None:
        function.__qualname__ = "renamed"
        function.__doc__ = "What it does."
        function.__module__ = "elsewhere"

    def step(x: Tensor) -> Any:
        weight.grad = None
        y = weight * x

        def hook(grad: Tensor) -> Tensor:
            return grad * 2

        if when == "before":
            told(hook)
        y.register_hook(hook)
        y.sum().backward()
        if when == "after":
            told(hook)
        return hook

    def seen(function: Any) -> Any:
        return function.__name__, function.__qualname__, function.__doc__, function.__module__

    compiled = stator.compile(step)
    for call in range(4):
        x = torch.full((3,), call + 1.0)
        assert seen(compiled(x)) == seen(step(x))
        assert torch.equal(weight.grad, 2 * x)


def test_a_list_that_a_node_was_given_is_sorted_afterwards() -> None:
    weight = torch.ones(3, requires_grad=True)

    def step(x: Tensor) -> Any:
        weight.grad = None
        y, numbers = weight * x, x.tolist()
        y.register_hook(lambda grad: grad * numbers[0])
        numbers.sort()
        y.sum().backward()
        return numbers

    compiled = stator.compile(step)
    for row in ([3.0, 1.0, 2.0], [3.0, 1.0, 2.0], [5.0, 4.0, 6.0], [1.0, 2.0, 3.0]):
        x = torch.tensor(row)
        expected = (step(x), weight.grad.clone())
        found = (compiled(x), weight.grad.clone())
        assert found[0] == expected[0] and torch.equal(found[1], expected[1])
