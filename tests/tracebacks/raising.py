"""Functions that raise, and how to call them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Raising:
    """A function, arguments that make it raise, and perhaps arguments that don't.

    With `good`, the compiled function is first called twice with those, so that the failing call
    meets a warm cache.
    """

    fn: Callable[..., Any]
    args: Callable[[], tuple[Any, ...]]
    good: Callable[[], tuple[Any, ...]] | None = None


CASES: dict[str, Raising] = {}


def raising(
    args: Callable[[], tuple[Any, ...]], good: Callable[[], tuple[Any, ...]] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the function below it."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        CASES[fn.__name__] = Raising(fn, args, good)
        return fn

    return register


def one() -> tuple[Tensor]:
    return (torch.ones(3),)


class Refused(Exception):
    """A user's exception with fields and text of its own."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    def __str__(self) -> str:
        return f"refused with {self.code}"


class Net(nn.Module):
    """Its inner layer has the wrong width."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(5, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) * 2


NET = Net()
HOOKED = nn.Linear(3, 3)


def _failing_hook(module: nn.Module, args: Any, out: Tensor) -> Tensor:
    raise Refused(out.dim())


HOOKED.register_forward_hook(_failing_hook)


@raising(one)
def simple(x: Tensor) -> Tensor:
    y = x + 1
    raise ValueError("simple", y.dim())


def _third(x: Tensor) -> Tensor:
    return x.view(7)


def _second(x: Tensor) -> Tensor:
    return _third(x) + 1


def _first(x: Tensor) -> Tensor:
    return _second(x * 2)


@raising(one, good=lambda: (torch.ones(7),))
def nested_calls(x: Tensor) -> Tensor:
    return _first(x)


@raising(
    lambda: (torch.ones(3, 3), torch.ones(2, 3)), good=lambda: (torch.ones(3, 3), torch.ones(3))
)
def shape_error(x: Tensor, y: Tensor) -> Tensor:
    z = x.sin()
    return z @ y + x


@raising(lambda: (-torch.eye(3),), good=lambda: (torch.eye(3),))
def data_decides(x: Tensor) -> Tensor:
    y = x * 2
    return torch.linalg.cholesky(y)


@raising(lambda: (-torch.eye(3),), good=lambda: (torch.eye(3),))
def data_decides_inside_helpers(x: Tensor) -> Tensor:
    def factor(v: Tensor) -> Tensor:
        return (
            torch.linalg.cholesky(
                v + 0,
            )
            + 1
        )

    return factor(x) + 1


@raising(lambda: (torch.tensor([5]),), good=lambda: (torch.tensor([1]),))
def index_out_of_range(i: Tensor) -> Tensor:
    return F.embedding(i, torch.ones(3, 2)).sum()


@raising(lambda: (-torch.eye(3),), good=lambda: (torch.eye(3),))
def data_decides_and_context_is_added(x: Tensor) -> Tensor:
    try:
        return torch.linalg.cholesky(x)
    except RuntimeError as error:
        raise Refused(3) from error


@raising(one)
def in_place_on_leaf(x: Tensor) -> Tensor:
    w = x.clone().requires_grad_()
    w += 1
    return w


@raising(one)
def in_comprehension(x: Tensor) -> list[Tensor]:
    return [x / n if n else x.view(n, 7) for n in range(1, -1, -1)]


@raising(one)
def in_nested_comprehension(x: Tensor) -> Any:
    return {i: [x[j] for j in range(i)] for i in range(6)}


@raising(one)
def in_generator(x: Tensor) -> Tensor:
    def steps() -> Iterator[Tensor]:
        yield x
        raise KeyError("step")

    total = x
    for step in steps():
        total = total + step
    return total


@raising(one)
def in_generator_expression(x: Tensor) -> Tensor:
    return sum(x * (1 // n) for n in (2, 1, 0))  # type: ignore[return-value]


@raising(one)
def through_yield_from(x: Tensor) -> list[Tensor]:
    def inner() -> Iterator[Tensor]:
        yield x
        yield x.reshape(2, 2)

    def outer() -> Iterator[Tensor]:
        yield from inner()

    return list(outer())


@raising(one)
def stop_iteration_in_generator(x: Tensor) -> list[Tensor]:
    def broken() -> Iterator[Tensor]:
        yield x
        raise StopIteration("too early")

    return list(broken())


@raising(one)
def thrown_into_generator(x: Tensor) -> Tensor:
    def steps() -> Iterator[Tensor]:
        try:
            yield x
        finally:
            x.add(1)

    gen = steps()
    next(gen)
    return gen.throw(Refused(8))  # type: ignore[attr-defined, no-any-return]


class Odd:
    """Special methods that raise."""

    def __getattr__(self, name: str) -> Any:
        if name == "soft":
            raise AttributeError(f"no {name} here")
        raise Refused(len(name))

    @property
    def broken(self) -> int:
        return int("x1")

    def __add__(self, other: Any) -> Any:
        raise ArithmeticError("no sums")

    def __len__(self) -> int:
        return -1

    def __iter__(self) -> Iterator[Any]:
        raise LookupError("not iterable today")

    def __bool__(self) -> bool:
        raise TypeError("neither true nor false")

    def __call__(self, x: Tensor) -> Tensor:
        return x.expand(2, 2)

    def __getitem__(self, key: Any) -> Any:
        raise KeyError(key)

    def __contains__(self, key: Any) -> bool:
        raise OverflowError("contains")

    def __eq__(self, other: object) -> bool:
        raise NotImplementedError("eq")

    __hash__ = object.__hash__


@raising(one)
def in_getattr(x: Tensor) -> Any:
    return x * Odd().missing


@raising(one)
def attribute_error_in_getattr(x: Tensor) -> Any:
    return x * Odd().soft


@raising(one)
def in_property(x: Tensor) -> Any:
    return x + Odd().broken


@raising(one)
def in_operator(x: Tensor) -> Any:
    y = x + 1
    return Odd() + y


@raising(one)
def in_len(x: Tensor) -> Any:
    return x * len(Odd())


@raising(one)
def in_iter(x: Tensor) -> Any:
    for item in Odd():
        x = x + item
    return x


@raising(one)
def in_bool(x: Tensor) -> Any:
    return x if not Odd() else -x


@raising(one)
def in_call(x: Tensor) -> Any:
    return Odd()(x)


@raising(one)
def in_getitem(x: Tensor) -> Any:
    return x + Odd()["k"]


@raising(one)
def in_contains_and_eq(x: Tensor) -> Any:
    try:
        return 3 in Odd()
    except OverflowError:
        return Odd() == x


@raising(one)
def in_constructor(x: Tensor) -> Any:
    class Strict:
        def __new__(cls, *args: Any) -> Any:
            return super().__new__(cls)

        def __init__(self, v: Tensor) -> None:
            self.v = v.reshape(5, 5)

    return Strict(x)


@raising(one)
def in_with_body(x: Tensor) -> Any:
    with torch.no_grad():
        y = x + 1
        raise Refused(y.dim())


@raising(one)
def in_context_manager(x: Tensor) -> Any:
    @contextlib.contextmanager
    def managed() -> Iterator[None]:
        try:
            yield
        except KeyError as error:
            raise Refused(2) from error

    with managed():
        return x + {}["nothing"]


@raising(one)
def in_exit(x: Tensor) -> Any:
    class Leaving:
        def __enter__(self) -> None: ...

        def __exit__(self, *details: Any) -> None:
            raise RuntimeError("while leaving")

    with Leaving():
        return x.reshape(4, 4)


@raising(one)
def reraised(x: Tensor) -> Any:
    try:
        return _first(x)
    except RuntimeError:
        x = x + 1
        raise


@raising(one)
def raised_from(x: Tensor) -> Any:
    try:
        return {}["k"] + x
    except KeyError as error:
        raise ValueError("from a key") from error


@raising(one)
def raised_from_none(x: Tensor) -> Any:
    try:
        return [][0] + x
    except IndexError:
        raise ValueError("alone") from None


@raising(one)
def during_handling(x: Tensor) -> Any:
    try:
        return x.view(9)
    except RuntimeError:
        return x.no_such_method()  # type: ignore[attr-defined]


@raising(one)
def in_finally(x: Tensor) -> Any:
    try:
        x = x + 1
        raise ValueError("first")
    finally:
        x = x * 2
        int("second")


@raising(one)
def passes_finally(x: Tensor) -> Any:
    try:
        return x[10]
    finally:
        x = x + 1


@raising(one)
def exception_group(x: Tensor) -> Any:
    errors: list[Exception] = []
    for action in (lambda: x.view(2), lambda: {}["k"], lambda: 1 / 0):
        try:
            action()
        except Exception as error:
            errors.append(error)
    raise ExceptionGroup("several", errors)


@raising(one)
def rest_of_group(x: Tensor) -> Any:
    try:
        raise ExceptionGroup("mixed", [ValueError("v"), TypeError("t")])
    except* ValueError:
        x = x + 1
    return x


@raising(one)
def with_notes(x: Tensor) -> Any:
    error = Refused(6)
    error.add_note("first note")
    error.add_note("second\nnote")
    raise error


@raising(one)
def key_error(x: Tensor) -> Any:
    table = {"a": 1}
    return x * table["b"]


@raising(lambda: (torch.ones(3), 4), good=lambda: (torch.ones(3), 2))
def assertion(x: Tensor, n: int) -> Any:
    y = x * n
    assert n < 3, f"{n} is too large for {tuple(y.shape)}"
    return y


@raising(lambda: (torch.ones(3), 4), good=lambda: (torch.ones(3), 2))
def user_exception(x: Tensor, n: int) -> Any:
    if n > 3:
        raise Refused(n)
    return x * n


@raising(one)
def exception_class_without_call(x: Tensor) -> Any:
    raise LookupError


@raising(one)
def raising_no_exception(x: Tensor) -> Any:
    raise x  # type: ignore[misc]


@raising(one)
def recursion_error(x: Tensor) -> Any:
    return recursion_error(x) + 1


@raising(lambda: ())
def missing_argument(x: Tensor) -> Any:
    return x


@raising(lambda: (torch.ones(1), 2, 3), good=lambda: (torch.ones(1),))
def too_many_arguments(x: Tensor) -> Any:
    return x + 1


def _strict(x: Tensor, *, n: int) -> Tensor:
    return x * n


@raising(one)
def missing_keyword_in_callee(x: Tensor) -> Any:
    return _strict(x + 1)


@raising(one)
def unknown_keyword_in_callee(x: Tensor) -> Any:
    return _strict(x, n=1, m=2)  # type: ignore[call-arg]


@raising(one)
def not_callable(x: Tensor) -> Any:
    number = 5
    return number(x)  # type: ignore[operator]


@raising(one)
def unpack_error(x: Tensor) -> Any:
    a, b = x, x + 1, x + 2  # type: ignore[misc]
    return a + b


@raising(one)
def name_error_with_suggestion(x: Tensor) -> Any:
    value = x + 1
    return valve  # type: ignore[name-defined] # noqa: F821


@raising(one)
def attribute_error_with_suggestion(x: Tensor) -> Any:
    return Refused(1).codes + x  # type: ignore[attr-defined]


@raising(one)
def unbound_local(x: Tensor) -> Any:
    if x.dim() == 5:
        late = x
    return late


@raising(one)
def long_expression_over_lines(x: Tensor) -> Any:
    return (
        x.sin()
        + x.cos()
        * (
            x.view(1, 3)
            @ x.view(
                1,
                3,
            )
        )
        - 1
    )


@raising(one)
def several_operators_on_a_line(x: Tensor) -> Any:
    return (x + 1) * (x - 2) @ torch.ones(4) + x


@raising(one)
def text_and_tensor(x: Tensor) -> Any:
    return x + "text"


@raising(one)
def in_sort_key(x: Tensor) -> Any:
    def key(n: int) -> int:
        return 1 // n

    return x * sorted([2, 1, 0], key=key)[0]


@raising(one)
def in_map_and_lambda(x: Tensor) -> Any:
    return list(map(lambda n: x / n if n else undefined, (1, 0)))  # noqa: F821


@raising(one)
def through_partial_and_wraps(x: Tensor) -> Any:
    def checked(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        return wrapper

    @checked
    def inner(v: Tensor, n: int) -> Any:
        return v.view(n, n)

    return functools.partial(inner, n=2)(x)


@raising(one)
def through_lru_cache(x: Tensor) -> Any:
    @functools.lru_cache
    def table(n: int) -> int:
        return 1 // n

    return x * table(1) * table(0)


@raising(one)
def through_no_grad_decorator(x: Tensor) -> Any:
    @torch.no_grad()
    def inner(v: Tensor) -> Tensor:
        return v.view(8)

    return inner(x)


@raising(one)
def in_nested_module(x: Tensor) -> Any:
    return NET(x) + 1


@raising(one)
def in_module_hook(x: Tensor) -> Any:
    return HOOKED(x)


@raising(one)
def missing_module_attribute(x: Tensor) -> Any:
    return NET.head(x)


@raising(one)
def inside_functional_layer(x: Tensor) -> Any:
    return F.cross_entropy(x, torch.ones(2, dtype=torch.long))


@raising(one)
def inside_einsum(x: Tensor) -> Any:
    return torch.einsum("ij,jk->ik", x, x)


@raising(one)
def inside_super_chain(x: Tensor) -> Any:
    class Base:
        def run(self, v: Tensor) -> Tensor:
            return v.squeeze().view(2, 2)

    class Middle(Base):
        def run(self, v: Tensor) -> Tensor:
            return super().run(v + 1)

    class Last(Middle):
        def run(self, v: Tensor) -> Tensor:
            return super().run(v * 2)

    return Last().run(x)


@raising(one)
def in_class_body(x: Tensor) -> Any:
    class Broken:
        size = 3
        value = size // 0

    return Broken.value + x


@raising(one)
def in_match_statement(x: Tensor) -> Any:
    match {"op": "div", "by": 0}:
        case {"op": "div", "by": by}:
            return x * (1 // by)
    return x


@raising(one)
def in_formatted_string(x: Tensor) -> Any:
    return f"{x.dim()} and {1 // 0:>3}"


@raising(one)
def after_native_part(x: Tensor) -> Any:
    total = x.sum().item()
    return x.view(int(total) + 1)


@raising(one)
def import_error(x: Tensor) -> Any:
    from math import no_such_name  # type: ignore[attr-defined]

    return no_such_name(x)


@raising(one)
def from_compiled_source(x: Tensor) -> Any:
    space: dict[str, Any] = {}
    exec("def inner(v):\n    return v.view(11)\n", space)
    return space["inner"](x)


@raising(one)
def stored_exception_raised_again(x: Tensor) -> Any:
    kept: Exception | None = None
    try:
        _third(x)
    except RuntimeError as error:
        kept = error
    x = x + 1
    assert kept is not None
    raise kept


@raising(one)
def traceback_replaced(x: Tensor) -> Any:
    try:
        _first(x)
    except RuntimeError as error:
        raise error.with_traceback(None)


@raising(one)
def system_exit(x: Tensor) -> Any:
    raise SystemExit(3)


@raising(one)
def keyboard_interrupt(x: Tensor) -> Any:
    x = x + 1
    raise KeyboardInterrupt
