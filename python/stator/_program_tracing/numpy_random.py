"""NumPy's random generators in programs of NumPy code.

A generator that the function makes and seeds with a number gives the same numbers in each run, so
they are constants of the program. One that isn't seeded, the functions of `numpy.random`, and
generators from outside would give other numbers in each run, or change outside: these are errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stator._program_tracing.arrays import Array, constant, holds_arrays, note

__all__ = ["SILENT", "SUBSTITUTES"]

_HINT = (
    "\n  hint:     draw by PyTorch in PyTorch code (each client has numbers of its own), give the "
    "numbers to the function, or declare `result=`: then it is called as it is"
)


def _numbers(seed: Any, calls: list[Any]) -> list[Any]:
    """What the last of some calls of a fresh generator gives, with data."""
    generator = np.random.default_rng(seed)
    found: Any = None
    for name, args, kwargs in calls:
        found = getattr(generator, name)(*args, **kwargs)
    return constant(found)


def _expect_known(value: Any, what: str) -> None:
    """Raises if a value depends on data, or on sizes that vary."""
    if holds_arrays(value):
        raise TypeError(
            f"{what} in a tensor program takes numbers, not arrays of the program{_HINT}"
        )
    if isinstance(value, (tuple, list)):
        for item in value:
            _expect_known(item, what)
    elif isinstance(value, dict):
        for item in value.values():
            _expect_known(item, what)
    elif type(value) is int and value > 0:
        # A size that varies can't be asked for its value: this says so.
        range(value)[-1]


class Generator:
    """One of NumPy's, by what it was asked for so far."""

    __slots__ = ("_calls", "_seed")

    def __init__(self, seed: Any) -> None:
        self._seed = seed
        self._calls: list[Any] = []

    def _draw(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Array:
        _expect_known((args, *kwargs.values()), f"Generator.{name}")
        self._calls = [*self._calls, (name, args, kwargs)]
        return Array(_numbers(self._seed, self._calls)[0])

    def permutation(self, x: Any, axis: int = 0) -> Any:
        if isinstance(x, Array):
            return x[self._draw("permutation", (len(x),), {})]
        return self._draw("permutation", (x,), {"axis": axis})

    def choice(self, a: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(a, Array):
            return a[self._draw("choice", (len(a), *args), kwargs)]
        return self._draw("choice", (a, *args), kwargs)


def _method(name: str) -> Callable[..., Array]:
    def draw(self: Generator, *args: Any, **kwargs: Any) -> Array:
        return self._draw(name, args, kwargs)

    return draw


for _name in (
    *("random", "integers", "normal", "standard_normal", "uniform", "exponential", "laplace"),
    *("poisson", "binomial", "geometric", "gamma", "beta", "dirichlet", "multinomial"),
    *("multivariate_normal", "standard_cauchy", "standard_t", "lognormal", "gumbel", "logistic"),
):
    setattr(Generator, _name, _method(_name))


def _default_rng(seed: Any = None) -> Generator:
    note()
    if seed is None:
        raise TypeError(f"np.random.default_rng in a tensor program takes a seed{_HINT}")
    _expect_known(seed, "np.random.default_rng")
    return Generator(seed)


def _unseeded(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        note()
        raise TypeError(
            f"{name} in a tensor program would draw from a generator that is outside\n"
            "  expected: a generator that the function makes and seeds: np.random.default_rng(seed)"
            f"{_HINT}"
        )

    return refuse


def _methods(owner: Any, name: str) -> list[tuple[Any, Any]]:
    """Its methods, that are called with it in front, and what is traced in their place."""
    found = [(each, getattr(owner, each)) for each in dir(owner) if not each.startswith("_")]
    return [(of, _unseeded(f"{name}.{each}")) for each, of in found if callable(of)]


# Called while a program is traced, and no part of it.
SILENT: list[Callable[..., Any]] = [_numbers]

# Functions, and what is traced in their place.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (np.random.default_rng, _default_rng),
    *_methods(np.random.RandomState, "np.random"),
    *_methods(np.random.Generator, "Generator"),
]
