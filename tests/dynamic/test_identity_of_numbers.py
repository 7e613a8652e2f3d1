"""Where CPython gives an operand itself as the result (`abs(n)` is `n`), a recorded call, a replay and what stands behind a break do, too."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator

LARGE = [1003, 1004, 1005, -1006, -1007, 1008, 1009]

# Of each it's asked, in plain Python, whether the result is its argument.
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda n: n,
    "abs": abs,
    "abs twice": lambda n: abs(abs(n)),
    "negative": lambda n: -n,
    "positive": lambda n: +n,
    "max": lambda n: max(n, 0),
    "max of three": lambda n: max(3, n, n - 2),
    "min of four": lambda n: min([n + 5, n, 7000, abs(n)]),
    "max of a tuple": lambda n: max((n, 500)),
    "min": lambda n: min(n, 100_000),
    "max of abs": lambda n: max(abs(n), 5),
    "int": int,
    "round": round,
    "trunc": math.trunc,
    "floor": math.floor,
    "index": operator.index,
    "sum": lambda n: sum((n,)),
    "added": lambda n: n + 0,
    "multiplied": lambda n: n * 1,
    "or": lambda n: n or 5,
    "sorted": lambda n: sorted([n, 3])[n > 3],
}
SETTINGS = [{}, {"dynamic": True}]


def numbers_of(setting: dict[str, Any]) -> list[Any]:
    return [*LARGE, 5003] if setting else LARGE


@pytest.mark.parametrize("setting", SETTINGS, ids=["varied", "dynamic"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_result_that_is_its_operand_is_it(name: str, setting: Any) -> None:
    function = FUNCTIONS[name]

    def program(x: Any, n: int) -> Any:
        found = function(n)
        return found, [found], x * found

    compiled = stator.compile(program, **setting)
    for n in numbers_of(setting):
        found, held, scaled = compiled(torch.ones(2), n)
        assert (found is n, held[0] is n) == (function(n) is n,) * 2
        assert found is held[0] and type(found) is int
        assert found == function(n) and scaled.tolist() == [found, found]


@pytest.mark.parametrize("setting", SETTINGS, ids=["varied", "dynamic"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_where_the_program_asks(name: str, setting: Any) -> None:
    function = FUNCTIONS[name]

    def program(x: Any, n: int) -> Any:
        found = function(n)
        return found is n, found is not n, x * found

    compiled = stator.compile(program, **setting)
    for n in numbers_of(setting):
        expected, given = program(torch.ones(2), n), compiled(torch.ones(2), n)
        assert given[:2] == expected[:2] and torch.equal(given[2], expected[2])


@pytest.mark.parametrize("setting", SETTINGS, ids=["varied", "dynamic"])
@pytest.mark.parametrize("breaks", [1, 2])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_behind_breaks(name: str, breaks: int, setting: Any) -> None:
    function = FUNCTIONS[name]

    def program(x: Any, n: int) -> Any:
        found = function(n)
        stator.graph_break()
        y = x * found
        if breaks > 1:
            stator.graph_break()
        return found is n, y + n, found, n

    compiled = stator.compile(program, **setting)
    for n in numbers_of(setting):
        expected, given = program(torch.ones(2), n), compiled(torch.ones(2), n)
        assert given[0] == expected[0] and torch.equal(given[1], expected[1])
        assert given[3] is n and (given[2] is n) == expected[0]


KEPT: list[Any] = []


@stator.disable
def keep(*numbers: Any) -> None:
    KEPT.extend(numbers)


@pytest.mark.parametrize("setting", SETTINGS, ids=["varied", "dynamic"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_what_a_function_that_breaks_the_graph_is_given(name: str, setting: Any) -> None:
    function = FUNCTIONS[name]

    def program(x: Any, n: int) -> Any:
        found = function(n)
        keep(found, n)
        return KEPT[-2] is n, KEPT[-1] is n, x * found

    compiled = stator.compile(program, **setting)
    for n in [*numbers_of(setting), 7, 8, 9, 9]:
        KEPT.clear()
        given = compiled(torch.ones(2), n)
        assert KEPT[1] is n and given[1]
        is_it = function(n) is n
        assert (KEPT[0] is n, given[0]) == (is_it, is_it)


@pytest.mark.parametrize("setting", SETTINGS, ids=["varied", "dynamic"])
def test_floats_that_are_operands(setting: Any) -> None:
    def program(x: Any, f: float) -> Any:
        return float(f), +f, max(f, 1.0), f * 1, x * f

    compiled = stator.compile(program, **setting)
    for f in (2.5, 3.5, 4.5, 5.5):
        expected, given = program(torch.ones(2), f), compiled(torch.ones(2), f)
        assert [it is f for it in given[:4]] == [it is f for it in expected[:4]]


@stator.disable
def looked_at(seen: list[Any], first: Any, second: Any) -> None:
    seen.append(first is second)


def test_a_tuple_of_numbers_behind_a_break_is_the_one_that_a_list_holds() -> None:
    def kept(x: torch.Tensor, size: Any, seen: list[Any]) -> Any:
        held, error = [size], KeyError(size)
        inner = (size, held)
        looked_at(seen, held[0], size)
        x = x.view(size) * len(held)
        same = held[0] is size, error.args[0] is size, inner[0] is inner[1][0]
        looked_at(seen, inner[0], size)
        return x, same, held[0] is size, size[0] + held[0][1]

    compiled = stator.compile(kept)
    with stator.config.patch(skip_unprofitable=False):
        for rows, columns in [(2, 3), (2, 3), (4, 5), (4, 5), (6, 7), (2, 3)]:
            x, seen, expected_seen = torch.ones(rows * columns), [], []
            found = compiled(x, (rows, columns), seen)
            expected = kept(x, (rows, columns), expected_seen)
            assert torch.equal(found[0], expected[0])
            assert (found[1:], seen) == (expected[1:], expected_seen)
