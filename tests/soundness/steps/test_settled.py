"""Integers that come out of tensors as keys, indices, sizes and bounds; functions of numbers that raise for some."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor
from torch.nn import functional

from .results import copied, same

LETTERS = "abcdefghij"
TABLE = {0: "none", 1: "one", 2: "two", 3: "three"}


def most(x: Tensor) -> int:
    return int(x.abs().max())


def count(x: Tensor) -> Tensor:
    return x.abs().max().long()


SIZES: dict[str, Callable[[Tensor], Any]] = {
    "arange": lambda x: torch.arange(count(x).item()),
    "bounds": lambda x: x[: most(x)],
    "bounds, tensor": lambda x: x[: count(x)],
    "bounds, tensors": lambda x: x.expand(4, 3)[: count(x), None, 1 : count(x) + 1],
    "dimension": lambda x: x.sum(int(x[0] * 0)),
    "exponent": lambda x: most(x) ** int(x[0].abs()),
    "expand": lambda x: x.expand(most(x) + 1, -1),
    "index": lambda x: LETTERS[most(x)],
    "index, list": lambda x: [*LETTERS][count(x)],
    "index, stored": lambda x: stored(x),
    "key": lambda x: TABLE.get(int(x[0].long().item())),
    "loop": lambda x: sum(x * i for i in range(most(x))),
    "loop, tensor": lambda x: [x * i for i in range(count(x))],
    "member": lambda x: most(x) in (1, 2),
    "narrow": lambda x: x.narrow(0, 0, min(most(x), 3)),
    "one_hot": lambda x: functional.one_hot(x.abs().long(), most(x) + 1),
    "pad": lambda x: functional.pad(x, (0, most(x))),
    "repeat": lambda x: x.repeat(most(x), 1),
    "row": lambda x: [TABLE.get(it) for it in x.long().tolist()],
    "row, floats": lambda x: (lambda a, b, c: (a + b * c, x * a))(*x.tolist()),
    "shift": lambda x: 1 << most(x),
    "split": lambda x: x.split([min(most(x), 3), 3 - min(most(x), 3)]),
    "split, list": lambda x: x.split(torch.stack([count(x) * 0 + 1, count(x) * 0 + 2]).tolist()),
    "text": lambda x: "ab" * most(x),
    "view, tensor": lambda x: x.view(1, (count(x) * 0 + 3)),
    "zeros": lambda x: torch.zeros(most(x), 2),
    "zeros, tensor": lambda x: torch.zeros(count(x), 2),
}


def stored(x: Tensor) -> Tensor:
    result = torch.zeros(4, 3)
    result[: count(x)] = x
    result[most(x) % 4] += 1
    return result


FUNCTIONS: dict[str, Callable[[float], Any]] = {
    "ceil": math.ceil,
    "cos": math.cos,
    "exp": math.exp,
    "floor": math.floor,
    "half": lambda v: 1 / v,
    "int": int,
    "log": math.log,
    "log2": math.log2,
    "pow": lambda v: math.pow(v, 0.5),
    "pow, inverse": lambda v: math.pow(v, -2),
    "pow, of a constant": lambda v: (math.pow(0.5, v), math.pow(3, v)),
    "root": lambda v: v**0.5,
    "round": round,
    "sin": math.sin,
    "sqrt": math.sqrt,
    "tanh": math.tanh,
    "trunc": math.trunc,
}


def play(step: Callable[[Tensor, list[Any]], Any], values: list[list[float]]) -> list[Any]:
    """What each call gave or raised, and what it wrote."""
    played, log = [], list[Any]()
    for value in values:
        x = torch.tensor(value)
        try:
            result = step(x, log)
        except (ValueError, OverflowError, ZeroDivisionError, RuntimeError, IndexError) as raised:
            result = repr(raised)
        played.append(copied([result, x, log]))
    return played


@pytest.mark.parametrize("name", SIZES)
def test_what_integers_decide_is_that_of_plain_python(name: str) -> None:
    def step(x: Tensor, log: list[Any]) -> Any:
        log.append("begun")
        x += 0.0
        result = SIZES[name](x)
        log.append(result)
        return result

    values = [[1.0, 2, 3], [1, 2, 3], [3, 0, 1], [0, 0, -5], [2, 2, 2], [1, 2, 3], [2, -1, 3]]
    compiled = api.compile(step, backend="eager")
    assert same(play(compiled, values), play(step, values))
    first = api.compile(step, backend="eager")
    play(first, values[:2])
    if not api.PLAIN:
        assert (api.traces(first), api.breaks(first)) == (1, 0), "the trace goes on"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_numbers_raise_where_plain_python_does(name: str) -> None:
    def step(x: Tensor, log: list[Any]) -> Any:
        log.append("begun")
        x += 1
        number = x.sum().item()
        log.append(number)
        log.append(FUNCTIONS[name](number))
        x *= 2
        return log[-1]

    numbers = [1.0, 1, 2, -9, 1, math.inf, 1, math.nan, -1, 1e30, 0, 300, 1, -math.inf, -0.4]
    values = [[number] * 3 for number in numbers]
    assert same(play(api.compile(step, backend="eager"), values), play(step, values))


OF_TENSORS: dict[str, Callable[[Tensor], Any]] = {
    "ceil": math.ceil,
    "exp": math.exp,
    "floor": math.floor,
    "isfinite": lambda v: 1 if math.isfinite(v) else 2,
    "isnan": lambda v: 1 if math.isnan(v) else 2,
    "log": math.log,
    "pow": lambda v: math.pow(v + 1, 0.5),
    "pow, both": lambda v: math.pow(v, v),
    "sqrt": math.sqrt,
    "tanh": math.tanh,
}


@pytest.mark.parametrize("name", OF_TENSORS)
def test_functions_of_math_are_given_tensors(name: str) -> None:
    """They ask tensors for their floats, and raise as they do."""

    def step(x: Tensor, log: list[Any]) -> Any:
        x += 1
        log.append(OF_TENSORS[name](x.sum()))
        x *= 2
        number = OF_TENSORS[name](x[:1])
        log.append(number)
        return x * number

    numbers = [1.0, 1, 2, -9, 1, math.inf, 1, math.nan, -1, 1e30, 0, 300, 1, -math.inf, -0.4]
    values = [[number] * 3 for number in numbers]
    compiled = api.compile(step, backend="eager")
    assert same(play(compiled, values), play(step, values))
    first = api.compile(step, backend="eager")
    play(first, [values[0], values[0]])
    if not api.PLAIN and name != "pow, both":
        assert (api.traces(first), api.breaks(first)) == (1, 0), "the trace goes on"


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True")
def test_functions_of_math_are_given_tensors_of_other_types() -> None:
    """Integers and truths are floats, too; what has several elements isn't one, nor is a complex number."""

    def step(v: Tensor) -> Any:
        return math.sqrt(v), v + 1

    def outcome(call: Callable[[Tensor], Any], v: Tensor) -> str:
        try:
            return repr(call(v))
        except (RuntimeError, TypeError, ValueError) as raised:
            return repr(raised)

    compiled = api.compile(step, backend="eager", recompile_limit=99)
    values = [
        *(torch.tensor(4), torch.tensor(True), torch.tensor([[2.0]]), torch.tensor(2 + 1j)),
        *(torch.tensor([1.0, 2]), torch.tensor(1.5, dtype=torch.bfloat16), torch.tensor([])),
        *(torch.tensor(9, dtype=torch.uint8), torch.tensor(2.0, requires_grad=True)),
    ]
    for value in [*values, *values]:
        assert outcome(compiled, value) == outcome(step, value)
