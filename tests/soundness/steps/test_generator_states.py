"""States of PyTorch's generators that a trace reads and sets back: draws and generators are plain Python's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

OWN = torch.Generator()
SAVED: list[Tensor] = []
TABLE = torch.arange(4.0)


def set_back(x: Tensor) -> Any:
    state = OWN.get_state()
    first = torch.rand(2, generator=OWN)
    OWN.set_state(state)
    return x + first - torch.rand(2, generator=OWN)


def of_the_process(x: Tensor) -> Any:
    state = torch.get_rng_state()
    first = torch.rand(2)
    torch.set_rng_state(state)
    return x + first - torch.rand(2), torch.rand(1)


def forked(x: Tensor) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        inside = torch.rand(2)
    return x + inside, torch.rand(2)


def given_to_another(x: Tensor) -> Any:
    first = torch.Generator().manual_seed(1)
    other = torch.Generator()
    other.set_state(first.get_state())
    return torch.rand(1, generator=first) - torch.rand(1, generator=other) + x


def kept(x: Tensor) -> Any:
    state = OWN.get_state()
    torch.rand(1, generator=OWN)
    return x, state, state is OWN.get_state()


def undone(x: Tensor) -> Any:
    state = torch.get_rng_state()
    torch.manual_seed(4)
    try:
        y = TABLE[x.long()]
    except IndexError:
        y = torch.rand(2)
    torch.set_rng_state(state)
    return y, torch.rand(1)


def raising(x: Tensor) -> Any:
    state = torch.get_rng_state()
    torch.manual_seed(4)
    y = TABLE[x.long()] + torch.rand(2)
    torch.set_rng_state(state)
    return y, torch.rand(1)


class Dropped(torch.autograd.Function):
    """What it drops, its own `backward` draws again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, share: float) -> Tensor:
        ctx.state, ctx.share = torch.get_rng_state(), share
        ctx.save_for_backward(x)
        return torch.nn.functional.dropout(x, share)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        now = torch.get_rng_state()
        torch.set_rng_state(ctx.state)
        with torch.enable_grad():
            again = x.detach().requires_grad_()
            y = torch.nn.functional.dropout(again, ctx.share)
        torch.set_rng_state(now)
        return torch.autograd.grad(y, again, grad)[0], None


def within_a_function(x: Tensor) -> Any:
    x = (x + torch.ones(8, 2)).requires_grad_()
    y = Dropped.apply(x, 0.5)
    y.sum().backward()
    return x.grad, y.detach(), torch.rand(1)


CASES = [
    set_back,
    of_the_process,
    forked,
    given_to_another,
    kept,
    undone,
    within_a_function,
    raising,
]


def written_to(x: Tensor) -> Any:
    state = OWN.get_state()
    state[100] = 3
    OWN.set_state(state)
    return x + torch.rand(1, generator=OWN)


def from_outside(x: Tensor) -> Any:
    OWN.set_state(SAVED[0])
    return x + torch.rand(1, generator=OWN)


def _observed(fn: Callable[..., Any]) -> list[str]:
    lines = []
    OWN.manual_seed(5)
    torch.manual_seed(0)
    SAVED[:] = [torch.Generator().manual_seed(9).get_state()]
    for i in (1, 2, 0, 9, 3):
        if i == 0:
            OWN.manual_seed(77)
        try:
            result = fn(torch.full((2,), float(i)))
        except IndexError as error:
            result = repr(error)
        states = [OWN.get_state(), torch.get_rng_state()]
        lines.append(str((result, *[state.tolist() for state in states])))
    return lines


@pytest.mark.parametrize("fn", CASES, ids=[fn.__name__ for fn in CASES])
def test_states(fn: Callable[..., Any]) -> None:
    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False):
        assert _observed(compiled) == _observed(fn)
    assert stator.stats(compiled).breaks == 0
    assert stator.stats(compiled).hits >= 2


@pytest.mark.parametrize("fn", [written_to, from_outside])
def test_a_state_that_may_be_none_breaks(fn: Callable[..., Any]) -> None:
    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False):
        assert _observed(compiled) == _observed(fn)
    assert stator.stats(compiled).breaks > 0
