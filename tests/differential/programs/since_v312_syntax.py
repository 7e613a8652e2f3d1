"""What CPython 3.12 brought to syntax: type parameters and aliases, inlined comprehensions, nested f-strings; and what goes by tables of its own there."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
import typing
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..support.case import Corpus, one, t

case = Corpus()
LOG: list[Any] = []
FACTOR = 2.0
WIDTH = 12
LIMIT = 3


def _factor(*_: Any) -> None:
    global FACTOR
    FACTOR = 5.0


def _width(*_: Any) -> None:
    global WIDTH
    WIDTH = 20


def _limit(*_: Any) -> None:
    global LIMIT
    LIMIT = 5


# Type parameters and aliases.


def scaled[T: Tensor](x: T, times: int = 2) -> T:
    return x * times * FACTOR


@case(one, change=_factor)
def generic_function(x: Tensor) -> Any:
    parameter = scaled.__type_params__[0]
    return scaled(x), scaled(x, times=3), parameter.__name__, parameter.__bound__ is Tensor


class Box[T]:
    made = 0

    def __init__(self, value: T) -> None:
        type(self).made += 1
        self.value = value

    def map[U](self, fn: typing.Callable[[T], U]) -> Box[U]:
        return Box(fn(self.value))


class Ordered[T, *Rest, **P](Box[T]):
    def map[U](self, fn: typing.Callable[[T], U]) -> Box[U]:
        LOG.append(self.made)
        return super().map(fn)


def _box_map(*_: Any) -> None:
    Box.map = lambda self, fn: Box(fn(self.value) - 1)


@case(one, change=_box_map)
def generic_classes(x: Tensor) -> Any:
    box = Ordered[Tensor, int, [str]](x).map(lambda v: v.relu() + Box.made)
    return box.value, [str(p) for p in Ordered.__type_params__], Box.made


@case(one)
def generic_alias_of_an_instance(x: Tensor) -> Any:
    box = Box[Tensor](x)
    origin = box.__orig_class__
    return box.value + 1, typing.get_args(origin) == (Tensor,), sorted(vars(box))


@case(one, change=_factor)
def generic_function_made_inside(x: Tensor) -> Any:
    bias = x.sum()

    def shifted[T](value: T, by: float = FACTOR) -> T:
        return value * by + bias

    return shifted(x), shifted(value=x, by=1.0), [p.__name__ for p in shifted.__type_params__]


@case(one)
def generic_class_made_inside(x: Tensor) -> Any:
    class Local[T](Box[T]):
        kept: list[Any] = [i * 2 for i in range(3)]

        def apply(self, value: T) -> Any:
            return [value * k for k in __class__.kept]

    local = Local(x)
    return local.apply(local.value), Local.made, Local.__type_params__[0].__name__


type Lazy = (LOG.append("evaluated"), int)[1]
type Pair[A, B] = tuple[A, B]


@case(one)
def an_alias_is_evaluated_once(x: Tensor) -> Any:
    first = Lazy.__value__
    return x + len(LOG), first, Lazy.__value__, list(LOG)


@case(one)
def an_alias_of_its_own(x: Tensor) -> Any:
    type Own = dict[str, Pair[int, Missing]]  # nobody asks for its value
    try:
        Own.__value__
    except NameError as error:
        return x * 2, str(error), Own.__name__
    return None


@case(one, change=_factor)
def an_alias_reads_late(x: Tensor) -> Any:
    type Now = FACTOR
    return x * Now.__value__


@case(one)
def bounds_are_evaluated_late(x: Tensor) -> Any:
    def f[T: (LOG.append("bound"), int)](value: T) -> T:
        return value + 1

    before = list(LOG)
    constraints = f.__type_params__[0].__constraints__
    return f(x), before, constraints, list(LOG)


@case(one)
def type_parameters_written(x: Tensor) -> Any:
    def f[T](value: T) -> T:
        return value * 2

    f.__type_params__ = (TypeVar("Z"),)
    with contextlib.suppress(TypeError):
        f.__type_params__ = [1]
    return f(x), f.__type_params__[0].__name__


class Marked:
    def __init_subclass__(cls, /, mark: Any = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.mark = mark


@case(one, change=_factor)
def type_parameters_beside_keywords_of_a_class(x: Tensor) -> Any:
    class Sub[T](Marked, mark=[FACTOR for _ in (1, 2)]):
        pass

    return x * sum(Sub.mark), Sub.__name__, [b.__name__ for b in types.get_original_bases(Sub)]


# Comprehensions have no frame of their own.


@case(lambda: ([t(3), t(3)],), change=_factor)
def comprehension_in_a_class(xs: list[Tensor]) -> Any:
    class Holder:
        factor = FACTOR
        scaled = [x * FACTOR for x in xs]
        again = {i: [x + j for j in range(i)] for i, x in enumerate(xs)}
        names = sorted(name for name in ("factor", "x") if name in dir())

    return Holder.scaled, Holder.again, Holder.names, hasattr(Holder, "x")


@case(one)
def comprehension_in_a_class_misses_its_names(x: Tensor) -> Any:
    try:

        class Holder:
            hidden = 3
            bad = [hidden for _ in range(2)]

    except NameError as error:
        return x + 1, str(error)
    return Holder.bad


@case(one)
def comprehension_spares_an_outer_name(x: Tensor) -> Any:
    i = "mine"
    y = x
    squares = [i * y for i in range(3) for y in (x, x + i)]
    return squares, i, y is x


@case(one)
def comprehension_that_fails_spares_an_outer_name(x: Tensor) -> Any:
    i = "mine"
    try:
        [x / (1 if i else [][i]) for i in (2, 1, 0)]
    except IndexError as error:
        depth, entry = 0, error.__traceback__
        while entry:
            depth, entry = depth + 1, entry.tb_next
        return x * 2, i, depth
    return None


@case(one)
def comprehension_over_an_unbound_name(x: Tensor) -> Any:
    if x.dim() > 9:
        i = 0
    kept = [x * i for i in range(2)]
    try:
        return kept, i
    except UnboundLocalError as error:
        return kept, str(error)


@case(one, change=_factor)
def comprehension_with_walrus(x: Tensor) -> Any:
    total = x.sum()
    parts = [total := total * FACTOR + i for i in range(3)]
    return parts, total, [last := i for i in range(2)], last


@case(one)
def comprehension_with_nonlocal_walrus(x: Tensor) -> Any:
    seen = None

    def inner() -> Any:
        nonlocal seen
        return [(seen := x + i) for i in range(3)]

    made = inner()
    return made, seen, seen is made[-1]


COUNT = 0


@case(one)
def comprehension_with_global_walrus(x: Tensor) -> Any:
    global COUNT
    return [x * (COUNT := COUNT + 1) for _ in range(3)], {COUNT: (COUNT := 0) for _ in range(2)}


@case(one)
def comprehension_with_cells(x: Tensor) -> Any:
    late = [lambda: x * i for i in range(3)]
    early = [lambda i=i: x * i for i in range(3)]
    fresh = [[lambda: (i, j) for j in range(2)] for i in range(2)]
    return [f() for f in late], [f() for f in early], [[f() for f in row] for row in fresh]


@case(one)
def comprehension_with_a_cell_outside(x: Tensor) -> Any:
    i = x + 10

    def outer() -> Any:
        return i

    made = [(lambda: i)() for i in range(3)]
    return made, outer() is i, [outer() + i for i in range(2)]


@case(one, change=_factor)
def comprehension_asks_for_locals(x: Tensor) -> Any:
    names = [sorted(locals()) for i in range(1)]
    gathered = [{**locals()}["i"] * x * FACTOR for i in range(2)]
    return names, gathered


@case(one)
def comprehension_knows_its_function(x: Tensor) -> Any:
    return [(x, sys._getframe().f_code.co_name, sys._getframe().f_lineno > 0) for _ in range(2)]


@case(one)
def comprehension_with_a_generator_inside(x: Tensor) -> Any:
    def parts() -> Any:
        kept = []
        for j in [k for k in range(3) if (last := k) < 2]:
            kept.append((yield x * j))
        return kept, last

    g = parts()
    out = [next(g), g.send("a")]
    try:
        g.send("b")
    except StopIteration as stop:
        out.append(stop.value)
    return out


@case(one)
def comprehension_awaits(x: Tensor) -> Any:
    async def double(v: Any) -> Any:
        return v * 2

    async def numbers() -> Any:
        for i in range(3):
            yield i

    async def main() -> Any:
        v = "mine"
        made = [await double(x * v) async for v in numbers() if v]
        return made, v, {v: await double(v) for v in (1, 2)}

    try:
        main().send(None)
    except StopIteration as stop:
        return stop.value


class Weird:
    """Iterating over it runs code that looks at the frame that iterates."""

    def __iter__(self) -> Any:
        LOG.append(sys._getframe(1).f_code.co_name)
        return iter([1, 2, LIMIT])


@case(one, change=_limit)
def comprehension_over_an_object(x: Tensor) -> Any:
    return [x + i for i in Weird()], {i for i in Weird() if i > 1}, list(LOG)


# Nested f-strings.


class Styled:
    def __format__(self, spec: str) -> str:
        LOG.append(spec)
        return f"<{spec or 'none'}>"

    def __repr__(self) -> str:
        return "Stylé"


@case(one, change=_width)
def texts_in_texts(x: Tensor) -> Any:
    inner = f"{f'{tuple(x.shape)}'!r:>{WIDTH}}|{Styled()}|{Styled():{WIDTH}.{f'{1}'}}|{Styled()!a:{'<'}{WIDTH}}"
    return (
        x * len(inner),
        inner,
        f"{x.dim() = } {WIDTH=:>{WIDTH}} {'\n'.join(str(s) for s in x.shape)}",
    )


@case(lambda: (torch.arange(3.0), 0.5), again=lambda: (torch.arange(3.0), 2), change=_factor)
def texts_of_numbers(x: Tensor, n: Any) -> Any:
    return x * n, f"{n!r:~>9}{n:08.3f}{n * FACTOR:e}{n!s}{f'{n:{">"}{7}}'}"


class Bad:
    def __format__(self, spec: str) -> Any:
        return 3


@case(one)
def texts_that_fail(x: Tensor) -> Any:
    out = []
    for make in (
        lambda: f"{Bad()}",
        lambda: f"{Bad():x}",
        lambda: f"{[1]:>3}",
        lambda: f"{1:{'q'}}",
    ):
        try:
            out.append(make())
        except (TypeError, ValueError) as error:
            out.append(str(error))
    return x - 1, out


# Exception groups.


def worker(x: Tensor, kinds: Any) -> Any:
    errors = []
    for kind in kinds:
        error = kind(f"of {tuple(x.shape)}")
        error.add_note(f"note {FACTOR}")
        errors.append(error)
    if errors:
        raise ExceptionGroup("all", errors)
    return x


@case(
    lambda: (t(3), (ValueError, KeyError, OSError)),
    change=_factor,
    again=lambda: (t(3), (ValueError, OSError)),
)
def groups_in_parts(x: Tensor, kinds: Any) -> Any:
    out: list[Any] = []
    try:
        try:
            worker(x, kinds)
        except* ValueError as group:
            x = x + len(group.exceptions)
            out.append([e.__notes__ for e in group.exceptions])
            group.exceptions[0].add_note("seen")
        except* (KeyError, IndexError) as group:
            raise RuntimeError("instead") from group.exceptions[0]
    except ExceptionGroup as rest:
        rest.add_note("rest")
        out.append((rest.message, [type(e).__name__ for e in rest.exceptions], rest.__notes__))
        out.append([type(e.__cause__).__name__ for e in rest.exceptions])
    return x, out


@case(one)
def groups_suppressed(x: Tensor) -> Any:
    with contextlib.suppress(ValueError):
        x = x + 1
        worker(x, (ValueError, ValueError))
    try:
        with contextlib.suppress(ValueError):
            worker(x, (ValueError, KeyError))
    except ExceptionGroup as rest:
        return x, [repr(e) for e in rest.exceptions]
    return None


@case(one)
def groups_of_a_single_error(x: Tensor) -> Any:
    out = []
    for kind in (ValueError, ExceptionGroup):
        try:
            try:
                raise (
                    ValueError("single")
                    if kind is ValueError
                    else kind("g", [kind("h", [KeyError(1)]), ValueError(2)])
                )
            except* ValueError as group:
                out.append((repr(group), x * 2))
        except ExceptionGroup as rest:
            out.append(repr(rest))
    return out


# Ways out of `finally`.


def leaves(x: Tensor) -> Any:
    for i in range(4):
        try:
            yield x * i
        except ValueError:
            continue
        finally:
            LOG.append(i)
            if i == 2:
                return "from finally"


@case(one)
def generators_return_in_finally(x: Tensor) -> Any:
    def outer() -> Any:
        LOG.append((yield from leaves(x)))

    g = outer()
    out = [next(g), g.throw(ValueError), next(g)]
    try:
        g.throw(KeyError("lost"))
    except StopIteration as stop:
        return out, stop.value, list(LOG), stop.__context__
    return None


# Patterns.


class Shape:
    __match_args__ = ("kind", "size")

    def __init__(self, kind: str, size: Any) -> None:
        self.kind, self.size, self.other = kind, size, "other"


def _match_args(*_: Any) -> None:
    Shape.__match_args__ = ("other", "kind")


def area(shape: Any, x: Tensor) -> Any:
    match shape:
        case Shape("square", int(n)) if n > 1:
            return x * n * n
        case Shape("square" | "dot" as kind, size=n):
            return x + len(kind), n
        case Shape("other", kind):
            return x - 1, kind
        case {"kind": str(kind), **rest}:
            return x, kind, rest
        case [first, *middle, Tensor() as last] if last is not first:
            return first, middle, last
        case None | float("nan") | -1:
            return "none"
        case Tensor(shape=(n, *_)) as y if n == 3:
            return y * n
        case _:
            return "any"


@case(one, change=_match_args)
def patterns(x: Tensor) -> Any:
    subjects = [
        Shape("square", 3),
        Shape("square", 1),
        Shape("dot", None),
        Shape("x", 2),
        {"kind": "k", "b": x},
    ]
    subjects += [[1, 2, x], (x, x), None, -1, x, x[0], "text", {"kind": 3}]
    return [area(s, x) for s in subjects]


@case(one)
def patterns_that_fail(x: Tensor) -> Any:
    class Many:
        __match_args__ = ["a"]

    out = []
    for subject in (Many(), Shape("a", 1)):
        try:
            match subject:
                case Many(a):
                    out.append(a)
                case Shape(_, _, third):
                    out.append(third)
        except TypeError as error:
            out.append(str(error))
    return x, out


# Calls with keywords.


def taking(a: Any, /, b: Any, *rest: Any, c: Any = 3, **named: Any) -> Any:
    return a * 1, b, rest, c, named


def _taking(*_: Any) -> None:
    taking.__kwdefaults__ = {"c": FACTOR}


@case(one, change=_taking)
def keywords(x: Tensor) -> Any:
    out = [taking(x, 1, 2, d=4), taking(x, b=2, a=5), taking(*(x, 1), **{"c": 0}, e=x)]
    part = functools.partial(taking, x, c=8)
    out.append(part(1, c=9))
    for make in (
        lambda: taking(a=x, b=1),
        lambda: taking(x, 1, b=2),
        lambda: taking(x, **{"b": 1}, **{"b": 2}),
        lambda: taking(x, **{1: 2}),
    ):
        try:
            out.append(make())
        except TypeError as error:
            out.append(str(error))
    return out


class Callable:
    def __call__(self, x: Tensor, *, by: Any) -> Any:
        return x * by

    def __init__(self, *, scale: Any = 1) -> None:
        self.scale = scale

    @staticmethod
    def fixed(*, x: Tensor) -> Any:
        return x + 1


@case(one)
def keywords_of_objects(x: Tensor) -> Any:
    made = Callable(scale=2)
    return (
        made(x, by=made.scale),
        made(by=x, x=x),
        made.fixed(x=x),
        Callable.__call__(made, x, by=1),
    )
