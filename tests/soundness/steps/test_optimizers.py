"""Training steps with each of PyTorch's optimizers: equal to plain ones to the bit, and one trace before long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn, optim
from torch.optim import lr_scheduler as schedules

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda them: optim.SGD(them, lr=0.1),
    "SGD-momentum": lambda them: optim.SGD(them, lr=0.1, momentum=0.9, weight_decay=0.01),
    "SGD-foreach": lambda them: optim.SGD(them, lr=0.1, momentum=0.9, foreach=True),
    "Adam": lambda them: optim.Adam(them, lr=0.01),
    "Adam-amsgrad": lambda them: optim.Adam(them, lr=0.01, amsgrad=True, weight_decay=0.1),
    "Adam-foreach": lambda them: optim.Adam(them, lr=0.01, foreach=True),
    "Adam-fused": lambda them: optim.Adam(them, lr=0.01, fused=True),
    "Adam-capturable": lambda them: optim.Adam(them, lr=torch.tensor(0.01)),
    "AdamW": lambda them: optim.AdamW(them, lr=0.01),
    "AdamW-foreach": lambda them: optim.AdamW(them, lr=0.01, foreach=True),
    "NAdam": lambda them: optim.NAdam(them, lr=0.01),
    "RAdam": lambda them: optim.RAdam(them, lr=0.01),
    "Adagrad": lambda them: optim.Adagrad(them, lr=0.1),
    "Adadelta": lambda them: optim.Adadelta(them),
    "Adamax": lambda them: optim.Adamax(them, lr=0.01),
    "ASGD": lambda them: optim.ASGD(them, lr=0.1),
    "RMSprop": lambda them: optim.RMSprop(them, lr=0.01, momentum=0.5, centered=True),
    "Rprop": lambda them: optim.Rprop(them, lr=0.01),
    "groups": lambda them: optim.AdamW(
        [{"params": them[:2], "lr": 0.1}, {"params": them[2:], "weight_decay": 0.0}], lr=0.01
    ),
}

# Those of which a replay runs no part natively, from here on.
STEADY = 40
PARTLY = {"Adam-capturable"}


def train(
    make: Callable[[Any], Any], wrap: Callable[[Any], Any], calls: int
) -> tuple[list[list[Tensor]], Any, Callable[[], None]]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = make(list(net.parameters()))
    seen: list[list[Tensor]] = []

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    wrapped = wrap(step)

    def play() -> None:
        generator = torch.Generator().manual_seed(len(seen) % 7)
        loss = wrapped(torch.randn(5, 3, generator=generator))
        state = [it for kept in optimizer.state.values() for it in kept.values()]
        tensors = [*net.parameters(), *(it for it in state if isinstance(it, Tensor))]
        seen.append([loss, *(it.detach().clone() for it in tensors)])

    for _ in range(calls):
        play()
    return seen, wrapped, play


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_plain_ones(name: str) -> None:
    expected, _, go_on = train(OPTIMIZERS[name], lambda step: step, STEADY)
    found, compiled, play = train(
        OPTIMIZERS[name], lambda step: api.compile(step, backend="eager"), STEADY
    )
    traces, hits = api.traces(compiled), api.hits(compiled)
    for _ in range(5):
        go_on()
        play()
    for call, (left, right) in enumerate(zip(expected, found, strict=True)):
        assert len(left) == len(right)
        assert all(map(torch.equal, left, right)), f"step {call}"
    if not api.PLAIN:
        assert api.traces(compiled) == traces, api.reason(compiled)
        assert api.hits(compiled) == hits + 5, api.reason(compiled)  # type: ignore[operator]


@pytest.mark.skipif(api.PLAIN, reason="plain mode has no statistics")
@pytest.mark.parametrize("name", sorted(set(OPTIMIZERS) - PARTLY))
def test_warm_steps_are_one_trace(name: str) -> None:
    """Compiled when the optimizer has its state, and far enough that no decision changes any more."""
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.randn(4, 3)) for _ in range(3)]
    optimizer = OPTIMIZERS[name](weights)
    for weight in weights:
        weight.grad = torch.randn(4, 3)
    for _ in range(8):
        optimizer.step()
    compiled = api.compile(optimizer.step, backend="eager")
    for _ in range(4):
        compiled()
    assert (api.traces(compiled), api.breaks(compiled)) == (1, 0), api.reason(compiled)
    assert api.hits(compiled) == 3


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "StepLR": lambda it: schedules.StepLR(it, 7),
    "LinearLR": lambda it: schedules.LinearLR(it, total_iters=50),
    "ExponentialLR": lambda it: schedules.ExponentialLR(it, 0.97),
    "CosineAnnealingLR": lambda it: schedules.CosineAnnealingLR(it, 50),
    "OneCycleLR": lambda it: schedules.OneCycleLR(it, 0.1, total_steps=60),
    "LambdaLR": lambda it: schedules.LambdaLR(it, lambda step: 0.95**step),
}


def schedule(make: Callable[[Any], Any], wrap: Callable[[Any], Any]) -> tuple[Any, ...]:
    torch.manual_seed(0)
    net = nn.Linear(3, 3)
    optimizer = optim.AdamW(net.parameters(), lr=0.01)
    scheduler = make(optimizer)
    losses: list[float] = []

    def step(x: Tensor) -> tuple[Any, ...]:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        return loss.item(), norm.item(), scheduler.get_last_lr()

    called = wrap(step)
    generator = torch.Generator().manual_seed(0)
    results = [called(torch.randn(4, 3, generator=generator)) for _ in range(30)]
    return (results, losses, [it.tolist() for it in net.parameters()]), called


@pytest.mark.parametrize("name", SCHEDULERS)
def test_rates_that_change_each_step_make_no_trace_each(name: str) -> None:
    """With gradients clipped and a loss that is noted, as training loops have it."""
    expected, _ = schedule(SCHEDULERS[name], lambda step: step)
    found, compiled = schedule(SCHEDULERS[name], lambda it: api.compile(it, backend="eager"))
    assert expected == found
    if not api.PLAIN:
        assert api.hits(compiled) >= 22, api.reason(compiled)  # type: ignore[operator]


def test_other_ways_are_recorded_anew() -> None:
    """A warm-up that ends: what is done from then on is a trace from the call's beginning."""
    count = torch.zeros(())

    def step(x: Tensor) -> Tensor:
        count.add_(1)
        for _ in range(3):
            x = x + 1
            x = x * 2 if count < 10 else x * 3
        return x

    compiled = api.compile(step, backend="eager")
    x = torch.ones(2)
    for call in range(60):
        plain = x
        for _ in range(3):
            plain = (plain + 1) * (2 if call + 1 < 10 else 3)
        assert torch.equal(compiled(x), plain)
    if not api.PLAIN:
        before = api.traces(compiled)
        hits = api.hits(compiled)
        compiled(x)
        assert (api.traces(compiled), api.hits(compiled)) == (before, hits + 1)  # type: ignore[operator]
