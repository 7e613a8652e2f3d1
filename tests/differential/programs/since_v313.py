"""What CPython 3.13 brought: locals written through frames, `copy.replace`, deprecation marks, defaults of type parameters, values that `close` returns."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import queue
import random
import sys
import types
import typing
import warnings
from collections import namedtuple
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..support.case import Corpus, one, t

case = Corpus()
LOG: list[Any] = []
FACTOR = 2.0


def _factor(*_: Any) -> None:
    global FACTOR
    FACTOR = 5.0


# Locals, written through frames.


def raises_level(name: str, by: Any) -> None:
    sys._getframe(1).f_locals[name] += by


@case(one, change=_factor)
def a_callee_writes_a_local(x: Tensor) -> Any:
    level = 1.0
    raises_level("level", FACTOR)
    return x * level, level


@case(one)
def a_callee_writes_a_tensor(x: Tensor) -> Any:
    y = x
    raises_level("y", 1)
    return y, y is x


@case(one)
def a_callee_writes_a_cell(x: Tensor) -> Any:
    level = 2

    def read() -> Any:
        return x * level

    before = read()
    raises_level("level", 3)
    return before, read(), level


@case(one)
def a_frame_writes_its_own_locals(x: Tensor) -> Any:
    n = 1
    held = sys._getframe().f_locals
    held["n"] = x
    held["extra"] = 3
    try:
        del held["n"]
    except ValueError as error:
        said = str(error)
    return (
        n * 2,
        n is x,
        said,
        "extra" in held,
        held["extra"],
        "extra" in locals(),
        type(held).__name__,
    )


@case(one)
def locals_are_a_snapshot(x: Tensor) -> Any:
    a = 1
    first = locals()
    first["a"] = 5
    b = x
    second = locals()
    return a, first is second, sorted(first), sorted(second), second["b"] is b


@case(one)
def executed_code_writes_no_locals(x: Tensor) -> Any:
    a = 1
    exec("a = 2; b = 3")
    own = {"x": x}
    exec("y = x * n", globals={"n": FACTOR}, locals=own)
    return a, "b" in locals(), own["y"], eval("x + n", locals=own, globals={"n": 1})


def counting(x: Tensor) -> Any:
    n = 0
    while n < 50:
        yield x * n
        n += 1


@case(one, change=_factor)
def a_suspended_generator_is_written(x: Tensor) -> Any:
    g = counting(x)
    out = [next(g)]
    g.gi_frame.f_locals["n"] = int(FACTOR) * 10
    out += list(g)[:2]
    return out, g.gi_frame


@case(one)
def a_comprehension_is_written(x: Tensor) -> Any:
    i = "outer"
    made = [(sys._getframe().f_locals.__setitem__("i", i * 10), x * i)[1] for i in range(3)]
    return made, i


@case(one)
def locals_outlive_their_frame(x: Tensor) -> Any:
    def inner(value: Any) -> Any:
        doubled = value * 2
        return sys._getframe(), sys._getframe().f_locals

    frame, held = inner(x)
    held["doubled"] += 1
    return frame.f_locals["doubled"], list(held), held == frame.f_locals


@case(one)
def a_handler_writes_the_frame_that_raised(x: Tensor) -> Any:
    def fails() -> Any:
        kept = x
        try:
            raise ValueError
        except ValueError as error:
            error.__traceback__.tb_frame.f_locals["kept"] = x - 1
        return kept

    return fails()


# `copy.replace`.


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    size: int = 2
    scale: float = 1.0
    tags: list[str] = field(default_factory=list)


Pair = namedtuple("Pair", "first second")


class Own:
    def __init__(self, **given: Any) -> None:
        vars(self).update(given)

    def __replace__(self, /, **changes: Any) -> Any:
        LOG.append(sorted(changes))
        return type(self)(**vars(self) | changes)


def _replace(*_: Any) -> None:
    Own.__replace__ = lambda self, **changes: Own(a=100, b=FACTOR)


@case(one, change=_replace)
def replaced(x: Tensor) -> Any:
    own = copy.replace(Own(a=1, b=x), b=x + 1)
    config = copy.replace(Config(scale=3.0, tags=["a"]), size=x.dim())
    pair = copy.replace(Pair(x, 1), second=2)
    space = copy.replace(types.SimpleNamespace({"a": 1}, b=2), a=x)
    out = []
    for thing, changes in ((3, {}), (pair, {"third": 1}), (config, {"other": 1})):
        try:
            copy.replace(thing, **changes)
        except (TypeError, ValueError) as error:
            out.append((type(error).__name__, str(error)))
    return own.a * own.b, config, x * config.scale, pair, space, out, list(LOG)


def changed_code() -> Any:
    return "one"


def _code(*_: Any) -> None:
    changed_code.__code__ = copy.replace(changed_code.__code__, co_consts=(None, "two"))


@case(one, change=_code)
def code_replaced(x: Tensor) -> Any:
    return x + len(changed_code()), changed_code()


# Marks of deprecation.


@warnings.deprecated("use new")
def old(x: Tensor, *, by: float = 2.0) -> Tensor:
    return x * by


@warnings.deprecated("use another class", category=FutureWarning)
class OldClass:
    def __init__(self, value: Any) -> None:
        self.value = value

    @warnings.deprecated("no method", category=None)
    def method(self) -> Any:
        return self.value * 3

    @staticmethod
    @warnings.deprecated("no static method")
    def fixed(x: Tensor) -> Tensor:
        return x - 1


def _silent(*_: Any) -> None:
    old.__wrapped__.__kwdefaults__["by"] = FACTOR
    old.__wrapped__.__defaults__ = None


@case(one, change=_silent)
def deprecated_functions(x: Tensor) -> Any:
    return old(x), old(x, by=3.0), old.__deprecated__


@case(one)
def deprecated_classes(x: Tensor) -> Any:
    made = OldClass(x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")

        class Sub(OldClass):
            pass

        y = Sub.fixed(x)
    return (
        made.method(),
        y,
        [(w.category.__name__, str(w.message)) for w in caught],
        Sub(x).value is x,
    )


@case(one)
def deprecated_and_an_error(x: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return old(x)
        except DeprecationWarning as error:
            return x * 2, str(error)


# Type parameters with defaults.


class Box[T = int, *Rest = *tuple[int, str]]:
    def __init__(self, value: T) -> None:
        self.value = value


type Late[T = (LOG.append("default"), float)[1]] = list[T]


@case(one)
def type_parameters_with_defaults(x: Tensor) -> Any:
    before = list(LOG)
    default = Late.__type_params__[0].__default__
    first = Box.__type_params__[0]
    return (
        Box(x).value + 1,
        before,
        default,
        list(LOG),
        first.has_default(),
        first.__default__,
        typing.NoDefault,
    )


# Classes, as they say of themselves.


class Attributed:
    def __init__(self, x: Any) -> None:
        self.x = x
        self.y = x

    def later(self) -> None:
        self.z = 1


def _attributes(*_: Any) -> None:
    Attributed.__static_attributes__ = ("x",)
    Attributed.__firstlineno__ = 3


@case(one, change=_attributes)
def attributes_named_by_a_class(x: Tensor) -> Any:
    class Inner(Attributed):
        """A docstring
        that goes on.
        """

        def set(self) -> None:
            self.inner = self.y = 2

    names = sorted(Attributed.__static_attributes__), sorted(Inner.__static_attributes__)
    o = Inner(x)
    return (
        [getattr(o, name, None) for name in names[0]],
        names,
        Attributed.__firstlineno__ < 9,
        Inner.__doc__,
    )


class Named:
    @property
    def value(self) -> Any:
        return FACTOR

    other = property(lambda self: 1, doc="others")


def _property(*_: Any) -> None:
    Named.value = property(lambda self: 9.0)


@case(one, change=_property)
def properties_have_names(x: Tensor) -> Any:
    return x * Named().value, Named.value.__name__, Named.other.__name__


def _inline(x: Tensor, o: Any) -> None:
    held = o.__dict__
    held["x"] = FACTOR
    del held["y"]
    Attributed.y = 4


@case(lambda: (t(3), Attributed(3)), keep=True, change=_inline)
def values_inside_the_object(x: Tensor, o: Any) -> Any:
    return x * o.x + o.y


def _many(x: Tensor, o: Any) -> None:
    for i in range(60):
        setattr(o, f"n{i}", i)
    o.x = 7


@case(lambda: (t(3), Attributed(3)), keep=True, change=_many)
def values_moved_out_of_the_object(x: Tensor, o: Any) -> Any:
    o.y = o.y + o.x
    return x * o.x + o.y, len(vars(o))


def _keep_values(x: Tensor, o: Any) -> None:
    held = o.__dict__
    o.__dict__ = {"x": 2, "y": 1}
    held["x"] = 100


@case(lambda: (t(3), Attributed(3)), keep=True, change=_keep_values)
def values_left_behind(x: Tensor, o: Any) -> Any:
    held = vars(o)
    o.x += 1
    return x * held["x"], held is o.__dict__


# Generators.


@case(one)
def close_returns_a_value(x: Tensor) -> Any:
    def parts() -> Any:
        total = x
        try:
            while True:
                total = total + (yield total)
        except GeneratorExit:
            return total

    g = parts()
    next(g)
    g.send(x)
    fresh = parts()
    return g.close(), g.close(), fresh.close()


@case(one)
def a_generator_expression_asks_late(x: Tensor) -> Any:
    out = []
    try:
        g = (x * i for i in x.dim())
        out.append("made")
        next(g)
    except TypeError as error:
        out.append(str(error))
    return out


@case(one)
def names_that_are_near(x: Tensor) -> Any:
    out = []
    for ask in (
        lambda: Config(size=1).scael,
        lambda: old(x, bye=3),
        lambda: math.sqtr,
        lambda: Config(siez=1),
        lambda: contxtlib,
    ):
        try:
            ask()
        except (AttributeError, TypeError, NameError) as error:
            out.append((type(error).__name__, str(error)))
    return x + 1, out


# The library's.


@case(lambda: (t(3), 0.1, 3.0), again=lambda: (t(3), 0.3, 7.0))
def multiplied_and_added(x: Tensor, a: float, b: float) -> Any:
    return x * math.fma(a, b, -a * b), math.sumprod([a, b], [b, a]), round(a * b, 2)


@case(lambda: ([t(2) for _ in range(4)],), again=lambda: ([t(2) for _ in range(5)],))
def strict_batches(xs: list[Tensor]) -> Any:
    out = []
    try:
        for batch in itertools.batched(xs, 2, strict=True):
            out.append(torch.stack(batch).sum(0))
    except ValueError as error:
        return out, str(error)
    return out


@case(one)
def queues_that_shut_down(x: Tensor) -> Any:
    q: queue.Queue[Any] = queue.Queue()
    q.put(x)
    q.shutdown()
    got = q.get()
    try:
        q.get_nowait()
    except queue.ShutDown as error:
        return got * 2, repr(error)
    return None


@case(one)
def texts_replaced_by_name(x: Tensor) -> Any:
    return x, "a.a.a".replace("a", "b", count=x.dim()), f"{'xy':{'>'}{x.shape[0] * 2}}"


@case(lambda: (t(3), random.Random(1)), keep=True, change=lambda x, r: r.seed(5))
def binomials(x: Tensor, r: Any) -> Any:
    return x * r.binomialvariate(10, 0.5), r.random()


class Sized:
    def __init__(self, items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        LOG.append("len")
        return len(self.items)


class Odd:
    def __bool__(self) -> Any:
        return 1


class Ordered:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: Any) -> Any:
        return Sized(range(self.value)) if other else Odd()


@case(lambda: (t(3), Ordered(1)), again=lambda: (t(3), Ordered(0)))
def comparisons_that_ask_for_truth(x: Tensor, o: Ordered) -> Any:
    out: list[Any] = [1 if o < 1 else 2, [i for i in range(2) if o < i + 1]]
    try:
        out.append("yes" if o < 0 else "no")
    except TypeError as error:
        out.append(str(error))
    try:
        out.append("yes" if x < 0 else "no")
    except RuntimeError as error:
        out.append(str(error)[:30])
    while o < 3 and len(out) < 5:
        out.append(x)
    return x if o < 7 else -x, out, list(LOG)


@case(one)
def a_manager_without_a_method(x: Tensor) -> Any:
    class Half:
        def __enter__(self) -> Any:
            return x

    try:
        with Half() as y:
            return y
    except TypeError as error:
        said = str(error)
    with contextlib.suppress(ZeroDivisionError), contextlib.nullcontext(x * 2) as y:
        return y, said, 1 / 0
    return y, said
