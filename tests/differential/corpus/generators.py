"""Generators, iterators, context managers and exceptions."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import Any

import torch
from torch import Tensor

from ..support.case import Corpus, one, t

case = Corpus()

STRICT = False


def _steps(x: Tensor, n: int) -> Iterator[Tensor]:
    for i in range(n):
        x = x + i
        yield x


@case(one)
def loop_over_generator(x: Tensor) -> Tensor:
    total = x
    for step in _steps(x, 4):
        total = total * step
    return total


@case(one)
def list_of_generator(x: Tensor) -> list[Tensor]:
    return list(_steps(x, 3))


@case(one)
def collected_generators(x: Tensor) -> tuple[tuple[Tensor, ...], list[Tensor], bool]:
    parts = (x, x + 1, x * 2)
    lazily = tuple(torch.relu(part) - 1 for part in parts)
    mapped = list(part for part in map(torch.neg, lazily))  # noqa: C400
    nested = tuple(sum(part for part in parts) + part for part in mapped)
    return nested, mapped, all(part.dim() == x.dim() for part in nested)


@case(one)
def next_of_generator(x: Tensor) -> Tensor:
    steps = _steps(x, 2)
    first = next(steps)
    second = next(steps)
    third = next(steps, None)
    return first * second + (third is None)


@case(one)
def exhausted_generator(x: Tensor) -> Tensor:
    steps = _steps(x, 1)
    next(steps)
    try:
        next(steps)
    except StopIteration as stop:
        return x + (stop.value is None)
    return x


@case(one)
def generator_return_value(x: Tensor) -> Tensor:
    def counting() -> Generator[Tensor, None, int]:
        yield x
        yield x * 2
        return 7

    def outer() -> Generator[Tensor, None, None]:
        got = yield from counting()
        yield x + got

    return torch.stack(list(outer())).sum(0)


@case(one)
def generator_send(x: Tensor) -> Tensor:
    def accumulate() -> Generator[Tensor, Tensor | None, None]:
        total = x
        while True:
            received = yield total
            if received is None:
                return
            total = total + received

    gen = accumulate()
    next(gen)
    gen.send(x * 2)
    return gen.send(x * 3)


@case(one)
def generator_throw(x: Tensor) -> Tensor:
    def guarded() -> Generator[Tensor, None, None]:
        try:
            yield x
        except ValueError as error:
            yield x + len(str(error))

    gen = guarded()
    next(gen)
    return gen.throw(ValueError("four"))


@case(one)
def generator_close(x: Tensor) -> tuple[Tensor, list[str]]:
    log: list[str] = []

    def closing() -> Generator[Tensor, None, None]:
        try:
            yield x
            yield x
        finally:
            log.append("closed")

    gen = closing()
    y = next(gen)
    gen.close()
    return y + 1, log


@case(one)
def generator_pipeline(x: Tensor) -> Tensor:
    def doubled(items: Iterator[Tensor]) -> Iterator[Tensor]:
        for item in items:
            yield item * 2

    def odd(items: Iterator[Tensor]) -> Iterator[Tensor]:
        for index, item in enumerate(items):
            if index % 2:
                yield item

    return sum(odd(doubled(_steps(x, 5))))  # type: ignore[return-value]


@case(one)
def recursive_generator(x: Tensor) -> Tensor:
    def leaves(tree: Any) -> Iterator[int]:
        if isinstance(tree, list):
            for item in tree:
                yield from leaves(item)
        else:
            yield tree

    return x * sum(leaves([1, [2, [3, 4]], 5]))


@case(lambda: (iter([t(3), t(3)]),), expect="any")
def iterator_argument(items: Iterator[Tensor]) -> Tensor:
    return next(items) + next(items)


@case(lambda: ((t(3) for _ in range(2)),), expect="any")
def generator_argument(items: Iterator[Tensor]) -> Tensor:
    return sum(items)  # type: ignore[return-value]


@case(one, expect="any")
def returns_generator(x: Tensor) -> Iterator[Tensor]:
    return (x * i for i in range(3))


class Countdown:
    """An iterator written as a class."""

    def __init__(self, start: int) -> None:
        self.n = start

    def __iter__(self) -> Countdown:
        return self

    def __next__(self) -> int:
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n


@case(one)
def user_iterator(x: Tensor) -> Tensor:
    for n in Countdown(4):
        x = x + n
    return x * sum(Countdown(3)) + len(list(Countdown(2)))


@case(one)
def iter_with_sentinel(x: Tensor) -> Tensor:
    items = [3, 2, 1, 0, 9]
    values = list(iter(lambda: items.pop(0), 0))
    return x * len(values) + items[0]


class Traced:
    """A context manager that notes what happens."""

    def __init__(self, log: list[str], swallow: bool = False) -> None:
        self.log = log
        self.swallow = swallow

    def __enter__(self) -> Traced:
        self.log.append("enter")
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self.log.append("exit" if kind is None else kind.__name__)
        return self.swallow


@case(one)
def with_user_manager(x: Tensor) -> tuple[Tensor, list[str]]:
    log: list[str] = []
    with Traced(log) as outer, Traced(log):
        x = x * len(outer.log)
    return x, log


@case(one)
def with_swallows_exception(x: Tensor) -> tuple[Tensor, list[str]]:
    log: list[str] = []
    with Traced(log, swallow=True):
        x = x + 1
        raise ValueError("gone")
    return x * 2, log


@case(one)
def with_return_inside(x: Tensor) -> tuple[Tensor, list[str]]:
    log: list[str] = []
    with Traced(log):
        return x + 1, log


@case(one)
def with_break_inside(x: Tensor) -> tuple[Tensor, list[str]]:
    log: list[str] = []
    for i in range(3):
        with Traced(log):
            if i == 1:
                break
            x = x + 1
    return x, log


@contextlib.contextmanager
def _scaled(x: Tensor, log: list[str]) -> Iterator[Tensor]:
    log.append("in")
    try:
        yield x * 2
    finally:
        log.append("out")


@case(one)
def with_contextmanager(x: Tensor) -> tuple[Tensor, list[str]]:
    log: list[str] = []
    with _scaled(x, log) as y:
        z = y + 1
    return z, log


@case(one)
def with_library_managers(x: Tensor) -> Tensor:
    with contextlib.suppress(KeyError):
        x = x + 1
        {}["missing"]
    with contextlib.nullcontext(3) as n, contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.nullcontext())
        x = x * n
    return x


@case(lambda: (t(3, grad=True),), grad=True)
def with_no_grad(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        frozen = x * 2
    return frozen, x * frozen


@case(lambda: (t(3, grad=True),), grad=True)
def with_enable_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        with torch.enable_grad():
            y = x * 3
        z = y * 2
    return y + z


@case(lambda: (t(3, grad=True), False), again=lambda: (t(3, grad=True), True))
def with_set_grad_enabled(x: Tensor, on: bool) -> Tensor:
    with torch.set_grad_enabled(on):
        return x.sin()


@case(lambda: (t(3, grad=True),))
def no_grad_decorator(x: Tensor) -> Tensor:
    @torch.no_grad()
    def inner(v: Tensor) -> Tensor:
        return v * 2

    return inner(x)


@case(lambda: (t(3),))
def with_inference_mode(x: Tensor) -> Tensor:
    with torch.inference_mode():
        y = x + 1
    return y


@case(lambda: (t(3, 4), t(4, 5)))
def with_autocast(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = x @ y
        with torch.autocast("cpu", enabled=False):
            w = x @ y
    return z, w


@case(lambda: (t(3, 4, grad=True), t(4, 5, grad=True)), grad=True)
def with_autocast_and_gradients(x: Tensor, y: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ y).float().softmax(-1)


@case(one)
def grad_mode_restored_after_exception(x: Tensor) -> tuple[Tensor, bool]:
    try:
        with torch.no_grad():
            raise RuntimeError("inside")
    except RuntimeError:
        pass
    return x + 1, torch.is_grad_enabled()


@case(one, expect="any")
def switch_grad_mode_for_good(x: Tensor) -> Tensor:
    torch.set_grad_enabled(False)
    return x * 2


@case(one)
def try_except(x: Tensor) -> Tensor:
    try:
        x = x + 1
        int("no")
    except (TypeError, ValueError) as error:
        x = x * len(error.args)
    else:
        x = x - 100
    finally:
        x = x + 0.5
    return x


@case(one)
def try_else(x: Tensor) -> Tensor:
    try:
        y = x * 2
    except ValueError:
        return x
    else:
        y = y + 1
    return y


@case(one)
def finally_overrides_return(x: Tensor) -> Tensor:
    def inner() -> Tensor:
        try:
            return x
        finally:
            return x + 1  # noqa: B012

    return inner()


@case(one)
def finally_in_loop(x: Tensor) -> Tensor:
    for i in range(4):
        try:
            if i == 1:
                continue
            if i == 3:
                break
            x = x + i
        finally:
            x = x * 2
    return x


@case(one)
def nested_handlers(x: Tensor) -> tuple[Tensor, list[str]]:
    log = []
    try:
        try:
            raise KeyError("k")
        except KeyError as first:
            log.append(repr(first))
            raise ValueError("v") from first
        finally:
            log.append("cleanup")
    except ValueError as second:
        log.append(repr(second.__cause__))
    return x + len(log), log


@case(one)
def bare_reraise(x: Tensor) -> Tensor:
    def inner() -> None:
        try:
            raise LookupError("deep")
        except LookupError:
            raise

    try:
        inner()
    except LookupError as error:
        return x * len(str(error))
    return x


class Refused(Exception):
    """An exception with its own fields."""

    def __init__(self, code: int, *, hint: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.hint = hint


@case(one)
def user_exception(x: Tensor) -> Tensor:
    try:
        raise Refused(4, hint="abc")
    except Refused as error:
        return x * error.code + len(error.hint)


@case(one, change=lambda: globals().update(STRICT=True))
def exception_depends_on_global(x: Tensor) -> Tensor:
    def check(v: Tensor) -> Tensor:
        if STRICT:
            raise Refused(1)
        return v

    try:
        return check(x)
    except Refused:
        return -x


@case(one, expect="any")
def uncaught_exception(x: Tensor) -> Tensor:
    y = x + 1
    raise Refused(y.dim(), hint="not caught")


@case(one, expect="any")
def uncaught_with_cause(x: Tensor) -> Tensor:
    try:
        {}["key"]
    except KeyError as error:
        raise RuntimeError("wrapped") from error
    return x


@case(lambda: (t(3, 4), t(3, 4)), expect="any")
def uncaught_shape_error(x: Tensor, y: Tensor) -> Tensor:
    return x @ y


@case(lambda: (t(3, 4), t(3, 4)))
def caught_shape_error(x: Tensor, y: Tensor) -> Tensor:
    try:
        return x @ y
    except RuntimeError:
        return x @ y.t()


def _definite(flip: bool) -> Tensor:
    base = t(3, 3)
    base = base @ base.t() + torch.eye(3)
    return -base if flip else base


@case(lambda: (_definite(False),), again=lambda: (_definite(True),), expect="any")
def operation_fails_only_for_some_data(x: Tensor) -> Tensor:
    y = x * 2
    try:
        return torch.linalg.cholesky(y)
    except torch.linalg.LinAlgError:
        return torch.zeros(3, 3) + y


@case(one)
def exception_group(x: Tensor) -> tuple[Tensor, list[str]]:
    log = []
    try:
        raise ExceptionGroup("many", [ValueError("a"), KeyError("b"), ValueError("c")])
    except* ValueError as group:
        log.append(f"{len(group.exceptions)} values")
    except* KeyError as group:
        log.append(f"{len(group.exceptions)} keys")
    return x + len(log), log


@case(one, expect="any")
def exception_group_partly_handled(x: Tensor) -> Tensor:
    try:
        raise ExceptionGroup("many", [ValueError("a"), ExceptionGroup("in", [OSError("b")])])
    except* ValueError:
        x = x + 1
    return x


@case(one)
def exception_notes(x: Tensor) -> Tensor:
    try:
        error = ValueError("base")
        error.add_note("more")
        raise error
    except ValueError as caught:
        return x + len(caught.__notes__)


@case(one)
def exception_variable_is_unbound(x: Tensor) -> Tensor:
    error: Any = None
    try:
        raise ValueError("v")
    except ValueError as error:  # noqa: F841
        pass
    try:
        return x + error
    except UnboundLocalError:
        return x


@case(one)
def exceptions_from_attributes_and_items(x: Tensor) -> Tensor:
    score = 0
    for action in (
        lambda: x.no_such_name,
        lambda: [1][5],
        lambda: {}["k"],
        lambda: 1 / 0,
        lambda: x + "text",
        lambda: undefined_name,  # type: ignore[name-defined] # noqa: F821
        lambda: x.reshape(7, 7),
        lambda: next(iter([])),
    ):
        try:
            action()
        except Exception as error:
            score += len(type(error).__name__)
    return x * score


@case(one)
def context_is_kept(x: Tensor) -> tuple[Tensor, str]:
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")  # noqa: B904
    except ValueError as error:
        return x, f"{error!r} during {error.__context__!r}"


@case(one)
def stop_iteration_through_for(x: Tensor) -> Tensor:
    class Short:
        def __iter__(self) -> Iterator[int]:
            return iter((1, 2))

    a, b = Short()
    for n in Short():
        x = x + n
    return x + a * b


@case(one)
def exception_with_traceback_object(x: Tensor) -> Tensor:
    try:
        raise ValueError("v")
    except ValueError as error:
        depth = 0
        trace = error.__traceback__
        while trace is not None:
            depth += 1
            trace = trace.tb_next
        return x * depth


@case(one)
def group_of_one(x: Tensor) -> Any:
    log = []
    try:
        raise ValueError("plain")
    except* (ValueError, TypeError) as group:
        log.append(repr(group))
    try:
        log.append("nothing")
    except* OSError:
        log.append("never")
    return x + len(log), log


@case(one)
def group_within_a_group(x: Tensor) -> Any:
    log = []
    try:
        try:
            inner = ExceptionGroup("in", [KeyError("k"), ValueError("v")])
            raise ExceptionGroup("out", [inner, TypeError("t")])
        except* ValueError as group:
            log.append(repr(group))
            raise OSError("new") from None
    except ExceptionGroup as rest:
        log.append(type(rest).__name__)
        log.append(repr(rest.message))
    return x * len(log), log


@case(one)
def shape_error_in_a_generator(x: Tensor) -> Any:
    def views() -> Any:
        for rows in (2, 3, 5):
            try:
                yield x.view(rows, -1)
            except RuntimeError as error:
                yield len(str(error))

    first, *rest = views()
    return first, rest
