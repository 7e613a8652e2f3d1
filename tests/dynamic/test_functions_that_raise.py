"""Functions of numbers that Python refuses for some: a replay begins only where they raise nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

INF, NAN = float("inf"), float("nan")

FUNCTIONS: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "cos": (math.cos, [INF, -INF, NAN]),
    "sin of a product": (lambda n: math.sin(n * 1e200), [1e200, INF]),
    "exp": (math.exp, [1e5, 709.5, -1e5, INF]),
    "sqrt": (math.sqrt, [-1.0, 0.0, NAN]),
    "log": (math.log, [0.0, -1.0, INF]),
    "quotient": (lambda n: 1 / (n - 1.5), [1.5, INF]),
    "square": (lambda n: n**2, [-3.5, 1e200, INF, NAN]),
    "inverse": (lambda n: n**-1.5, [0.0, -2.0, 1e-300, INF]),
    "inverse square": (lambda n: (n - 2.0) ** -2, [2.0, 1.0, -5.5]),
    "root": (lambda n: n**0.5, [-2.0, 0.0, INF]),
    "decay": (lambda n: 0.95**n, [1e20, -1e20, 1e3]),
    "growth": (lambda n: 2.5**n, [1e20, -1e20, NAN]),
    "power of math": (lambda n: math.pow(n, -1.5), [0.0, -2.0]),
    "both": (lambda n: (n - 1.0) ** (3.0 - n), [1.0, 5.0, 1e200, 0.5]),
    "whole": (int, [INF, NAN, 1e30, -7.5]),
    "floor": (lambda n: math.floor(n * 2), [INF, NAN, 1e30]),
    "rounded": (round, [INF, NAN, 1e30, 0.5]),
}


class Log:
    """What a program keeps of its calls."""

    def __init__(self) -> None:
        self.calls, self.seen = 0, list[float]()


@pytest.mark.parametrize("is_handled", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_python_refuses(name: str, is_handled: bool) -> None:
    function, refused = FUNCTIONS[name]

    def program(t: Tensor, n: float, log: Log) -> tuple[Tensor, Any]:
        t.add_(1)
        log.calls += 1
        log.seen.append(n)
        if not is_handled:
            return t * 2, function(n)
        try:
            result = function(n)
        except (ValueError, OverflowError, ZeroDivisionError) as error:
            log.seen.append(t.shape[0])
            return t + 5, repr(error)
        return t * 3, result

    compiled = stator.compile(program)

    def outcome(call: Callable[..., Any], n: float) -> str:
        t, log = torch.zeros(3), Log()
        try:
            result = call(t, n, log)
        except (ValueError, OverflowError, ZeroDivisionError) as error:
            result = error
        return repr((result, t, vars(log)))

    for n in (2.5, 3.5, 4.25, 2.75, *refused, 2.25, *refused, 3.25):
        assert outcome(compiled, n) == outcome(program, n)
    assert stator.stats(compiled).hits > 1
