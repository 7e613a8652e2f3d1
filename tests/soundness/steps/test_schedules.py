"""Schedulers, averages and other upkeep of a training step whose Python makes sets, chains and aliases on its way."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

import stator

from .within_nodes import Program, Programs, network, nothing, rows

PROGRAMS = Programs(most_traced=5)
program, whole = PROGRAMS.program, PROGRAMS.whole


@whole
def schedules_in_turn() -> Program:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    parts = [
        lr_scheduler.LinearLR(optimizer, 0.1, 1, 3),
        lr_scheduler.CosineAnnealingLR(optimizer, 10),
    ]
    schedule = lr_scheduler.SequentialLR(optimizer, parts, [3])

    def step(x: Tensor) -> Any:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach(), schedule.get_last_lr()

    return step, nothing, lambda: optimizer.param_groups[0]["lr"]


@whole
def averaged_with_buffers() -> Program:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    torch.manual_seed(0)
    for it in net.parameters():
        nn.init.normal_(it)
    average = AveragedModel(net, use_buffers=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor) -> Any:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        average.update_parameters(net)
        return loss.detach()

    return step, nothing, lambda: [it.clone() for it in average.state_dict().values()]


@program
def decided_within_a_chain() -> Program:
    net: Any = network()

    def step(x: Tensor) -> Any:
        count = 0
        for it in itertools.chain(net[0].parameters(), [x], net[2].parameters()):
            if it.sum() > x.sum():
                count += 1
        return x * count

    return step, nothing, lambda: None


@program
def chain_that_is_kept() -> Program:
    held: list[Any] = [iter(())]

    def step(x: Tensor) -> Any:
        both = itertools.chain([x, x + 1], (x * 2,), itertools.chain.from_iterable([[x * 3]]))
        first = next(both)
        held[0] = both
        return first

    return step, nothing, lambda: list(held[0])


@program
def aliases_of_unions() -> Program:
    kinds: dict[str, Any] = {"kind": int}
    table: Any = dict
    row: Any = list

    def step(x: Tensor) -> Any:
        alias = table[str, row[kinds["kind"] | None]]
        return x * 2, repr(alias), repr(list[float | Tensor])

    def before(call: int) -> None:
        kinds["kind"] = int if call < 4 else str

    return step, before, lambda: None


@dataclasses.dataclass
class Row:
    step: int
    loss: float
    names: list[str]


@whole
def records_of_numbers() -> Program:
    net = network()
    found: list[Any] = []

    def step(x: Tensor) -> Any:
        loss = net(x).pow(2).mean()
        row = Row(1, loss.item(), ["loss"])
        found.append(dataclasses.asdict(row))
        return copy.deepcopy(row.loss) * 2, loss.detach()

    return step, nothing, lambda: found[-1]


@whole
def sorted_by_names() -> Program:
    net = network()
    sums = {"total": [0.0, 0], "loss": [0.0, 0]}

    def step(x: Tensor) -> Any:
        loss = net(x).pow(2).mean()
        for name, value in {"loss": loss, "total": loss * 2}.items():
            sums[name][0] += value.item()
            sums[name][1] += 1
        ordered = sorted([(name, total) for name, (total, _) in sums.items()])
        return [f"{name}: {a / b:.5f}" for name, (a, b) in sorted(sums.items())], ordered

    return step, nothing, lambda: None


@program
def sorted_by_names_and_numbers() -> Program:
    def step(x: Tensor) -> Any:
        a, b = x[0].tolist()[:2]
        return sorted([("a", b), ("a", a), ("b", a)])

    return step, nothing, lambda: None


@whole
def exit_stack() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
            stack.callback(lambda: None)
            found = net(x)
        return found.float()

    return step, nothing, lambda: None


@whole
def checkpointed_under_a_decorator() -> Program:
    """A function with attributes of its own."""
    net: Any = network()

    def scaled(function: Callable[..., Any]) -> Any:
        @functools.wraps(function)
        def call(x: Tensor) -> Any:
            return function(x) * 3

        return call

    def step(x: Tensor) -> Any:
        net.zero_grad()

        @scaled
        def forward(x: Tensor) -> Any:
            return torch.tanh(net(x))

        checkpoint(forward, x, use_reentrant=False).sum().backward()
        return net[0].weight.grad.clone(), forward.__name__, forward.__wrapped__.__name__

    return step, nothing, lambda: None


@pytest.mark.parametrize("name", list(PROGRAMS.all))
def test_equals_plain_python(name: str) -> None:
    PROGRAMS.check(name)


def exception_class() -> Any:
    return type(sys.exception())


def second_of_three() -> Any:
    return type(sys.exc_info()[1])


HANDLED = [exception_class, second_of_three]


@pytest.mark.parametrize("handled", HANDLED)
def test_what_is_handled_where_the_call_is_made(handled: Callable[[], Any]) -> None:
    def step(x: Tensor) -> Any:
        return x * 2, handled()

    compiled = stator.compile(step)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(8):
            x = rows(call, 3)
            try:
                if call in (3, 4, 6):
                    raise KeyError(call)
            except KeyError:
                found = compiled(x)
                assert found[1] is KeyError
            else:
                found = compiled(x)
                assert found[1] is type(None)
            assert torch.equal(found[0], x * 2)


@pytest.mark.parametrize("handled", HANDLED)
def test_what_is_handled_within_the_call(handled: Callable[[], Any]) -> None:
    def step(x: Tensor, key: str) -> Any:
        try:
            found: Any = {"a": 1}[key]
        except KeyError:
            found = handled()
        return x * 2, found, handled(), sys.exc_info()

    compiled = stator.compile(step)
    with stator.config.patch(skip_unprofitable=False):
        for key in ("a", "a", "b", "b", "a"):
            x = rows(1, 3)
            found, expected = compiled(x, key), step(x, key)
            assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
