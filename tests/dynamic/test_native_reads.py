"""C code and Python's own machinery read a number that may be a symbol: never a wrong result.

Each program runs with numbers and sizes that vary independently, equal ones among them, and must give
plain Python's results however often it is traced.
"""

from __future__ import annotations

import cmath
import collections
import dataclasses
import enum
import functools
import itertools
import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator

from .test_programs import same

RANGE = [1, 2, 3, 4, 5, 6, 7]


class Level(enum.IntEnum):
    """Members that C code adds to numbers."""

    LOW = 1
    HIGH = 3


class Bits(enum.IntFlag):
    """The same for bits."""

    A = 1
    B = 2


class Whole(int):
    """An integer of another class."""


class Half(float):
    """A float of another class."""


NUMBERS_OF_CLASSES = [Level.HIGH, Bits.B, Whole(3), Half(1.5), True, 3]
OF_NUMBERS: list[Callable[[Any, Any], Any]] = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.iadd,
    operator.eq,
    operator.lt,
    divmod,
    max,
    lambda a, b: a + b,
    lambda a, b: sum([a, b]),
    lambda a, b: a.__add__(b),
    lambda a, b: (a, 1) == (b, 1),
    lambda a, b: sorted([a, b]),
]


def an_own_length(x: Any, n: int) -> Any:
    class Sized:
        def __len__(self) -> int:
            return n

        def __bool__(self) -> bool:
            return n > 4

        def __index__(self) -> int:
            return n

    sized = Sized()
    return x + len(sized) + (1 if sized else 0) + len(list(range(9))[sized:])  # type: ignore[misc]


def a_generator(x: Any, n: int) -> Any:
    def numbers() -> Any:
        for k in range(n):
            yield x.shape[0] * k

    return x + sum(numbers())


def a_frozen_dataclass(x: Any, n: int) -> Any:
    @dataclasses.dataclass(frozen=True)
    class Pair:
        a: int
        b: int

    return x + (1 if Pair(n, 2) == Pair(5, 2) else 0)


def changed_lists(x: Any, n: int) -> Any:
    numbers = list(range(10))
    numbers.insert(n, 99)
    del numbers[n]
    numbers[n] = 7
    return x + numbers[n] + numbers.pop(n)


def dictionaries(x: Any, n: int) -> Any:
    found = {n: 1}
    found[x.shape[0]] = 2
    return x + len(found) + found.get(5, 0) + (n in found) + (4 in found)


def a_match(x: Any, n: int) -> Any:
    match n:
        case 4:
            return x
        case 5 | 6:
            return x + 1
        case _:
            return x + 2


def a_shape_that_fails(x: Any, n: int) -> Any:
    try:
        return x.view(n * 2, -1)
    except RuntimeError:
        return x + 1


PROGRAMS: dict[str, Callable[[Any, int], Any]] = {
    "sorted": lambda x, n: x + sorted([n, 5, 2])[0],
    "max by key": lambda x, n: x + max([x, x * 2], key=lambda t: t.shape[0] + n).sum(),
    "comprehension": lambda x, n: x + len([i for i in range(n)]),  # noqa: C416
    "set": lambda x, n: x + len({n, 3, x.shape[0]}),
    "equal keys": lambda x, n: x + len({n: 1, x.shape[0]: 2}) + len({*[n, x.shape[0]]}),
    "in a tuple": lambda x, n: x * (3 if n in (4, 5, 6) else 2),
    "index": lambda x, n: x + [10, 20, 30, 40, 50, 60, 70, 80, 90][n],
    "sum of a generator": lambda x, n: x + sum(i for i in (n, n + 1, x.shape[0])),
    "reduce": lambda x, n: x + functools.reduce(operator.mul, (n, 2, x.size(0)), 1),
    "repeated text": lambda x, n: x + int("1" * n),
    "bits": lambda x, n: x + (n & 3) + (n << 1) + (n ^ 1) + (~n),
    "divmod, round, hash": lambda x, n: x + divmod(n, 3)[1] + round(n / 3) + hash(n),
    "attributes": lambda x, n: x + n.bit_length() + n.real + n.numerator,
    "special methods": an_own_length,
    "dataclass": a_frozen_dataclass,
    "counter": lambda x, n: x + collections.Counter([n, n, 4])[4],
    "tuple methods": lambda x, n: x + (n, x.shape[0]).index(n) + (n, x.shape[0]).count(4),
    "slices": lambda x, n: x[n - 1 :].sum() + x[:n].numel() + x[-1, 0],
    "iterators": lambda x, n: x + sum(iter(range(n))) + next(iter(range(n, 99))),
    "format": lambda x, n: x + float(str(n)) + len(f"{n:>{n}}"),
    "lists": changed_lists,
    "slice objects": lambda x, n: x + len(list(range(20))[slice(0, n)]),
    "math": lambda x, n: x + math.factorial(n) + math.gcd(n, 6) + math.comb(n, 2),
    "factories": lambda x, n: torch.full((n, 2), n) + torch.eye(n)[:, :2],
    "repeat": lambda x, n: (x.repeat(n, 1).view(n, -1).sum(1), torch.linspace(0, n, n)),
    "generator": a_generator,
    "min and max": lambda x, n: x + max(n, x.shape[0], 3) + min(n, 2),
    "in place": lambda x, n: (x.new_zeros(n).add_(n), x.flatten()[n], x.t().reshape(3, -1)),
    "a failing view": a_shape_that_fails,
    "signs": lambda x, n: x + (n % 2 == 0) + (n // 2) + (-n // 3) + n % -3,
    "powers": lambda x, n: x.sum() + 10**n + n**2 + 2**n,
    "truth": lambda x, n: x + bool(n - 5) + (not n - 4),
    "match": a_match,
    "dictionaries": dictionaries,
    "islice": lambda x, n: x + sum(itertools.islice([1, 2, 3, 4, 5, 6, 7, 8, 9], n)),
    "islice of a generator": lambda x, n: x + len(list(itertools.islice((i for i in RANGE), n))),
    "repeat times": lambda x, n: x + len(list(itertools.repeat(1, n))),
    "repeat for ever": lambda x, n: x + next(itertools.repeat(n)),
    "set add": lambda x, n: (lambda s: (s.add(n), x + len(s))[1])({4, 5}),
    "filter": lambda x, n: x + len(list(filter(None, [n - 4, 1]))),
    "filter by": lambda x, n: x + len(list(filter(lambda _: n - 4, [1, 2]))),
    "map str": lambda x, n: x + int(next(map(str, [n]))),
    "map str lazily": lambda x, n: x + int(next(map(str, (i for i in [n])))),
    "map": lambda x, n: x + next(map(lambda k: k * n, [n, 2])),
    "map float": lambda x, n: x + next(map(float, [n])),
    "takewhile": lambda x, n: x + len(list(itertools.takewhile(lambda _: n - 4, [1, 2]))),
    "accumulate": lambda x, n: x + list(itertools.accumulate(i for i in [n, 1]))[-1],
    "count": lambda x, n: x + next(itertools.count(n)),
    "starmap": lambda x, n: x + next(itertools.starmap(pow, [(n, 2)])),
    "pow": lambda x, n: x + pow(n, 2) + pow(n, 2, 7) + math.pow(n, 2),
    "round": lambda x, n: x + round(n / 3),
    "round to digits": lambda x, n: x + round(n / 3, 2) + round(n, -1),
    "floor of a float": lambda x, n: x + (n / 2) // 1 + (n / 2) % 1 + divmod(n / 2, 1)[1],
    "is_integer": lambda x, n: x + (n / 2).is_integer(),
    "text of a float": lambda x, n: x + float(str(n / 3)),
    "float as key": lambda x, n: x + {2.0: 5}.get(n / 2, 1),
    "masks": lambda x, n: x + (n & 3) + (n | 7) * 9 + (n ^ 1) * 99 + (n & -4) + (n | -8) + (5 & n),
    "turned bits": lambda x, n: x + (n ^ -1) + (n ^ -4) * 9 + (n & n) + (n & x.shape[0]),
    "masks below 0": lambda x, n: x + (-n & 3) + (-n | 7) * 9 + (-n ^ 1) * 99 + (-n & -4),
    "set bits below 0": lambda x, n: x + (-n | -8) + (-n ^ -1) * 9 + (-n ^ -4) * 99,
    "shifts": lambda x, n: x + (n << 2) + (n >> 1) + (-n >> 2) + (1 << n) + (n << 0) + (n >> 70),
    "negative powers": lambda x, n: x + n**-1 + (-n) ** -2 + n**0 + n**0.5,
    "divmod": lambda x, n: x + divmod(n, 3)[0] * 9 + divmod(-n, 3)[1] + divmod(7, n)[0],
    "truth of floats": lambda x, n: x + bool(n / 2 - 2) + operator.truth(n - 5),
    "zero division": lambda x, n: x + divmod(1, n - 4)[0] + 1 // (n - 4),
    "roots of negatives": lambda x, n: x + math.sqrt(n - 5),
    "sums": lambda x, n: x + sum([1, 2], n) + sum([n], n) + math.fsum([n, 0.5]),
    "members of int": lambda x, n: x + n.denominator + n.conjugate() + n.__add__(1) + n.bit_count(),
    "rounded functions": lambda x, n: (
        x + math.isqrt(n) + math.log(n) + math.sin(n) + math.gcd(n, 4)
    ),
}

NUMBERS = (4, 5, 6, 7, 5, 4, 8, 3, 2, 6)


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_plain_python(name: str, dynamic: bool | None) -> None:
    function = PROGRAMS[name]
    compiled = stator.compile(function, dynamic=dynamic, recompile_limit=40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in NUMBERS:
            for rows in (n, 8):
                x = torch.arange(rows * 3.0).reshape(rows, 3)
                expected, found = outcome(function, x, n), outcome(compiled, x.clone(), n)
                assert same(expected, found), f"n = {n}, {rows} rows: {expected} != {found}"


@pytest.mark.parametrize("given", NUMBERS_OF_CLASSES, ids=lambda given: type(given).__name__)
@pytest.mark.parametrize("turned", [False, True])
def test_numbers_of_other_classes(given: Any, turned: bool) -> None:
    for function in OF_NUMBERS:

        def fn(x: torch.Tensor, n: int, function: Callable[..., Any] = function) -> Any:
            return x * 2, function(n, given) if turned else function(given, n)

        compiled = stator.compile(fn, dynamic=True, recompile_limit=40)
        for n in (1, 5, 7, 9, 2, 5):
            x = torch.ones(3)
            expected, found = fn(x, n)[1], compiled(x, n)[1]
            assert repr(found) == repr(expected) and type(found) is type(expected)


def test_functions_of_other_modules_are_told_by_what_they_are_not_by_name() -> None:
    def fn(x: torch.Tensor) -> Any:
        n = x.shape[0]
        return x * cmath.sqrt(n - 20).imag, cmath.isfinite(n), operator.index(n)

    compiled = stator.compile(fn, recompile_limit=32)
    for size in (4, 5, 6, 7, 6):
        x = torch.ones(size)
        assert torch.equal(compiled(x)[0], fn(x)[0]) and compiled(x)[1:] == fn(x)[1:]
