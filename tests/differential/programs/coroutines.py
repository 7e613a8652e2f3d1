"""Coroutines, asynchronous generators and context managers, context variables, contextlib."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import io
import sys
import types
from typing import Any

from torch import Tensor

from ..support.case import Corpus, one, t, two

case = Corpus()
LOG: list[Any] = []
SCALE = 2.0
VAR: contextvars.ContextVar[float] = contextvars.ContextVar("VAR", default=1.0)


def _new_scale() -> None:
    global SCALE
    SCALE = 5.0


def drive(coro: Any) -> Any:
    try:
        while True:
            coro.send(None)
    except StopIteration as stop:
        return stop.value


@types.coroutine
def pause(value: Any) -> Any:
    got = yield value
    return got


async def scaled(x: Tensor) -> Tensor:
    return x * SCALE


@case(one, change=_new_scale)
def awaited(x: Tensor) -> Tensor:
    async def outer() -> Tensor:
        y = await scaled(x)
        return y + 1

    return drive(outer())


@case(one, change=_new_scale)
def awaited_pauses(x: Tensor) -> Any:
    seen = []

    async def outer() -> Tensor:
        a = await pause("first")
        seen.append(a)
        b = await pause(x * SCALE)
        seen.append(b)
        return x + 1

    coro = outer()
    got = [coro.send(None), coro.send(1)]
    try:
        coro.send(2)
    except StopIteration as stop:
        return stop.value, seen, got


@case(one)
def asyncio_run(x: Tensor) -> Any:
    order = []

    async def work(n: int) -> Tensor:
        await asyncio.sleep(0)
        order.append(n)
        return x * n

    async def main() -> list[Tensor]:
        return await asyncio.gather(*(work(i) for i in range(3)))

    return asyncio.run(main()), order


async def ticks(n: int) -> Any:
    try:
        for i in range(n):
            yield i * SCALE
    finally:
        LOG.append("closed")


@case(lambda: (t(3), 3), change=_new_scale, again=lambda: (t(3), 5))
def async_for(x: Tensor, n: int) -> Tensor:
    async def total() -> Tensor:
        y = x
        async for item in ticks(n):
            y = y + item
        return y

    return drive(total())


@case(one)
def async_comprehension(x: Tensor) -> Any:
    async def collect() -> Any:
        values = [x * i async for i in ticks(3) if i > 0]
        table = {i: x + i async for i in ticks(2)}
        return values, table

    return drive(collect())


class Managed:
    def __init__(self, log: list[Any]) -> None:
        self.log = log

    async def __aenter__(self) -> Managed:
        self.log.append("in")
        return self

    async def __aexit__(self, kind: Any, value: Any, tb: Any) -> bool:
        self.log.append(kind and kind.__name__)
        return kind is ValueError


@case(lambda: (t(3), True), again=lambda: (t(3), False))
def async_with(x: Tensor, fail: bool) -> Any:
    log: list[Any] = []

    async def run() -> Any:
        y = x
        async with Managed(log) as m:
            y = y + len(m.log)
            if fail:
                raise ValueError("inside")
            y = y * 3
        return y

    return drive(run()), log


@contextlib.asynccontextmanager
async def opened(x: Tensor) -> Any:
    LOG.append("open")
    try:
        yield x * SCALE
    finally:
        LOG.append("close")


@case(one, change=_new_scale)
def async_manager(x: Tensor) -> Any:
    async def run() -> Any:
        async with opened(x) as y:
            return y + 1

    return drive(run())


@case(one)
def async_stack(x: Tensor) -> Any:
    async def run() -> Any:
        async with contextlib.AsyncExitStack() as stack:
            a = await stack.enter_async_context(opened(x))
            stack.callback(LOG.append, "called")
            b = await stack.enter_async_context(opened(a))
        return a + b

    return drive(run())


@case(one)
def coroutine_closed(x: Tensor) -> Any:
    seen = []

    async def run() -> None:
        try:
            await pause(1)
        finally:
            seen.append(x + 1)

    coro = run()
    coro.send(None)
    coro.close()
    return seen


@case(one)
def coroutine_thrown(x: Tensor) -> Any:
    async def run() -> Tensor:
        y = x
        try:
            await pause(1)
        except KeyError as error:
            y = y * 2
            LOG.append(error.args)
        await pause(2)
        return y

    coro = run()
    first = coro.send(None)
    second = coro.throw(KeyError("thrown"))
    return first, second, drive(coro)


@case(one)
def async_generator_by_hand(x: Tensor) -> Any:
    async def gen() -> Any:
        got = yield x
        LOG.append(got)
        got = yield x * 2
        LOG.append(got)

    g = gen()
    out = []
    out.append(drive(g.asend(None)))
    out.append(drive(g.asend("a")))
    try:
        drive(g.asend("b"))
    except StopAsyncIteration:
        out.append("end")
    drive(g.aclose())
    return out


def _set_var(*_: Any) -> None:
    VAR.set(7.0)


@case(one, change=_set_var)
def context_variable(x: Tensor) -> Any:
    before = VAR.get()
    token = VAR.set(before * 2)
    y = x * VAR.get()
    VAR.reset(token)
    return y + VAR.get(), before


@case(one, change=_set_var)
def context_run(x: Tensor) -> Any:
    ctx = contextvars.copy_context()

    def inside() -> Tensor:
        VAR.set(VAR.get() + 1)
        return x * VAR.get()

    y = ctx.run(inside)
    return y + VAR.get(), ctx[VAR]


@case(lambda: (t(3), "key"), again=lambda: (t(3), "other"))
def exit_stack(x: Tensor, key: str) -> Any:
    log: list[Any] = []
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, "last")
        stack.enter_context(contextlib.suppress(KeyError))
        stack.push(lambda *info: log.append(info[0] and info[0].__name__))
        y = x * 2
        {"key": 1}[key]
        y = y + 1
        log.append("reached")
    return y, log


@case(one)
def stack_moved(x: Tensor) -> Any:
    log: list[str] = []
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, "a")
        kept = stack.pop_all()
    log.append("b")
    kept.close()
    return x + len(log), log


@case(one)
def redirected(x: Tensor) -> Any:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print("shape", tuple(x.shape))
        sys.stdout.write("written")
    return x + 1, out.getvalue()


class Closes:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


RESOURCE = Closes()


@case(one)
def closing(x: Tensor) -> Any:
    with contextlib.closing(RESOURCE) as r, contextlib.nullcontext(4) as n:
        y = x * (r.closed + n)
    return y, RESOURCE.closed


@contextlib.contextmanager
def tagged(name: str) -> Any:
    LOG.append(f"<{name}>")
    try:
        yield name
    except ValueError as error:
        LOG.append(str(error))
    finally:
        LOG.append(f"</{name}>")


@tagged("outer")
@tagged("inner")
def decorated(x: Tensor, fail: bool) -> Tensor | None:
    if fail:
        raise ValueError("no")
    return x * 2


@case(lambda: (t(3), False), again=lambda: (t(3), True))
def nested_decorators(x: Tensor, fail: bool) -> Any:
    return decorated(x, fail), decorated(x + 1, not fail)


@case(one)
def manager_misused(x: Tensor) -> Any:
    @contextlib.contextmanager
    def never() -> Any:
        if x.dim() > 99:
            yield

    try:
        with never():
            pass
    except RuntimeError as error:
        return x + 1, str(error)


class Timed(contextlib.ContextDecorator):
    def __init__(self) -> None:
        self.depth = 0

    def __enter__(self) -> Timed:
        self.depth += 1
        return self

    def __exit__(self, *info: Any) -> bool:
        self.depth -= 10
        return False


TIMED = Timed()


@TIMED
def timed(x: Tensor) -> Tensor:
    return x * TIMED.depth


@case(one)
def decorator_class(x: Tensor) -> Tensor:
    return timed(x) + timed(x)


@case(one)
def suppressed_in_loop(x: Tensor) -> Any:
    done = []
    for i in range(4):
        with contextlib.suppress(ZeroDivisionError, IndexError):
            done.append(6 // i)
            x = x + [1, 2][i]
    return x, done


@case(two)
def exit_raises(x: Tensor, y: Tensor) -> Any:
    class Bad:
        def __enter__(self) -> None: ...

        def __exit__(self, *info: Any) -> None:
            raise LookupError("from exit")

    z = x + y
    with Bad():
        z.missing
