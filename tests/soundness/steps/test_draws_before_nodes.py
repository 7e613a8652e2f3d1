"""Numbers of Python's `random` that are drawn before and behind nodes whose code was looked at: that draws none."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.utils.checkpoint import checkpoint

from .within_nodes import (
    HELD,
    Doubled,
    Program,
    Programs,
    begins,
    ends,
    gradients,
    network,
    nothing,
)

PROGRAMS = Programs(most_traced=3)
program, whole = PROGRAMS.program, PROGRAMS.whole


@whole
def before_and_behind_a_checkpoint() -> Program:
    random.seed(1)
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        scale = random.uniform(0.5, 2)
        hidden = checkpoint(lambda h: torch.tanh(net[0](h)), x * scale, use_reentrant=False)
        loss = net[2](hidden).pow(2).mean() * random.random()
        return ends(net, loss), random.random(), scale

    return step, nothing, lambda: gradients(net)


@whole
def before_going_back_through_hooks() -> Program:
    random.seed(2)
    net = network()
    net[0].weight.register_hook(lambda grad: grad * 2)

    def step(x: Tensor) -> Any:
        begins(net)
        x = x + random.gauss(0, 1)
        return ends(net, Doubled.apply(net(x)).pow(2).mean()), random.random()

    return step, nothing, lambda: gradients(net)


@whole
def before_a_transform() -> Program:
    random.seed(3)

    def step(x: Tensor) -> Any:
        scale = random.random()
        found = vmap(grad(lambda row: (row * scale).pow(2).sum()))(x)
        return found * random.random(), random.random()

    return step, nothing, list


@program
def a_hook_draws() -> Program:
    random.seed(4)
    net = network()
    net[0].weight.register_hook(lambda grad: grad * random.random())

    def step(x: Tensor) -> Any:
        begins(net)
        before = random.random()
        return ends(net, net(x * before).pow(2).mean()), before, random.random()

    return step, nothing, lambda: gradients(net)


@program
def a_checkpoint_draws_in_some_calls() -> Program:
    random.seed(5)
    net = network()

    def run(h: Tensor) -> Tensor:
        hidden = torch.tanh(net[0](h))
        return hidden * random.random() if HELD.flag else hidden

    def step(x: Tensor) -> Any:
        begins(net)
        x = x * random.random()
        return ends(net, net[2](checkpoint(run, x, use_reentrant=False)).pow(2).mean())

    def change(call: int) -> None:
        HELD.flag = call in (3, 6)

    return step, change, lambda: gradients(net)


@program
def going_back_behind_a_way_out() -> Program:
    random.seed(6)
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        loss = net(x).pow(2).mean()
        if loss > 0.3:
            loss = loss * 2
        loss = loss * random.random() + random.random()
        return ends(net, loss), random.random() < 0.5

    return step, nothing, lambda: gradients(net)


@program
def a_second_generator_within() -> Program:
    random.seed(7)
    own = random.Random(7)

    def step(x: Tensor) -> Any:
        scale = random.random()
        return vmap(lambda row: row * scale * own.random())(x), own.random()

    return step, nothing, list


@program
def a_seed_within() -> Program:
    random.seed(8)

    def of(row: Tensor) -> Tensor:
        random.seed(8)
        return row * 2

    def step(x: Tensor) -> Any:
        before = random.random()
        return vmap(of)(x) * before, random.random()

    return step, nothing, list


@program
def an_operation_that_raises_behind() -> Program:
    random.seed(9)
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        scale = random.random()
        loss = Doubled.apply(net(x)).pow(2).mean() * scale
        ends(net, loss)
        try:
            return nn.functional.embedding(HELD.count, net[0].weight.detach()), random.random()
        except IndexError as error:
            return str(error), random.random()

    def change(call: int) -> None:
        HELD.count = torch.tensor([0, 9 if call in (3, 5) else 1])

    return step, change, lambda: gradients(net)


@pytest.mark.parametrize("name", PROGRAMS.all)
def test_steps_are_plain_ones(name: str) -> None:
    HELD.factor, HELD.flag, HELD.count = 2.0, False, 0
    random.seed(0)
    PROGRAMS.check(name)
    HELD.count = 0
