"""Builtin functions of numbers whose arguments have names: the one in front may be another one than the number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor


class Number:
    """Python code says what number it is."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value

    def __float__(self) -> float:
        return self.value / 2

    def __complex__(self) -> complex:
        return complex(self.value, 1)

    def __round__(self, digits: Any = None) -> Any:
        return "rounded", self.value, digits

    def __pow__(self, exponent: Any, modulo: Any = None) -> Any:
        return "power", self.value, exponent

    def __rpow__(self, base: Any, modulo: Any = None) -> Any:
        return "power of", base, self.value


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "int": lambda n: int(x=n),  # type: ignore[call-overload]
    "int to a base": lambda n: int("11", base=n),
    "float": lambda n: float(x=n),  # type: ignore[call-arg]
    "bool": lambda n: bool(x=n),  # type: ignore[call-arg]
    "complex": lambda n: complex(imag=n, real=1),
    "round": lambda n: round(number=n),
    "round to digits": lambda n: round(n, ndigits=2),
    "round turned round": lambda n: round(ndigits=n, number=2.54321),
    "round to none": lambda n: round(ndigits=None, number=n),
    "pow": lambda n: pow(n, exp=2),
    "pow turned round": lambda n: pow(exp=2, base=n),
    "pow with a modulus": lambda n: pow(mod=7, exp=n, base=2),
}
KINDS: dict[str, Callable[[int], Any]] = {
    "object": Number,
    "int": int,
    "float": float,
    "tensor of ints": torch.tensor,
    "tensor of floats": lambda value: torch.tensor(float(value)),
}


def answer(function: Callable[..., Any], number: Any) -> str:
    """What a function gives or raises."""
    try:
        return repr(function(torch.ones(2), number))
    except Exception as error:
        return repr(error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_named_arguments(name: str, kind: str) -> None:
    given = FUNCTIONS[name]

    def program(x: Tensor, number: Any) -> Any:
        return given(number), x + 1

    compiled = api.compile(program, backend="eager")
    for value in (3, 3, 4, 5, 3):
        number = KINDS[kind](value)
        assert answer(compiled, number) == answer(program, number)
