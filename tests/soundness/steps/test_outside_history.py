"""Going back beside tensors whose history began outside, and `id()` of what is held there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn


class Bench:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.before = nn.Parameter(torch.ones(3))
        self.net = nn.Linear(3, 3)
        self.renew()

    def renew(self) -> None:
        self.hidden = (self.before * 2).exp() * 0.1
        self.other = self.hidden * 3


def detached(b: Bench, x: Tensor) -> Any:
    (b.net(x) + b.hidden.detach()).square().sum().backward()
    return b.hidden + 1


def reached(b: Bench, x: Tensor) -> Any:
    (b.net(x) + b.hidden).square().sum().backward(retain_graph=True)
    return x * 2


def written(b: Bench, x: Tensor) -> Any:
    y = b.net(x) + b.hidden * 2
    with torch.no_grad():
        b.hidden.detach().add_(0.5)
    y.sum().backward(retain_graph=True)
    return b.hidden.detach() * 2


def written_after(b: Bench, x: Tensor) -> Any:
    y = b.net(x) * b.hidden.exp()
    b.hidden.add_(1)
    y.sum().backward(retain_graph=True)
    return b.hidden.detach() * 2


def through_a_view(b: Bench, x: Tensor) -> Any:
    (b.net(x)[:, :2] + b.hidden[:2]).sum().backward(retain_graph=True)
    return b.hidden[0].detach()


def only_the_other(b: Bench, x: Tensor) -> Any:
    (b.net(x) * b.other).sum().backward(retain_graph=True)
    return b.hidden.sum().detach()


def asked_for(b: Bench, x: Tensor) -> Any:
    loss = (b.net(x) + b.hidden.detach()).square().sum()
    gradients = torch.autograd.grad(loss, list(b.net.parameters()), create_graph=True)
    sum(it.square().sum() for it in gradients).backward()
    return [it.detach() for it in gradients], b.hidden.detach() + 1


def unused(b: Bench, x: Tensor) -> Any:
    joined = torch.stack([b.hidden, b.other])
    b.net(x).sum().backward()
    return joined.detach()


FUNCTIONS = [
    detached,
    reached,
    written,
    written_after,
    through_a_view,
    only_the_other,
    asked_for,
    unused,
]


def no_history(b: Bench) -> None:
    b.hidden = b.hidden.detach()


def a_leaf(b: Bench) -> None:
    b.hidden = b.hidden.detach().requires_grad_()


CHANGES: dict[str, Callable[[Bench], Any]] = {
    "nothing": lambda b: None,
    "renewed": Bench.renew,
    "no history": no_history,
    "a leaf": a_leaf,
    "one tensor": lambda b: setattr(b, "other", b.hidden),
    "a hook": lambda b: b.hidden.requires_grad and b.hidden.register_hook(lambda it: it * 2),
    "kept": lambda b: b.hidden.requires_grad and b.hidden.retain_grad(),
}


def play(function: Any, change: str, wrap: Callable[[Any], Any]) -> list[str]:
    bench, results, called = Bench(), [], wrap(function)
    for call in range(8):
        if call >= 3:
            CHANGES[change](bench)
        try:
            result: Any = called(bench, torch.full((2, 3), float(call + 1)))
        except RuntimeError as error:
            result = str(error)
        tensors = [bench.before, *bench.net.parameters()]
        results.append(repr((result, [it.grad for it in tensors], bench.hidden.detach())))
        if call % 2:
            bench.net.zero_grad()
            bench.before.grad = None
    return results


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda it: it.__name__)
@pytest.mark.parametrize("change", CHANGES)
def test_gradients_are_plain_ones(function: Any, change: str) -> None:
    expected = play(function, change, lambda it: it)
    assert play(function, change, lambda it: api.compile(it, backend="eager")) == expected


@pytest.mark.skipif(api.PLAIN, reason="plain mode has no statistics")
@pytest.mark.parametrize("function", [detached, asked_for, unused])
def test_what_is_not_reached_breaks_nothing(function: Any) -> None:
    bench = Bench()
    compiled = api.compile(function, backend="eager")
    for _ in range(3):
        bench.net.zero_grad()
        compiled(bench, torch.ones(2, 3))
    assert api.breaks(compiled) == 0, api.reason(compiled)


class Holder:
    def __init__(self) -> None:
        self.held = nn.Linear(1, 1)
        self.known: dict[int, str] = {}


def test_identities_of_what_is_held() -> None:
    def named(holder: Holder, x: Tensor) -> Any:
        return x + 1, holder.known.get(id(holder.held)), id(holder.held)

    compiled = api.compile(named, backend="eager")
    holders = [Holder(), Holder()]
    for at, holder in enumerate(holders):
        holder.known[id(holder.held)] = f"the {at}th"
    for call in range(8):
        holder = holders[call % 2 if call > 3 else 0]
        if call == 6:
            holder.held = nn.Linear(1, 1)
        x = torch.full((2,), float(call))
        expected, found = named(holder, x), compiled(holder, x)
        assert torch.equal(expected[0], found[0]) and expected[1:] == found[1:], call
    if not api.PLAIN:
        assert api.breaks(compiled) == 0, api.reason(compiled)
