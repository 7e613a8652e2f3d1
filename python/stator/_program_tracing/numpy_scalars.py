"""NumPy's functions of Python's numbers, in programs of PyTorch code: `np.sqrt(d)`, `np.log(2)`,
`np.prod(x.shape)`.

They give numbers as Python's `math` does, so they may be given sizes that vary. In NumPy code they
give arrays without dimensions (`numpy_functions`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["OF_NUMBERS", "OF_ROWS"]


def _sqrt(x: Any) -> Any:
    return math.nan if x < 0 else math.sqrt(x)


def _logarithm(of: Callable[[Any], float]) -> Callable[[Any], Any]:
    def logarithm(x: Any) -> Any:
        if x > 0:
            return of(x)
        return math.nan if x < 0 else -math.inf

    return logarithm


_KEEPS_INTEGERS = isinstance(np.floor(1), np.integer)
"""Whether NumPy rounds integers to themselves. Before version 2.1 they become floats."""


def _rounded(to: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def rounded(x: Any) -> Any:
        if isinstance(x, int):
            return x if _KEEPS_INTEGERS else float(x)
        return x if x in (math.inf, -math.inf) or x != x else float(to(x))

    return rounded


_MOST = math.log(sys.float_info.max)


def _exp(x: Any) -> Any:
    return math.inf if x > _MOST else math.exp(x)


def _square(x: Any) -> Any:
    return x * x


def _least(a: Any, b: Any) -> Any:
    found = a if a != a or a < b else b
    return found if isinstance(a, int) == isinstance(b, int) else float(found)


def _greatest(a: Any, b: Any) -> Any:
    found = a if a != a or a > b else b
    return found if isinstance(a, int) == isinstance(b, int) else float(found)


def _float(x: Any) -> Any:
    return float(x)


def _int(x: Any) -> Any:
    return int(x)


# Functions, and what is traced in their place where they are given numbers of Python's.
OF_NUMBERS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (np.sqrt, _sqrt),
    (np.log, _logarithm(math.log)),
    (np.log2, _logarithm(math.log2)),
    (np.log10, _logarithm(math.log10)),
    *((getattr(np, name), getattr(math, name)) for name in ("sin", "cos", "tanh")),
    (np.exp, _exp),
    (np.floor, _rounded(math.floor)),
    (np.ceil, _rounded(math.ceil)),
    (np.trunc, _rounded(math.trunc)),
    (np.square, _square),
    (np.abs, abs),
    (np.minimum, _least),
    (np.maximum, _greatest),
    (np.float64, _float),
    (np.int64, _int),
]


def _product(numbers: Any) -> Any:
    found = 1
    for number in numbers:
        found = found * number
    return found


def _sum(numbers: Any) -> Any:
    found = 0
    for number in numbers:
        found = found + number
    return found


def _mean(numbers: Any) -> Any:
    return _sum(numbers) / len(numbers)


# The same of lists and tuples of numbers: `np.prod(x.shape)`.
OF_ROWS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (np.prod, _product),
    (np.sum, _sum),
    (np.mean, _mean),
]
