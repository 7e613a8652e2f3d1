"""Breaks inside functions that instructions call: getters, operators, `with`, construction, iteration.

A break there costs as many graphs as one at top level, and everything else is as in plain Python.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .test_breaks import outcome, same

X = torch.arange(1.0, 5.0)
CALLS = 3


def names() -> list[str]:
    """The functions on the stack, down to the compiled one."""
    found = []
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name not in ("outcome", "test"):
        found.append(frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return found


@stator.disable
def show(what: str) -> None:
    """What breaks: it prints where it is called."""
    print(what, *names())


class Vector:
    """A break in each of its special methods."""

    def __init__(self, value: Tensor, factor: int = 2) -> None:
        self.value = value * factor
        show("init")
        self.other = self.value + 1

    def both(self) -> Tensor:
        return self.value + self.other


class Quiet:
    """The same, without a break in construction."""

    def __init__(self, value: Tensor) -> None:
        self.value = value

    @property
    def doubled(self) -> Tensor:
        y = self.value * 2
        show("property")
        return y + 1

    @doubled.setter
    def doubled(self, value: Tensor) -> None:
        y = value / 2
        show("setter")
        self.value = y - 1

    def _binary(self, other: Any, what: str) -> Quiet:
        y = self.value + (other.value if isinstance(other, Quiet) else other)
        show(what)
        return Quiet(y * 2)

    def __add__(self, other: Any) -> Quiet:
        return self._binary(other, "add")

    def __radd__(self, other: Any) -> Quiet:
        return self._binary(other, "radd")

    def __iadd__(self, other: Any) -> Quiet:
        y = self.value + other
        show("iadd")
        self.value = y
        return self

    def __mul__(self, other: Any) -> Any:
        y = self.value + 1
        show("mul")
        self.value = y * 2
        return NotImplemented

    def __pow__(self, other: Any, modulus: Any = None) -> Quiet:
        return self._binary(other, "pow")

    def __rpow__(self, other: Any) -> Quiet:
        return self._binary(other, "rpow")

    def __ipow__(self, other: Any) -> Quiet:
        y = self.value**other
        show("ipow")
        self.value = y + 1
        return self

    def __neg__(self) -> Quiet:
        y = -self.value
        show("neg")
        return Quiet(y + 1)

    def __getitem__(self, key: int) -> Tensor:
        y = self.value[key] + 1
        show("getitem")
        return y * 2

    def __setitem__(self, key: int, value: Tensor) -> None:
        y = self.value + value
        show("setitem")
        self.value = y * key

    def __delitem__(self, key: int) -> None:
        y = self.value + key
        show("delitem")
        self.value = y * 2

    def __contains__(self, item: int) -> bool:
        self.value = self.value + item
        show("contains")
        self.value = self.value * 2
        return item > 2

    def __lt__(self, other: Any) -> bool:
        self.value = self.value + 1
        show("lt")
        self.value = self.value * 2
        return True

    def __eq__(self, other: object) -> bool:
        self.value = self.value + 1
        show("eq")
        self.value = self.value * 2
        return isinstance(other, int)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        self.value = self.value + 1
        show("bool")
        self.value = self.value * 2
        return False

    def __call__(self, x: Tensor) -> Tensor:
        y = self.value + x
        show("call")
        return y * 2


class Reflected:
    def __init__(self, value: Tensor) -> None:
        self.value = value

    def __pow__(self, other: Any) -> Any:
        self.value = self.value + 1
        show("pow")
        return NotImplemented

    def __rmul__(self, other: Any) -> Tensor:
        y = self.value + (other.value if isinstance(other, Quiet) else other)
        show("rmul")
        return y * 2


class Sized:
    def __init__(self, value: Tensor) -> None:
        self.value = value

    def __len__(self) -> int:
        self.value = self.value + 1
        show("len")
        self.value = self.value * 2
        return 2


class Dynamic:
    def __init__(self, value: Tensor) -> None:
        self.__dict__["value"] = value

    def __getattr__(self, name: str) -> Tensor:
        y = self.value + len(name)
        show("getattr")
        return y * 2

    def __setattr__(self, name: str, value: Tensor) -> None:
        y = value + len(name)
        show("setattr")
        self.__dict__["value"] = y * 2

    def __delattr__(self, name: str) -> None:
        y = self.value + len(name)
        show("delattr")
        self.__dict__["value"] = y * 2


class Fallback(Quiet):
    """A property that fails behind its break, and a `__getattr__`."""

    @property
    def missing(self) -> Tensor:
        self.value = self.value * 2
        show("missing")
        raise AttributeError("missing")

    def __getattr__(self, name: str) -> Tensor:
        return self.value + len(name)


class Descriptor:
    def __get__(self, instance: Any, owner: type) -> Tensor:
        y = instance.value + 1
        show("get")
        return y * 2

    def __set__(self, instance: Any, value: Tensor) -> None:
        y = value + 1
        show("set")
        instance.value = y * 2


class Described:
    field = Descriptor()

    def __init__(self, value: Tensor) -> None:
        self.value = value


class Manager:
    def __init__(self, value: Tensor) -> None:
        self.value = value

    def __enter__(self) -> Tensor:
        y = self.value + 1
        show("enter")
        return y * 2

    def __exit__(self, *exc: object) -> bool:
        self.value = self.value * 3
        show("exit")
        self.value = self.value + 1
        return True


class Countdown:
    def __init__(self, value: Tensor, count: int) -> None:
        self.value, self.count = value, count

    def __iter__(self) -> Countdown:
        self.value = self.value + 1
        show("iter")
        self.value = self.value * 2
        return self

    def __next__(self) -> Tensor:
        if self.count == 0:
            raise StopIteration
        self.count -= 1
        return self.value * self.count


class Noisy(Countdown):
    def __next__(self) -> Tensor:
        self.value = self.value + 1
        show("next")
        if self.count == 0:
            raise StopIteration
        self.count -= 1
        return self.value * self.count


def constructs(x: Tensor) -> Tensor:
    return (x + 1) * Vector(x, factor=3).both()


def reads(x: Tensor) -> Tensor:
    return (x + 1) * Quiet(x).doubled


def writes(x: Tensor) -> Tensor:
    quiet = Quiet(x)
    quiet.doubled = x * 3
    return quiet.value + 1


def adds(x: Tensor) -> Tensor:
    return x + (Quiet(x) + 3).value


def adds_reflected(x: Tensor) -> Tensor:
    return x + (3 + Quiet(x)).value


def adds_in_place(x: Tensor) -> Tensor:
    quiet = Quiet(x)
    quiet += 2
    return quiet.value * x


def raises_to_power(x: Tensor) -> Tensor:
    return x + (Quiet(x) ** 3).value


def raises_number(x: Tensor) -> Tensor:
    return x + (3 ** Quiet(x)).value


def raises_in_place(x: Tensor) -> Tensor:
    quiet = Quiet(x)
    quiet **= 2
    return quiet.value * x


def refuses_power(x: Tensor) -> Tensor:
    return x + (Reflected(x) ** Quiet(x)).value


def refuses(x: Tensor) -> Tensor:
    return x + Quiet(x) * Reflected(x)


def reflects(x: Tensor) -> Tensor:
    return x + 4 * Reflected(x)


def negates(x: Tensor) -> Tensor:
    return x * (-Quiet(x)).value


def gets(x: Tensor) -> Tensor:
    return x * Quiet(x)[1]


def sets(x: Tensor) -> Tensor:
    quiet = Quiet(x)
    quiet[2] = x * 3
    return quiet.value + x


def deletes(x: Tensor) -> Tensor:
    quiet = Quiet(x)
    del quiet[2]
    return quiet.value + x


def has(x: Tensor) -> tuple[Tensor, bool]:
    quiet = Quiet(x)
    found = 3 in quiet
    return quiet.value + x, found


def has_not(x: Tensor) -> tuple[Tensor, bool]:
    quiet = Quiet(x)
    found = 1 not in quiet
    return quiet.value + x, found


def less(x: Tensor) -> Tensor:
    quiet = Quiet(x)
    return quiet.value + x if quiet < Quiet(x) else x


def equal(x: Tensor) -> tuple[Tensor, bool]:
    quiet = Quiet(x)
    found = quiet == 2
    return quiet.value + x, found


def equal_reflected(x: Tensor) -> tuple[Tensor, bool]:
    quiet = Quiet(x)
    found = 2 == quiet
    return quiet.value + x, found


def true(x: Tensor) -> Tensor:
    quiet = Quiet(x)
    if quiet:
        return x
    return quiet.value + x


def true_or(x: Tensor) -> Tensor:
    quiet = Quiet(x)
    return (quiet or quiet).value + x if False else (quiet or Quiet(quiet.value + 5)).value


def not_true(x: Tensor) -> tuple[Tensor, bool]:
    quiet = Quiet(x)
    found = not quiet
    return quiet.value + x, found


def sized(x: Tensor) -> Tensor:
    it = Sized(x)
    if it:
        return it.value + x
    return x


def calls(x: Tensor) -> Tensor:
    return Quiet(x)(x + 1) + 1


def gets_attribute(x: Tensor) -> Tensor:
    return x * Dynamic(x).anything


def sets_attribute(x: Tensor) -> Tensor:
    it = Dynamic(x)
    it.anything = x + 1
    return it.value * 3


def deletes_attribute(x: Tensor) -> Tensor:
    it = Dynamic(x)
    del it.anything
    return it.value * 3


def describes(x: Tensor) -> Tensor:
    return x * Described(x).field


def describes_write(x: Tensor) -> Tensor:
    it = Described(x)
    it.field = x + 1
    return it.value * 3


def enters(x: Tensor) -> Tensor:
    with Quieter(x) as y:
        z = y * 2
    return z + 1


class Quieter(Manager):
    def __exit__(self, *exc: object) -> bool:
        return False


def leaves(x: Tensor) -> Tensor:
    manager = Leaver(x)
    with manager as y:
        z = y * 2
    return z + manager.value


class Leaver(Manager):
    def __enter__(self) -> Tensor:
        return self.value


def swallows(x: Tensor) -> Tensor:
    manager = Leaver(x)
    with manager as y:
        y = y * 2
        raise KeyError("k")
    return y + manager.value


def iterates(x: Tensor) -> Tensor:
    total = x + 1
    for y in Countdown(x, 3):
        total = total + y
    return total


def hidden_by_wraps(x: Tensor) -> Tensor:
    return wrapped(x + 1) + 1


def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@decorate
def wrapped(x: Tensor) -> Tensor:
    y = x * 2
    show("wrapped")
    return y + 1


PARTIAL = functools.partial(wrapped)


def through_partial(x: Tensor) -> Tensor:
    return PARTIAL(x + 1) + 1


class Methods:
    @classmethod
    def made(cls, x: Tensor) -> Tensor:
        y = x * 2
        show("class method")
        return y + 1

    @staticmethod
    def plain(x: Tensor) -> Tensor:
        y = x * 2
        show("static method")
        return y + 1


def through_class_method(x: Tensor) -> Tensor:
    return Methods.made(x + 1) + 1


def through_static_method(x: Tensor) -> Tensor:
    return Methods().plain(x + 1) + 1


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    @property
    def scale(self) -> Tensor:
        y = self.weight * 2
        show("module property")
        return y + 1

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


LAYER = Layer()
HOOKED = Layer()
HOOKED.register_forward_hook(lambda module, args, result: result * 2)
HOOKED.register_forward_pre_hook(lambda module, args: (args[0] + 1,))


def through_module(x: Tensor) -> Tensor:
    return LAYER(x + 1) + 1


def through_hooks(x: Tensor) -> Tensor:
    return HOOKED(x + 1) + 1


def through_everything(x: Tensor) -> Tensor:
    with Outer(x) as y:
        return y + 1


class Outer(Quieter):
    def __enter__(self) -> Tensor:
        return (Inner(self.value) + 1)[0] * 2


class Inner:
    def __init__(self, value: Tensor) -> None:
        self.value = value

    def __add__(self, other: int) -> Inner:
        return Inner(Quiet(self.value + other).doubled)

    def __getitem__(self, key: int) -> Tensor:
        return self.value[key]


ONCE: list[Callable[[Tensor], Any]] = [
    constructs,
    reads,
    writes,
    adds,
    adds_reflected,
    adds_in_place,
    raises_to_power,
    raises_number,
    raises_in_place,
    reflects,
    negates,
    gets,
    sets,
    deletes,
    has,
    has_not,
    less,
    equal,
    equal_reflected,
    true,
    true_or,
    not_true,
    sized,
    calls,
    gets_attribute,
    sets_attribute,
    deletes_attribute,
    describes,
    describes_write,
    enters,
    leaves,
    iterates,
    hidden_by_wraps,
    through_partial,
    through_class_method,
    through_static_method,
    through_module,
    through_hooks,
    through_everything,
]


def check(function: Callable[..., Any], *args: Any, calls: int = CALLS) -> Any:
    compiled = stator.compile(function)
    for _ in range(calls):
        expected, found = outcome(function, *args), outcome(compiled, *args)
        assert same(expected[0], found[0]), (expected, found)
        assert expected[1] == found[1]
    return stator.stats(compiled)


@pytest.mark.parametrize("function", ONCE, ids=lambda function: function.__name__)
def test_costs_as_much_as_at_top_level(function: Callable[..., Any]) -> None:
    stats = check(function, X)
    assert (stats.breaks, stats.graphs, stats.native) == (1, 2, 0), (
        stats.breaks,
        stats.graphs,
        stats.reason,
    )
    assert stats.hits == CALLS - 1


def misses(x: Tensor) -> Tensor:
    return x * Fallback(x).missing


def iterates_noisily(x: Tensor) -> Tensor:
    total = x + 1
    for y in Noisy(x, 2):
        total = total + y
    return total


MORE: list[Callable[[Tensor], Any]] = [refuses, refuses_power, misses, iterates_noisily]


@pytest.mark.parametrize("function", MORE, ids=lambda function: function.__name__)
def test_goes_on_behind_more_breaks(function: Callable[..., Any]) -> None:
    stats = check(function, X, calls=4)
    assert stats.native == 0 and stats.hits >= 1, stats.reason


FLAG = [True]


def depends(x: Tensor) -> Tensor:
    return (x + 1) * Chooser(x).choice * 2


class Chooser:
    def __init__(self, x: Tensor) -> None:
        self.x = x

    @property
    def choice(self) -> Tensor:
        y = self.x * 2
        show("choice")
        y = y + 1 if FLAG[0] else y - 1
        show("chosen")
        return y * 3


def test_recorded_where_frames_wait() -> None:
    """The other side of a branch is recorded behind a break, while frames that were made wait."""
    compiled = stator.compile(depends)
    for flag in (True, True, False, False, True, False):
        FLAG[0] = flag
        expected, found = outcome(depends, X), outcome(compiled, X)
        assert same(expected[0], found[0]) and expected[1] == found[1]
    FLAG[0] = True
    assert stator.stats(compiled).native == 0 and stator.stats(compiled).hits == 5


def test_first_method_changes() -> None:
    """Behind a change of the class, its new method is called."""

    class Changing:
        def __init__(self, value: Tensor) -> None:
            self.value = value

        def __add__(self, other: int) -> Tensor:
            y = self.value + other
            show("first")
            return y * 2

    def function(x: Tensor) -> Tensor:
        return x + (Changing(x) + 3)

    def second(self: Changing, other: int) -> Tensor:
        y = self.value - other
        show("second")
        return y * 5

    compiled = stator.compile(function)
    for step in range(6):
        if step == 3:
            Changing.__add__ = second  # type: ignore[method-assign]
        expected, found = outcome(function, X), outcome(compiled, X)
        assert same(expected[0], found[0]) and expected[1] == found[1]
    assert stator.stats(compiled).hits == 4
