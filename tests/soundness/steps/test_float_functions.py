"""Functions of `math` of numbers that were read: nodes, and what would raise for some numbers is decided."""

from __future__ import annotations

import functools
import math
import operator
import random
import statistics
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .results import copied, same

#: Of one float.
SINGLE = "acos acosh asin asinh atan atanh cbrt cosh degrees erf erfc exp2 expm1 fabs log1p radians sinh tan".split()


def rows(x: Tensor) -> Any:
    numbers, others = x.tolist(), (x * 2).tolist()
    p, q = tuple(numbers), others
    return math.dist(p, q), math.hypot(*numbers), math.fsum(numbers), x + math.fsum(p)


def pairs(x: Tensor) -> Any:
    a, b = x[0].item(), x[1].item()
    return math.atan2(a, b), math.copysign(a, b), x * math.hypot(a, 3), math.hypot(a, x.shape[0])


def generated(x: Tensor) -> Any:
    return math.fsum(part.item() for part in x), statistics.fmean(x.tolist()), x + 1


def close(x: Tensor) -> Any:
    a, b = x[0].item(), x[1].item()
    if math.isclose(a, b, rel_tol=0.1) or math.isclose(a, 0.5, abs_tol=0.1):
        return x + 1
    return x - 1, math.isclose(a, b), math.isclose(b, a, abs_tol=1e3)


def tolerance_read(x: Tensor) -> Any:
    return math.isclose(1.0, 1.1, rel_tol=x[0].item()), x + 1


def of_tensors(x: Tensor) -> Any:
    return math.hypot(x[0], x[1]), math.isclose(x[0], x[1]), math.atan(x[0]), x + 1


def of_outside_list(x: Tensor) -> Any:
    OUTSIDE.append(x[0].item())
    del OUTSIDE[:-3]
    return math.fsum(OUTSIDE), math.dist(OUTSIDE[-2:], [0.0, 1.0]), x + 1


def handled(x: Tensor) -> Any:
    try:
        return math.acosh(x[0].item()) + math.fsum(x.tolist()), x + 1
    except (ValueError, OverflowError) as error:
        return str(error), x - 1


def reduced(x: Tensor) -> Any:
    numbers = x.tolist()
    total = functools.reduce(operator.add, numbers)
    counts = [x.shape[0], int(x[0].item() * 4) if math.isfinite(x[0].item()) else 0]
    return (
        total,
        functools.reduce(operator.mul, numbers, 0.5),
        functools.reduce(operator.or_, counts),
        x,
    )


def named(x: Tensor) -> Any:
    state = types.SimpleNamespace(loss=x[0].item(), size=x.shape[0])
    state.loss += 1
    return state, state.loss * x


def single(name: str) -> Callable[[Tensor], Any]:
    function = getattr(math, name)

    def run(x: Tensor) -> Any:
        return function(x[0].item()), x + function(x[1].item())

    return run


OUTSIDE: list[float] = []
PROGRAMS: list[Callable[[Tensor], Any]] = [
    *(rows, pairs, generated, close, tolerance_read, of_tensors, of_outside_list, handled, reduced),
    named,
]
INFINITE = float("inf")
NUMBERS = [
    (0.5, 0.25),
    (0.5, 0.25),
    (0.75, 0.5),
    (1.5, 1.5),
    (-1.0, 1.0),
    (-2.0, -0.0),
    (800.0, 1e30),
    (INFINITE, 1.0),
    (INFINITE, -INFINITE),
    (float("nan"), 1.0),
    (3e38, 3e38),
    (0.25, 0.5, 0.125),
    (0.25, 0.75, 0.125),
]


def outcomes(program: Callable[[Tensor], Any]) -> list[Any]:
    OUTSIDE[:] = [1.0]
    found: list[Any] = []
    for numbers in NUMBERS:
        try:
            result = program(torch.tensor(numbers, dtype=torch.float64))
        except (ValueError, OverflowError) as error:
            result = type(error), str(error)
        if isinstance(result, tuple) and isinstance(result[0], types.SimpleNamespace):
            result = (vars(result[0]), *result[1:])
        found.append((copied(result), list(OUTSIDE)))
    return found


def check(program: Callable[[Tensor], Any]) -> None:
    expected = outcomes(program)
    stator.reset()
    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        assert same(outcomes(compiled), expected)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_right_whatever_the_numbers_are(program: Callable[[Tensor], Any]) -> None:
    check(program)


@pytest.mark.parametrize("name", [name for name in SINGLE if hasattr(math, name)])
def test_functions_of_one_float(name: str) -> None:
    check(single(name))


def of_several(name: str) -> Callable[[float, float], Any]:
    function = getattr(math, name)
    if name == "fsum":
        return lambda a, b: function([a, b, 1.0])
    return lambda a, b: (function(a, b), function(b, 0.5))


OF_NUMBERS: dict[str, Callable[[float, float], Any]] = {
    **{
        name: lambda a, b, function=getattr(math, name): (function(a), function(b))
        for name in SINGLE
        if hasattr(math, name)
    },
    **{name: of_several(name) for name in ("atan2", "copysign", "hypot", "isclose", "fsum")},
}


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_drawn_and_given_numbers(name: str) -> None:
    """Numbers that the trace draws, and those that are arguments."""
    function = OF_NUMBERS[name]

    def drawn(x: Tensor, a: float) -> Any:
        u, v = random.random(), random.uniform(0.5, 2.0)
        return x * u, function(u, v), x + torch.tensor(function(u, v)).sum()

    def given(x: Tensor, a: float) -> Any:
        return x + a, function(a, a + 0.5), x + torch.tensor(function(a, 1.0)).sum()

    for program in (drawn, given):
        compiled = stator.compile(program)
        with stator.config.patch(skip_unprofitable=False):
            for seed in range(8):
                found: list[Any] = []
                for way in (program, compiled):
                    random.seed(seed)
                    try:
                        found.append(copied(way(torch.ones(2), 0.125 * seed)))
                    except ValueError as error:
                        found.append(str(error))
                    found.append(random.random())
                assert same(found[:2], found[2:]), (name, program.__name__, seed)


@pytest.mark.parametrize(
    "program",
    [rows, pairs, generated, close, of_tensors, reduced, named],
    ids=lambda it: it.__name__,
)
def test_one_trace_serves_ordinary_numbers(program: Callable[[Tensor], Any]) -> None:
    stator.reset()
    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        for first in (0.5, 0.625, 0.75):
            x = torch.tensor([first, 2.0])
            assert same(copied_vars(compiled(x)), copied_vars(program(x)))
    stats = stator.stats(compiled)
    assert stats.breaks == 0, stats.reason


def copied_vars(result: Any) -> Any:
    if isinstance(result[0], types.SimpleNamespace):
        return (vars(result[0]), *result[1:])
    return result
