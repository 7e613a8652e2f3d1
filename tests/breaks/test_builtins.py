"""Breaks inside Python methods that a builtin function calls: `len`, `float`, `getattr`, `next`, ...

A break there costs as many graphs as one at top level, and everything else is as in plain Python: what
is printed, the frames, results of the wrong type, their errors and warnings.
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .test_breaks import outcome, same
from .test_special_methods import X, check, show


class Meta(type):
    """A metaclass that is asked who its instances are."""

    def __instancecheck__(cls, instance: Any) -> Any:
        show("instancecheck")
        return hasattr(instance, "value")

    def __subclasscheck__(cls, subclass: Any) -> Any:
        show("subclasscheck")
        return subclass is not int


class Valued(metaclass=Meta):
    pass


class Noisy:
    """A break in each of its methods, with tensors in front of it and behind it."""

    def __init__(self, value: Tensor) -> None:
        self.value = value

    def step(self, what: str) -> None:
        y = self.value + 1
        show(what)
        self.value = y * 2

    def __len__(self) -> int:
        self.step("len")
        return 3

    def __float__(self) -> float:
        self.step("float")
        return 2.5

    def __int__(self) -> int:
        self.step("int")
        return 7

    def __index__(self) -> int:
        self.step("index")
        return 2

    def __abs__(self) -> Tensor:
        self.step("abs")
        return self.value

    def __round__(self, digits: int = 1) -> Tensor:
        self.step("round")
        return self.value * digits

    def __str__(self) -> str:
        self.step("str")
        return "text"

    def __repr__(self) -> str:
        self.step("repr")
        return "<noisy>"

    def __format__(self, spec: str) -> str:
        self.step("format")
        return f"[{spec}]"

    def __hash__(self) -> int:
        self.step("hash")
        return -1

    def __eq__(self, other: object) -> bool:
        self.step("eq")
        return self is other

    def __lt__(self, other: object) -> bool:
        self.step("lt")
        return True

    def __add__(self, other: Any) -> Tensor:
        self.step("add")
        return self.value + other

    def __neg__(self) -> Tensor:
        self.step("neg")
        return -self.value

    def __getitem__(self, key: int) -> Tensor:
        self.step("getitem")
        return self.value[key]

    def __setitem__(self, key: int, value: Tensor) -> None:
        self.step("setitem")
        self.value = self.value + value * key

    def __contains__(self, item: int) -> bool:
        self.step("contains")
        return item > 2

    def __iter__(self) -> Noisy:
        self.step("iter")
        return self

    def __next__(self) -> Tensor:
        self.step("next")
        return self.value

    @property
    def doubled(self) -> Tensor:
        self.step("property")
        return self.value * 2

    @doubled.setter
    def doubled(self, value: Tensor) -> None:
        self.step("setter")
        self.value = value + 1

    @property
    def missing(self) -> Tensor:
        self.step("missing")
        raise AttributeError("none")


class True_(Noisy):
    def __bool__(self) -> bool:
        self.step("bool")
        return True


class Index(Noisy):
    __float__ = None  # type: ignore[assignment]


class OnlyIndex:
    def __init__(self, value: Tensor) -> None:
        self.value = value

    def __index__(self) -> int:
        y = self.value + 1
        show("index")
        self.value = y * 2
        return 2


class OnlyRepr:
    def __init__(self, value: Tensor) -> None:
        self.value = value

    def __repr__(self) -> str:
        y = self.value + 1
        show("repr")
        self.value = y * 2
        return "only"


class Dynamic:
    def __init__(self, value: Tensor) -> None:
        self.__dict__["value"] = value

    def __getattr__(self, name: str) -> Tensor:
        y = self.value + len(name)
        show("getattr")
        if name.startswith("no"):
            raise AttributeError(name)
        return y * 2

    def __setattr__(self, name: str, value: Tensor) -> None:
        y = value + len(name)
        show("setattr")
        self.__dict__["value"] = y * 2

    def __delattr__(self, name: str) -> None:
        y = self.value + len(name)
        show("delattr")
        self.__dict__["value"] = y * 2


class Fallback(Noisy):
    def __getattr__(self, name: str) -> Tensor:
        return self.value + len(name)


class Ends:
    def __init__(self, value: Tensor) -> None:
        self.value, self.asked = value, 0

    def __next__(self) -> Tensor:
        y = self.value + 1
        show("next")
        self.value = y * 2
        self.asked += 1
        raise StopIteration(self.asked)


Case = Callable[[Tensor], Any]


def on(cls: Callable[[Tensor], Any], use: Callable[[Any], Any]) -> Case:
    """A function that uses an object in an expression, with graphs around it."""

    def function(x: Tensor) -> Any:
        y = x + 1
        it = cls(y)
        found = use(it)
        return y * 3, found, it.value + 1

    return function


ONCE: dict[str, Case] = {
    "len": on(Noisy, lambda it: len(it)),
    "float": on(Noisy, lambda it: float(it)),
    "float_index": on(OnlyIndex, lambda it: float(it)),
    "int": on(Noisy, lambda it: int(it)),
    "int_index": on(OnlyIndex, lambda it: int(it)),
    "index": on(Noisy, lambda it: operator.index(it)),
    "abs": on(Noisy, lambda it: abs(it)),
    "round": on(Noisy, lambda it: round(it)),
    "round_digits": on(Noisy, lambda it: round(it, 3)),
    "round_none": on(Noisy, lambda it: round(it, None)),
    "str": on(Noisy, lambda it: str(it)),
    "str_by_repr": on(OnlyRepr, lambda it: str(it)),
    "repr": on(Noisy, lambda it: repr(it)),
    "format": on(Noisy, lambda it: format(it)),
    "format_spec": on(Noisy, lambda it: format(it, "x")),
    "format_by_repr": on(OnlyRepr, lambda it: format(it)),
    "fstring": on(Noisy, lambda it: f"a{it}b"),
    "fstring_spec": on(Noisy, lambda it: f"{it:>3}"),
    "fstring_repr": on(Noisy, lambda it: f"{it!r}"),
    "fstring_repr_spec": on(Noisy, lambda it: f"{it!r:>12}"),
    "fstring_str": on(Noisy, lambda it: f"{it!s:^9}"),
    "hash": on(Noisy, lambda it: hash(it)),
    "bool": on(True_, lambda it: bool(it)),
    "bool_len": on(Noisy, lambda it: bool(it)),
    "truth": on(True_, lambda it: operator.truth(it)),
    "not": on(True_, lambda it: operator.not_(it)),
    "not_len": on(Noisy, lambda it: operator.not_(it)),
    "iter": on(Noisy, lambda it: iter(it) is it),
    "next": on(Noisy, lambda it: next(it)),
    "next_default": on(Noisy, lambda it: next(it, 3)),
    "next_ends": on(Ends, lambda it: next(it, "end")),
    "getattr": on(Noisy, lambda it: getattr(it, "doubled")),  # noqa: B009
    "getattr_default": on(Noisy, lambda it: getattr(it, "doubled", 3)),
    "getattr_missing": on(Noisy, lambda it: getattr(it, "missing", 3)),
    "getattr_dynamic": on(Dynamic, lambda it: getattr(it, "some")),  # noqa: B009
    "getattr_dynamic_default": on(Dynamic, lambda it: getattr(it, "nothing", 4)),
    "hasattr": on(Noisy, lambda it: hasattr(it, "doubled")),
    "hasattr_missing": on(Noisy, lambda it: hasattr(it, "missing")),
    "setattr": on(Noisy, lambda it: setattr(it, "doubled", it.value * 2)),
    "setattr_dynamic": on(Dynamic, lambda it: setattr(it, "some", it.value * 2)),
    "delattr_dynamic": on(Dynamic, lambda it: delattr(it, "some")),
    "isinstance": on(Noisy, lambda it: isinstance(it, Valued)),
    "issubclass": on(Noisy, lambda it: issubclass(type(it), Valued)),
    "add": on(Noisy, lambda it: operator.add(it, 2)),
    "neg": on(Noisy, lambda it: operator.neg(it)),
    "lt": on(Noisy, lambda it: operator.lt(it, 2)),
    "getitem": on(Noisy, lambda it: operator.getitem(it, 1)),
    "setitem": on(Noisy, lambda it: operator.setitem(it, 1, it.value)),
    "contains": on(Noisy, lambda it: operator.contains(it, 3)),
}


@pytest.mark.parametrize("name", ONCE)
def test_costs_as_much_as_at_top_level(name: str) -> None:
    stats = check(ONCE[name], X)
    assert (stats.breaks, stats.graphs, stats.native, stats.hits) == (1, 2, 0, 2), (
        stats.breaks,
        stats.graphs,
        stats.reason,
    )


def sequel(it: Noisy) -> Any:
    """Breaks in several methods that one expression calls, deep in other calls."""
    return [len(it), str(it), float(it) + int(it), f"{it}{it!r}"], sum(next(it) for _ in range(2))


def fallback(it: Fallback) -> Any:
    return getattr(it, "missing"), getattr(it, "missing", 3)  # noqa: B009


def by_star(it: Noisy) -> Any:
    args = (it,)
    return len(*args)


def by_partial(it: Noisy) -> Any:
    return functools.partial(len, it)(), functools.partial(getattr, it)("doubled")


def by_keyword(it: Noisy) -> Any:
    return round(number=it, ndigits=2)  # type: ignore[call-overload]


def by_map(it: Noisy) -> Any:
    return list(map(len, [it])), max([it], key=len) is it


MORE: dict[str, Case] = {
    name: on(cls, use)
    for name, cls, use in [
        ("sequel", Noisy, sequel),
        ("fallback", Fallback, fallback),
        ("by_star", Noisy, by_star),
        ("by_partial", Noisy, by_partial),
        ("by_keyword", Noisy, by_keyword),
        ("by_map", Noisy, by_map),
    ]
}


@pytest.mark.parametrize("name", MORE)
def test_goes_on_where_more_is_done(name: str) -> None:
    check(MORE[name], X, calls=6)


class Strange(str):
    def __format__(self, spec: str) -> str:
        return f"strange {spec}"


class Wrong:
    """Each method gives what was put into it, behind a break."""

    def __init__(self, value: Tensor, result: Any) -> None:
        self.value, self.result = value, result

    def give(self, what: str) -> Any:
        y = self.value + 1
        show(what)
        self.value = y * 2
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    def __len__(self) -> int:
        return self.give("len")

    def __float__(self) -> float:
        return self.give("float")

    def __int__(self) -> int:
        return self.give("int")

    def __index__(self) -> int:
        return self.give("index")

    def __str__(self) -> str:
        return self.give("str")

    def __repr__(self) -> str:
        return self.give("repr")

    def __format__(self, spec: str) -> str:
        return self.give("format")

    def __hash__(self) -> int:
        return self.give("hash")

    def __bool__(self) -> bool:
        return self.give("bool")

    def __iter__(self) -> Iterator[int]:
        return self.give("iter")

    def __next__(self) -> int:
        return self.give("next")

    @property
    def got(self) -> Any:
        return self.give("got")

    def __add__(self, other: object) -> Any:
        return self.give("add")

    def __lt__(self, other: object) -> Any:
        return self.give("lt")


class MetaWrong(type):
    result: Any = None

    def __instancecheck__(cls, instance: Any) -> Any:
        show("instancecheck")
        return cls.result


class Int(int):
    pass


class Float(float):
    pass


class Small:
    """An index of another type than `int`."""

    def __index__(self) -> int:
        return 4


USES: dict[str, Callable[[Any], Any]] = {
    "len": len,
    "float": float,
    "int": int,
    "index": operator.index,
    "str": str,
    "repr": repr,
    "format": format,
    "fstring": lambda it: f"{it}",
    "fstring_repr": lambda it: f"{it!r:>8}",
    "hash": hash,
    "bool": bool,
    "iter": iter,
    "next": next,
    "next_or": lambda it: next(it, "end"),
    "getattr": lambda it: getattr(it, "got"),  # noqa: B009
    "getattr_or": lambda it: getattr(it, "got", "default"),
    "hasattr": lambda it: hasattr(it, "got"),
    "add": lambda it: operator.add(it, 1),
    "lt": lambda it: operator.lt(it, 1),
}

RESULTS: dict[str, Callable[[], Any]] = {
    "negative": lambda: -1,
    "huge": lambda: 1 << 70,
    "true": lambda: True,
    "int": lambda: Int(5),
    "float": lambda: Float(2.5),
    "small": Small,
    "text": lambda: "abc",
    "strange": lambda: Strange("abc"),
    "none": lambda: None,
    "refused": lambda: NotImplemented,
    "AttributeError": lambda: AttributeError("a"),
    "StopIteration": lambda: StopIteration(3),
    "ValueError": lambda: ValueError("v"),
}


def described(value: Any) -> Any:
    return type(value).__name__, value if isinstance(value, (int, float, str)) else None


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("use", USES)
def test_any_result_is_treated_as_in_plain_python(use: str, result: str) -> None:
    """Whatever the method gives: the same value, the same error, the same warning."""
    apply, make = USES[use], RESULTS[result]

    def function(x: Tensor) -> Any:
        y = x + 1
        it = Wrong(y, make())
        found = apply_here(it)
        return y * 3, described(found), it.value + 1

    # A plain call in a frame of its own: what `apply` is decides whether it is one.
    apply_here = apply
    compiled = stator.compile(function)
    for _ in range(4):
        both = []
        for target in (function, compiled):
            with warnings.catch_warnings(record=True) as given:
                warnings.simplefilter("always")
                found = outcome(target, X)
            said = [(str(one.message), one.category, one.lineno, one.filename) for one in given]
            both.append((found, said))
        (expected, warned), (found, found_warned) = both
        assert same(expected[0], found[0]), (expected, found)
        assert expected[1] == found[1] and warned == found_warned


@pytest.mark.parametrize("result", [1, 0, None, "", [1], NotImplemented])
def test_truth_of_an_instance_check(result: Any) -> None:
    class Checked(metaclass=MetaWrong):
        pass

    Checked.result = result  # type: ignore[misc]

    def function(x: Tensor) -> Any:
        y = x + 1
        found = isinstance(y.shape, Checked)
        return y * 2, found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        check(function, X, calls=4)


def test_first_method_changes() -> None:
    """Behind a change of the class, its new method is called."""

    class Changing:
        def __init__(self, value: Tensor) -> None:
            self.value = value

        def __len__(self) -> int:
            y = self.value + 1
            show("first")
            self.value = y * 2
            return 2

    def function(x: Tensor) -> Any:
        it = Changing(x + 1)
        return x * len(it), it.value

    def second(self: Changing) -> int:
        y = self.value - 1
        show("second")
        self.value = y * 3
        return 5

    compiled = stator.compile(function)
    for step in range(6):
        if step == 3:
            Changing.__len__ = second  # type: ignore[method-assign]
        expected, found = outcome(function, X), outcome(compiled, X)
        assert same(expected[0], found[0]) and expected[1] == found[1]
    assert stator.stats(compiled).hits == 4


def test_result_changes() -> None:
    """What the method returns is read anew behind the break."""
    length = [2]

    class Sized:
        def __len__(self) -> int:
            show("len")
            return length[0]

    def function(x: Tensor) -> Any:
        y = x + 1
        return y * len(Sized()), "long" if len(Sized()) > 2 else "short"

    compiled = stator.compile(function)
    for number in (2, 2, 3, 3, -1, 2, 3):
        length[0] = number
        expected, found = outcome(function, X), outcome(compiled, X)
        assert same(expected[0], found[0]) and expected[1] == found[1], number


def test_next_asks_once() -> None:
    """`next` that ends an iteration asks the iterator once, and hands on what its exception carries."""

    class Counted:
        def __init__(self) -> None:
            self.asked = 0

        def __next__(self) -> int:
            self.asked += 1
            raise StopIteration(self.asked)

    def parts(x: Tensor) -> Iterator[Tensor]:
        yield x * 2
        return "result"  # noqa: B901

    def function(x: Tensor) -> Any:
        it, steps = Counted(), parts(x)
        y = next(steps) + 1
        try:
            next(it)
        except StopIteration as error:
            first = error.value
        try:
            next(steps)
        except StopIteration as error:
            second = error.value
        return y, it.asked, first, second

    stats = check(function, X)
    assert (stats.breaks, stats.hits) == (0, 2), stats.reason


def test_dynamic_sizes() -> None:
    """A size that a method returns is the builtin function's result for other sizes too."""

    class Holder:
        def __init__(self, x: Tensor) -> None:
            self.x = x

        def __len__(self) -> int:
            return self.x.shape[0]

        def __index__(self) -> int:
            show("index")
            return self.x.shape[0]

        def __abs__(self) -> int:
            show("abs")
            return self.x.shape[0]

    def function(x: Tensor) -> Any:
        it = Holder(x)
        y = x * len(it) + abs(it)
        return y * int(it), float(it)

    compiled = stator.compile(function, dynamic=True)
    for size in (4, 5, 6, 7, 4, 9, 1, 0):
        x = torch.arange(float(size))
        expected, found = outcome(function, x), outcome(compiled, x)
        assert same(expected[0], found[0]) and expected[1] == found[1], size
