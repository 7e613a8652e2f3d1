"""Lists that a trace adds to before code of the program's own runs within a node, and looks at afterwards. What the trace
has added is its own, and how long the list is by then a node says: one trace serves the list as it grows."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .within_nodes import Doubled


class Adding(torch.autograd.Function):
    """It adds to a list that the program has."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, log: list[Any]) -> Tensor:
        log.append(5)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None


Program = Callable[[Tensor, Any], Any]
PROGRAMS: dict[str, Program] = {}
ONE_TRACE: set[str] = set()


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def one_trace(function: Program) -> Program:
    ONE_TRACE.add(function.__name__)
    return program(function)


@one_trace
def the_last_one(x: Tensor, s: Any) -> Any:
    s.log.append((s.name, 1))
    return Doubled.apply(x), s.log[-1][1]


@one_trace
def a_tensor(x: Tensor, s: Any) -> Any:
    s.log.append(x + 1)
    y = Doubled.apply(x)
    return y + s.log[-1]


@one_trace
def a_number_that_was_read(x: Tensor, s: Any) -> Any:
    s.log.append(x.sum().item())
    y = Doubled.apply(x)
    return y * s.log[-1]


@one_trace
def added_to_twice(x: Tensor, s: Any) -> Any:
    s.log.append(1)
    y = Doubled.apply(x)
    s.log.append(2)
    z = Doubled.apply(y)
    return z * len(s.log), s.log[-2], s.log[-1]


@one_trace
def its_length(x: Tensor, s: Any) -> Any:
    s.log.append(1)
    y = Doubled.apply(x)
    s.log.append(2)
    return y * len(s.log)


@one_trace
def its_length_is_added(x: Tensor, s: Any) -> Any:
    s.log.append(1)
    y = Doubled.apply(x)
    s.log.append(len(s.log))
    return y, len(s.log)


@program
def decided_by_its_length(x: Tensor, s: Any) -> Any:
    s.log.append(x)
    y = Doubled.apply(x)
    if s.log:
        y = y + 1
    if len(s.log) >= 4:
        s.log.clear()
    return y


@program
def its_length_before_and_behind(x: Tensor, s: Any) -> Any:
    before = len(s.log)
    s.log.append(before)
    y = Doubled.apply(x)
    s.log.extend([1, 2])
    return Doubled.apply(y), before, len(s.log)


@program
def others_add(x: Tensor, s: Any) -> Any:
    s.log.append(3)
    return Adding.apply(x, s.log) * s.log[-1], len(s.log)


@program
def taken_out_again(x: Tensor, s: Any) -> Any:
    s.log.append(x + 1)
    y = Doubled.apply(x)
    s.log.pop()
    s.log.append(x + 2)
    return y + s.log[-1], len(s.log)


@program
def taken_out_in_front(x: Tensor, s: Any) -> Any:
    s.log.append(4)
    y = Doubled.apply(x)
    while len(s.log) > 3:
        s.log.pop(0)
    return y, s.log[-1], len(s.log)


@program
def put_in_front(x: Tensor, s: Any) -> Any:
    s.log.append(4)
    y = Doubled.apply(x)
    s.log.insert(0, 9)
    return y, s.log[-1], len(s.log)


@program
def replaced(x: Tensor, s: Any) -> Any:
    s.log.append(4)
    y = Doubled.apply(x)
    s.log[-1] = 6
    s.log[:1] = [7, 8]
    return y * s.log[-1], len(s.log)


@program
def turned_around(x: Tensor, s: Any) -> Any:
    s.log.append(4)
    y = Doubled.apply(x)
    s.log.reverse()
    return y, s.log[-1], len(s.log)


@program
def another_list(x: Tensor, s: Any) -> Any:
    log = s.log
    log.append(4)
    y = Doubled.apply(x)
    s.log = [1]
    return y, s.log[-1], log[-1], len(log)


@program
def beyond_what_was_added(x: Tensor, s: Any) -> Any:
    s.log.append(4)
    return Doubled.apply(x), s.log[-2], len(s.log)


def seen(function: Program) -> list[str]:
    state = types.SimpleNamespace(log=[0], name="a")
    told = []
    for call in range(8):
        if call == 3:
            state.name = "b"
        if call == 5:
            state.log = [2, 3]
        x = (torch.arange(2.0) + call).requires_grad_()
        told += [repr(function(x, state)), repr(state)]
    return told


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("skips", [False, True])
def test_they_hold_what_plain_python_put_there(name: str, skips: bool) -> None:
    with stator.config.patch(skip_unprofitable=skips):
        compiled = stator.compile(PROGRAMS[name], backend="eager")
        assert seen(compiled) == seen(PROGRAMS[name])
    if name in ONE_TRACE and not skips:
        # Another name is another trace, at most.
        assert stator.stats(compiled).traces <= 2
