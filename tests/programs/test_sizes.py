"""Arithmetic with sizes that vary: shares, roots, extremes, and what programs require of sizes for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from programs.common import spec

from stator.errors import ProgramError, ProgramInputError
from stator.programs import TensorProgram


def share(x: Any) -> Any:
    n = int(0.8 * len(x))
    return x[:n].sum(), x[n:].sum(), n


def rounded_share(x: Any) -> Any:
    n = round(len(x) * 0.3)
    return x[:n].sum() + n


def at_least_one(x: Any) -> Any:
    return x[-max(1, len(x) // 3) :].sum()


def at_most(x: Any) -> Any:
    return x[: min(len(x), 5)].sum() + min(7.5, len(x))


def most_of(x: Any) -> Any:
    return x.topk(min(3, len(x))).values


def share_of_elements(x: Any) -> Any:
    return x.abs().topk(max(1, int(0.1 * x.numel()))).values.sum()


def shuffled_share(x: Any) -> Any:
    chosen = torch.arange(len(x)).flip(0)
    return x[chosen[: int(len(chosen) * 0.5)]].sum()


def roots(x: Any) -> Any:
    n = len(x)
    return x.sum() / math.sqrt(n), 1 / n, n**0.5, math.log(n), math.exp(-n / 10)


def ceiling(x: Any) -> Any:
    groups = math.ceil(len(x) / 4)
    return torch.nn.functional.pad(x, (0, groups * 4 - len(x))).view(groups, 4).sum(1)


def three_extremes(x: Any) -> Any:
    n = len(x)
    return max(n, 3, n - 2) + x.sum(), min(3 * n, n * n)


FUNCTIONS: list[Callable[[Any], Any]] = [
    *(share, rounded_share, at_least_one, at_most, most_of, share_of_elements, shuffled_share),
    *(roots, ceiling, three_extremes),
]


def numbers(value: Any) -> list[float]:
    found = value if isinstance(value, (tuple, list)) else [value]
    return [n for each in found for n in torch.as_tensor(each).double().reshape(-1).tolist()]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_programs_compute_with_sizes(function: Any) -> None:
    program = TensorProgram.trace(function, (spec(None),))
    again = TensorProgram.from_bytes(program.to_bytes())
    assert again.text == program.text
    served = 0
    for size in (1, 2, 3, 4, 5, 7, 10, 31, 5039, 5040):
        x = torch.arange(float(size)) / 4 + 1
        for each in (program, again):
            try:
                found = each(x)
            except ProgramInputError as error:
                # Of sizes that aren't served it says which condition they don't meet.
                assert "x.size(0)" in str(error) or "input 0.size(0)" in str(error)
                continue
            served += 1
            assert numbers(found) == pytest.approx(numbers(function(x)), rel=1e-5), size
    assert served >= 8


def test_what_a_decision_requires_is_said() -> None:
    def decided(x: Any) -> Any:
        return x.sum() if 0.25 * len(x) > 2.5 else x.mean()

    program = TensorProgram.trace(decided, (spec(None),))
    assert "2.5" in program.text
    for size in (11, 40, 5040):
        assert torch.equal(program(torch.ones(size))[0], torch.tensor(float(size)))
    for size in (0, 1, 10):
        with pytest.raises(ProgramInputError, match=r"0\.25\*float\(x\.size\(0\)\)"):
            program(torch.ones(size))


def pieces(x: Any) -> Any:
    return sum(piece.sum() for piece in x.split(2))


def steps(x: Any) -> Any:
    total = x.sum() * 0
    for at in range(0, len(x), 2):
        total = total + x[at]
    return total


def elements(x: Any) -> Any:
    return sum(element * 2 for element in x)


@pytest.mark.parametrize("function", [pieces, steps, elements])
def test_as_many_operations_as_rows_are_refused(function: Any) -> None:
    """It used to be a program for 5,039 and 5,040 rows: for the size that stands for the unknown."""
    with pytest.raises(ProgramError, match="value of a size that varies") as failed:
        TensorProgram.trace(function, (spec(None),))
    assert function.__name__ in str(failed.value)
    assert len(TensorProgram.trace(function, (spec(4),))(torch.ones(4))) == 1
