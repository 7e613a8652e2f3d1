"""Calls, parameters, closures, defaults, decorators, recursion."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..support.case import Corpus, call, one, t, two

case = Corpus()

FACTOR = 3
TABLE = {"relu": torch.relu, "tanh": torch.tanh}
BIAS = torch.ones(4)


def scale(x: Tensor, by: float = 2.0) -> Tensor:
    return x * by


def _swap_scale() -> None:
    globals()["scale"] = lambda x, by=2.0: x - by


def _new_default() -> None:
    scale.__defaults__ = (7.0,)


def _new_code() -> None:
    scale.__code__ = (lambda x, by: x / by).__code__


@case(one, change=_swap_scale)
def call_global_function(x: Tensor) -> Tensor:
    return scale(x)


@case(one, change=_new_default)
def default_of_callee(x: Tensor) -> Tensor:
    return scale(x)


@case(one, change=_new_code)
def code_of_callee(x: Tensor) -> Tensor:
    return scale(x, 4.0)


@case(lambda: (t(3),), change=lambda: setattr(default_value, "__defaults__", (5,)))
def default_value(x: Tensor, n: int = 2) -> Tensor:
    return x * n


@case(lambda: call(t(3)), change=lambda: keyword_default.__kwdefaults__.update(n=9))
def keyword_default(x: Tensor, *, n: int = 2) -> Tensor:
    return x * n


@case(lambda: (t(3),))
def default_list(x: Tensor, weights: list[int] = [1, 2]) -> Tensor:  # noqa: B006
    return x * sum(weights)


@case(lambda: (t(4), 1, 2, 3), again=lambda: (t(4), 1))
def star_args(x: Tensor, *args: int) -> Tensor:
    return x * len(args) + sum(args)


@case(lambda: call(t(4), a=1, b=2), again=lambda: call(t(4), b=2, a=1))
def star_kwargs(x: Tensor, **kwargs: int) -> tuple[Tensor, list[str]]:
    for name, value in kwargs.items():
        x = x + value * len(name)
    return x, list(kwargs)


@case(lambda: call(t(4), 2, c=5))
def all_parameter_kinds(x: Tensor, a: int, /, b: int = 3, *args: int, c: int, **kw: int) -> Tensor:
    return x * a + b - c + len(args) + len(kw)


@case(lambda: call(y=t(4), x=t(4)))
def keywords_out_of_order(x: Tensor, y: Tensor) -> Tensor:
    return x - y


@case(lambda: call(t(4)), expect="any")
def missing_argument(x: Tensor, y: Tensor) -> Tensor:
    return x - y


@case(lambda: call(t(4), z=1), expect="any")
def unexpected_keyword(x: Tensor) -> Tensor:
    return x


def _inner(a: Any, b: Any = 2, *rest: Any, key: Any = 1, **more: Any) -> Any:
    return a * b + sum(rest) + key + len(more)


@case(one)
def unpack_into_call(x: Tensor) -> Tensor:
    args = (x, 3, 4)
    options = {"key": 5, "other": 6}
    return _inner(*args, **options) + _inner(*[x], *(1, 2), key=3, **{"q": 1})


@case(one)
def keyword_clash_is_caught(x: Tensor) -> Tensor:
    try:
        return _inner(x, **{"a": 1})
    except TypeError as error:
        return x + ("multiple values" in str(error))


@case(one)
def lambda_call(x: Tensor) -> Tensor:
    double = lambda v, k=2: v * k  # noqa: E731
    return double(x) + (lambda: x + 1)() + (lambda *a, **k: len(a) + len(k))(1, 2, z=3)


@case(lambda: (t(3), 5))
def recursion(x: Tensor, n: int) -> Tensor:
    return x if n == 0 else recursion(x + n, n - 1)


def _even(x: Tensor, n: int) -> Tensor:
    return x if n == 0 else _odd(x * 2, n - 1)


def _odd(x: Tensor, n: int) -> Tensor:
    return -x if n == 0 else _even(x + 1, n - 1)


@case(lambda: (t(3), 6))
def mutual_recursion(x: Tensor, n: int) -> Tensor:
    return _even(x, n)


@case(one)
def local_recursion(x: Tensor) -> Tensor:
    def walk(tree: Any) -> Tensor:
        if isinstance(tree, list):
            return sum(walk(item) for item in tree)  # type: ignore[return-value]
        return x * tree

    return walk([1, [2, [3]], 4])


@case(one)
def closure_over_local(x: Tensor) -> Tensor:
    offset = x.sum()

    def shifted(v: Tensor) -> Tensor:
        return v + offset

    offset = offset * 2
    return shifted(x)


@case(one)
def nonlocal_write(x: Tensor) -> Tensor:
    count = 0

    def step(v: Tensor) -> Tensor:
        nonlocal count, x
        count += 1
        x = x + count
        return v * count

    y = step(x)
    y = step(y)
    return y + x + count


@case(one, build=True)
def closure_cell() -> Callable[[Tensor], Tensor]:
    factor = 4

    def fn(x: Tensor) -> Tensor:
        return x * factor

    return fn


def _counter() -> tuple[Callable[..., Any], Callable[..., Any]]:
    factor = 1

    def grow() -> None:
        nonlocal factor
        factor += 1

    def fn(x: Tensor) -> Tensor:
        return x * factor

    return fn, grow


_FN, _GROW = _counter()


@case(one, build=True, change=lambda: _GROW())
def closure_cell_changed() -> Callable[[Tensor], Tensor]:
    return _FN


@case(one, build=True, expect="any")
def closure_counts_calls() -> Callable[[Tensor], Tensor]:
    calls = 0

    def fn(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return x * calls

    return fn


@case(one)
def closures_in_loop(x: Tensor) -> list[Tensor]:
    late = [lambda: x * i for i in range(3)]  # noqa: B023
    early = [lambda k=i: x * k for i in range(3)]
    return [f() for f in late] + [f() for f in early]


@case(one)
def decorated_inside(x: Tensor) -> Tensor:
    def twice(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        @functools.wraps(fn)
        def wrapper(v: Tensor) -> Tensor:
            return fn(fn(v))

        return wrapper

    @twice
    @twice
    def step(v: Tensor) -> Tensor:
        """Adds one."""
        return v + 1

    return step(x) * len(step.__doc__ or "") + len(step.__name__)


def _logged(prefix: str) -> Callable[..., Any]:
    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = fn(*args, **kwargs)
            return result + len(prefix) + len(args) + len(kwargs)

        return wrapper

    return decorate


@_logged("abc")
def _decorated(x: Tensor, y: int = 1) -> Tensor:
    return x * y


@case(one)
def decorated_with_arguments(x: Tensor) -> Tensor:
    return _decorated(x, y=3) + _decorated(x)


@case(lambda: (t(4), torch.relu), again=lambda: (t(4), torch.tanh))
def function_argument(x: Tensor, fn: Callable[[Tensor], Tensor]) -> Tensor:
    return fn(x) + 1


@case(one, change=lambda: TABLE.update(relu=torch.sigmoid))
def function_from_table(x: Tensor) -> Tensor:
    return TABLE["relu"](x)


@case(lambda: (t(4), "tanh"), again=lambda: (t(4), "relu"))
def function_by_name(x: Tensor, name: str) -> Tensor:
    return getattr(torch, name)(x) + TABLE[name](x)


@case(one)
def function_attributes(x: Tensor) -> Tensor:
    def local(v: Tensor) -> Tensor:
        return v * local.factor  # type: ignore[attr-defined]

    local.factor = 3  # type: ignore[attr-defined]
    return local(x)


def _with_attribute(x: Tensor) -> Tensor:
    return x * _with_attribute.factor  # type: ignore[attr-defined]


_with_attribute.factor = 2  # type: ignore[attr-defined]


@case(one, change=lambda: setattr(_with_attribute, "factor", -1))
def global_function_attribute(x: Tensor) -> Tensor:
    return _with_attribute(x)


@case(lambda: (t(4),), change=lambda: globals().update(BIAS=torch.zeros(4)))
def global_tensor(x: Tensor) -> Tensor:
    return x + BIAS


@case(lambda: (t(4),), change=lambda: BIAS.add_(5))
def global_tensor_in_place(x: Tensor) -> Tensor:
    return x + BIAS


@case(lambda: (t(4),), change=lambda: globals().pop("FACTOR"))
def global_deleted(x: Tensor) -> Tensor:
    try:
        return x * FACTOR
    except NameError:
        return x - 1


@case(lambda: (t(4),), change=lambda: globals().update(len=lambda v: 100))
def builtin_shadowed(x: Tensor) -> Tensor:
    return x * len([1, 2])


@case(two)
def swap_and_multiple_assignment(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x, y = y, x
    a = b = x + y
    a, b = b * 2, a
    return a, b


@case(lambda: (t(4),))
def inner_function_returns_many(x: Tensor) -> Tensor:
    def split(v: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        return v[:2], v[2:], {"all": v}

    low, high, rest = split(x)
    return low * high + rest["all"].sum()


@case(lambda: (t(4),))
def locals_and_globals_calls(x: Tensor) -> tuple[Tensor, list[str]]:
    n = 2
    names = sorted(locals())
    return x * n * globals()["FACTOR"], names


@case(lambda: (t(4),))
def method_of_number(x: Tensor) -> Tensor:
    return x * (5).bit_length() + (2.5).as_integer_ratio()[0] + int.from_bytes(b"\x02", "big")


@case(lambda: (t(4), [1, 2]))
def bound_method_as_value(x: Tensor, items: list[int]) -> Tensor:
    count = items.count
    add = x.add
    return add(count(1)) + torch.Tensor.mul(x, 2)


@case(lambda: (t(4),))
def call_with_spread_generator(x: Tensor) -> Tensor:
    return torch.stack([*(x * i for i in range(3))]).sum(0) + _inner(*(v for v in (x, 2)))


@case(lambda: (t(2, 3),))
def deep_call_chain(x: Tensor) -> Tensor:
    def a(v: Tensor) -> Tensor:
        return b(v) + 1

    def b(v: Tensor) -> Tensor:
        return c(v) * 2

    def c(v: Tensor) -> Tensor:
        return d(v).sin()

    def d(v: Tensor) -> Tensor:
        return v.t() @ v

    return a(x)


@case(one, expect="any")
def too_deep_recursion_is_caught(x: Tensor) -> Tensor:
    def forever(n: int) -> int:
        return forever(n + 1) + 1

    try:
        forever(0)
    except RecursionError as error:
        return x + len(error.args)
    return x


@case(one)
def exec_of_compiled_source(x: Tensor) -> Tensor:
    made: dict[str, Any] = {}
    exec("def add_two(v):\n    return v + 2\n", made)
    return made["add_two"](x)


@case(one)
def eval_of_expression(x: Tensor) -> Tensor:
    return x * eval("1 + 2") + eval("x.shape[0]")


@case(one)
def annotations_and_docstring(x: Tensor) -> Tensor:
    """Seven words stand in this docstring."""

    def typed(v: Tensor, n: int = 2) -> Tensor:
        return v * n

    return typed(x) + len(typed.__annotations__) + typed.__code__.co_argcount


@case(one)
def immediately_consumed_star(x: Tensor) -> Tensor:
    first, *rest, last = [x, x + 1, x + 2, x + 3]
    (a, b), c = (first, last), rest
    return a - b + c[0] * len(c)
