"""Numbers that are computed of the number of rows, where clients have different ones.

A program that runs for all of them at once reads one size: that of the padded rows. What it
computes of that is a `Number` or a `Share`, which has a tensor with each client's own beside it.
Whoever is given one takes the tensor, or refuses (`padding.py`); nobody decides by one.
"""

from __future__ import annotations

import builtins
import itertools
import math
import operator
from collections.abc import Callable, Hashable
from typing import Any

import torch

__all__ = [
    "LINKED",
    "NotPaddedError",
    "Number",
    "Share",
    "TooManyPairsError",
    "grows_with_rows",
    "is_of_data",
    "lengths_in",
    "of_data",
    "of_rows",
    "pairs_of",
]


class NotPaddedError(Exception):
    """Clients with other numbers of rows can't run together; the text says why."""


class TooManyPairsError(Exception):
    """Clients with so many rows can't run together; the text says why."""


class Share(float):
    """A number that is each client's own. Its value is that of the padded rows."""

    own: Any
    """A tensor with the client's."""
    key: Hashable
    """How it is computed: numbers with equal keys are the same."""
    conditions: list[Any]
    """Of the run: what has to hold for each client."""

    __hash__ = float.__hash__


class Number(Share):
    """The same of an integer. It is a float, because otherwise `0.5 * number` wouldn't ask it."""

    plain: int

    def __index__(self) -> int:
        return self.plain

    __hash__ = float.__hash__


def of_rows(count: torch.Tensor, rows: int, conditions: list[Any], length: int = 0) -> Number:
    """How many rows a client has. `rows`: with the padding; `length`: which of its inputs' lengths
    that is."""
    return _integer(rows, count, ("rows", ((length, 1),), 0), conditions)


_OF_DATA = itertools.count()


def of_data(most: int, own: Any, conditions: list[Any]) -> Number:
    """A number of rows that data decide. `most`: no client has more."""
    return _integer(most, own, (_DATA, next(_OF_DATA)), conditions)


_DATA = "data"


def is_of_data(key: Hashable) -> bool:
    """Whether a number is computed of one that data decide."""
    return isinstance(key, tuple) and (key[0] == _DATA or any(map(is_of_data, key[1:])))


def lengths_in(key: Hashable) -> set[int]:
    """The lengths that a number is computed of."""
    if not isinstance(key, tuple):
        return set()
    if key[0] == "rows":
        return {length for length, _ in key[1]}
    return set().union(*map(lengths_in, key[1:]))


def grows_with_rows(number: Number) -> bool:
    """Whether no client has more than it says of the padded rows, and these are too few for it."""
    if number.key in {_pairs(("rows", ((length, 1),), 0)) for length in lengths_in(number.key)}:
        return True
    key: Any = number.key
    if key[0] == "mul":
        # Of rows with others.
        return all(map(_is_of_rows, key[1:]))
    if key[0] != "rows":
        return False
    factors = [factor for _, factor in key[1]]
    return min(factors) >= 1 and (sum(factors), key[2]) > (1, 0)


def _is_of_rows(key: Any) -> bool:
    """Whether a number is no less than some length."""
    is_linear = isinstance(key, tuple) and key[0] == "rows"
    return is_linear and min(factor for _, factor in key[1]) >= 1 and key[2] >= 0


def pairs_of(number: Number) -> Number:
    """How many pairs so many rows make, each with each other once."""
    found: Any = number * (number - 1) // 2
    return found  # type: ignore[no-any-return]


def _pairs(key: Any) -> Hashable:
    """The key of that."""
    one_less = (*key[:2], key[2] - 1)
    return ("floordiv", ("mul", key, one_less), 2)


def _integer(value: int, own: Any, key: Hashable, conditions: list[Any]) -> Number:
    found = Number(value)
    found.plain, found.own, found.key, found.conditions = value, own, key, conditions
    return found


def _fraction(value: float, own: Any, key: Hashable, conditions: list[Any]) -> Share:
    found = Share(value)
    found.own, found.key, found.conditions = own, key, conditions
    return found


def _value(number: Any) -> Any:
    """The plain number."""
    if isinstance(number, Number):
        return number.plain
    return float.__pos__(number) if isinstance(number, Share) else number


def _own(number: Any) -> Any:
    return number.own if isinstance(number, Share) else number


def _key(number: Any) -> Hashable:
    return number.key if isinstance(number, Share) else number


_Linear = tuple[tuple[tuple[int, int], ...], int]


def _linear(number: Any) -> _Linear | None:
    """Which lengths of a client's it is a sum of, with what factors, and what is added to that."""
    if type(number) is int:
        return (), number
    if isinstance(number, Number) and isinstance(number.key, tuple) and number.key[0] == "rows":
        return number.key[1], number.key[2]
    return None


def _sum(name: str, left: Any, right: Any) -> _Linear | None:
    """The same of a sum, difference or multiple."""
    a, b = _linear(left), _linear(right)
    if a is None or b is None:
        return None
    if name in ("add", "sub"):
        return _added(a, b, 1 if name == "add" else -1)
    if name != "mul" or (a[0] and b[0]):
        return None
    return _added(((), 0), a, b[1]) if a[0] else _added(((), 0), b, a[1])


def _added(one: _Linear, other: _Linear, factor: int) -> _Linear:
    """What is one of them and so many times the other."""
    found = dict(one[0])
    for length, times in other[0]:
        found[length] = found.get(length, 0) + factor * times
    terms = tuple(sorted((length, times) for length, times in found.items() if times))
    return terms, one[1] + factor * other[1]


_PLAIN = (bool, int, float)
_DIVIDING = frozenset({"truediv", "floordiv", "mod"})


def _computed(name: str, left: Any, right: Any) -> Any:
    """What an operator gives of two numbers, of which at least one is each client's own."""
    for each in (left, right):
        if not isinstance(each, Share) and type(each) not in _PLAIN:
            return NotImplemented
    conditions = (left if isinstance(left, Share) else right).conditions
    operate = getattr(operator, name)
    value = operate(_value(left), _value(right))
    linear = _sum(name, left, right)
    if linear is not None and not linear[0]:
        return linear[1]
    a, b = _own(left), _own(right)
    is_whole = isinstance(value, int)
    if not is_whole:
        # As Python computes them, whatever the default element type is.
        a, b = (each.double() if isinstance(each, torch.Tensor) else float(each) for each in (a, b))
    if name in _DIVIDING and isinstance(b, torch.Tensor):
        conditions.append(b != 0)
        b = torch.where(b == 0, 1, b)
    if name == "floordiv":
        own = torch.div(torch.as_tensor(a), b, rounding_mode="floor")
    elif name == "mod":
        own = torch.remainder(torch.as_tensor(a), b)
    else:
        own = operate(a, b)
    key = (name, _key(left), _key(right)) if linear is None else ("rows", *linear)
    make: Any = _integer if is_whole else _fraction
    return make(value, own, key, conditions)


def _operator(name: str) -> tuple[Any, Any]:
    def forward(self: Any, other: Any) -> Any:
        return _computed(name, self, other)

    def backward(self: Any, other: Any) -> Any:
        return _computed(name, other, self)

    return forward, backward


def _refuse(*_: Any) -> Any:
    raise NotPaddedError("it computes with the number of rows")


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod"):
    _forward, _backward = _operator(_name)
    setattr(Share, f"__{_name}__", _forward)
    setattr(Share, f"__r{_name}__", _backward)
for _name in (
    *("divmod", "rpow", "rdivmod", "lt", "le", "gt", "ge", "eq", "ne", "bool"),
    *("lshift", "rshift", "rlshift", "rrshift", "and", "or", "xor", "rand", "ror", "rxor"),
    *("abs", "invert", "int", "float", "round", "trunc", "floor", "ceil", "pos"),
):
    setattr(Share, f"__{_name}__", _refuse)


def _power(self: Any, exponent: Any) -> Any:
    """A power with an exponent that is known."""
    if type(exponent) not in (int, float):
        return _refuse()
    is_whole = isinstance(self, Number) and type(exponent) is int and exponent >= 0
    value = _value(self) ** exponent
    if not isinstance(value, (int, float)):
        return _refuse()
    own = self.own if is_whole else self.own.double()
    # Python raises otherwise, or gives a complex number.
    self.conditions.append(own > 0 if exponent < 0 else own >= 0)
    make: Any = _integer if is_whole else _fraction
    return make(value, torch.pow(own, exponent), ("pow", self.key, exponent), self.conditions)


setattr(Share, "__pow__", _power)  # noqa: B010
setattr(Share, "__neg__", lambda self: _computed("mul", self, -1))  # noqa: B010


# What programs name that gives numbers.


def _whole(name: str, to: Callable[[Any], Any]) -> Callable[..., Any]:
    """`int` and others, of one number."""
    plain = getattr(builtins, name, None) or getattr(math, name)

    def whole(number: Any, *rest: Any) -> Any:
        if not isinstance(number, Share):
            return plain(number, *rest)
        if rest:
            _refuse()
        if isinstance(number, Number):
            return number
        own = to(number.own).to(torch.int64)
        return _integer(plain(_value(number)), own, (name, number.key), number.conditions)

    return whole


def _float(number: Any) -> Any:
    if isinstance(number, Number):
        own = number.own.double()
        return _fraction(float(_value(number)), own, ("float", number.key), number.conditions)
    return number if isinstance(number, Share) else float(number)


def _root(number: Any) -> Any:
    if not isinstance(number, Share):
        return math.sqrt(number)
    given = _float(number)
    given.conditions.append(given.own >= 0)
    own = torch.sqrt(given.own.clamp(min=0))
    return _fraction(math.sqrt(_value(given)), own, ("sqrt", given.key), given.conditions)


def _outermost(name: str, plain: Callable[..., Any], to: Callable[..., Any]) -> Callable[..., Any]:
    """`min` and `max` of two numbers."""

    def outermost(*numbers: Any) -> Any:
        known = [each for each in numbers if isinstance(each, Share)]
        if not known:
            return plain(*numbers)
        kinds = {isinstance(each, (int, Number)) for each in numbers}
        is_whole = kinds == {True}
        if len(numbers) != 2 or len(kinds) > 1:
            # Which type it gives each client would have its own.
            _refuse()
        conditions = known[0].conditions
        kind = torch.int64 if is_whole else torch.float64
        a, b = (
            own if isinstance(own := _own(each), torch.Tensor) else torch.tensor(own, dtype=kind)
            for each in numbers
        )
        make: Any = _integer if is_whole else _fraction
        key = (name, *map(_key, numbers))
        return make(plain(*map(_value, numbers)), to(a, b), key, conditions)

    return outermost


def _function(name: str) -> Callable[..., Any]:
    """One of the functions in `math`, of one number."""
    plain = getattr(math, name)

    def function(*numbers: Any) -> Any:
        if not any(isinstance(each, Share) for each in numbers):
            return plain(*numbers)
        if len(numbers) != 1:
            _refuse()
        given = _float(numbers[0])
        own = given.own
        if name.startswith("log"):
            given.conditions.append(own > 0)
            own = torch.where(own > 0, own, 1.0)
        made = getattr(torch, name)(own)
        return _fraction(plain(_value(given)), made, (name, given.key), given.conditions)

    return function


def _abs(number: Any) -> Any:
    return _refuse() if isinstance(number, Share) else abs(number)


LINKED: dict[str, Any] = {
    "builtins.float": _float,
    "builtins.int": _whole("int", torch.trunc),
    "builtins.round": _whole("round", torch.round),
    "math.trunc": _whole("trunc", torch.trunc),
    "math.floor": _whole("floor", torch.floor),
    "math.ceil": _whole("ceil", torch.ceil),
    "math.sqrt": _root,
    "builtins.max": _outermost("max", max, torch.maximum),
    "builtins.min": _outermost("min", min, torch.minimum),
    "torch.sym_max": _outermost("max", torch.sym_max, torch.maximum),
    "torch.sym_min": _outermost("min", torch.sym_min, torch.minimum),
    "builtins.abs": _abs,
    **{
        f"math.{name}": _function(name)
        for name in ("cos", "exp", "log", "log10", "log2", "sin", "tanh")
    },
}
"""What programs call in the place of what their texts name: it may be given such numbers."""
