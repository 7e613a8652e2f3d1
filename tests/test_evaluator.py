"""The frame evaluator is exact: handed over anywhere, interrupted, traced, nested, it is CPython.

CPython's own tests under the evaluator are run by ``tools/test_cpython.py``.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import dis
import gc
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import pytest

import stator
from stator import _stator
from stator import _testing as testing

Case = Callable[[Any], Any]


# -- hand-over at every instruction boundary -----------------------------------------------------


class Manager:
    """A context manager that logs, and swallows `KeyError`."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def __enter__(self) -> Manager:
        self.log.append("enter")
        return self

    def __exit__(self, kind: Any, error: Any, tb: Any) -> bool:
        self.log.append(("exit", kind and kind.__name__, tb and tb.tb_lineno))
        return kind is KeyError


def loops(token: Any) -> Any:
    total = 0
    for i in range(5):
        if i == 3:
            continue
        j = i
        while j:
            total += j * 2
            j -= 1
    else:
        total = -total
    return total, [token] * 2, not total


def try_finally(token: Any) -> Any:
    log = []
    for i in (0, 1, 2):
        try:
            try:
                log.append(10 // i)
            except ZeroDivisionError as error:
                log.append(repr(error))
                continue
            finally:
                log.append("inner")
        finally:
            log.append(token)
    return log


def uncaught(token: Any) -> Any:
    try:
        {}[token]
    except KeyError as error:
        raise ValueError("wrapped") from error
    finally:
        token = None


def with_blocks(token: Any) -> Any:
    log: list[Any] = []
    with Manager(log) as manager, Manager(log):
        manager.log.append(token)
        raise KeyError(1)
    with Manager(log):
        return log


def generators(token: Any) -> Any:
    def inner(n: int) -> Iterator[Any]:
        try:
            for i in range(n):
                got = yield i, token
                if got:
                    yield got
        finally:
            yield "finally"

    def outer() -> Any:
        result = yield from inner(2)
        yield result
        return "done"

    first = outer()
    items = [next(first), first.send("sent"), *first]
    second = inner(3)
    next(second)
    try:
        items.append(second.throw(ValueError("thrown")))
        next(second)
    except ValueError as error:
        items.append(str(error))
    return items, list(x for x in inner(1))


def comprehensions(token: Any) -> Any:
    n = 3
    return (
        [x + n for x in range(4) if x % 2],
        {x: (y, token) for x in "ab" for y in range(2)},
        {x % 2 for x in range(5)},
        tuple(x for x in (1, *range(2), token)),
    )


def closures(token: Any) -> Any:
    count = 0

    def step(by: int = 1, *, times: int = 1, **rest: Any) -> int:
        nonlocal count
        count += by * times
        return count + len(rest)

    f = lambda *args: step(*args, **{"times": 2, "x": token})  # noqa: E731, F821
    del token
    return step(), step(2), f(3), step(by=1, times=3), count


def calls(token: Any) -> Any:
    text = "abc"
    return (
        text.upper(),
        max([1, 3, 2], key=lambda v: -v),
        sorted([3, 1, 2], key=int, reverse=True),
        "{}-{b}".format(1, b=2),
        f"{text!r:>6}{token is None}",
        dict(a=1, **{"b": 2}),
        (lambda *a, **k: (a, k))(*[1, 2], c=3, **{"d": 4}),
    )


def classes(token: Any) -> Any:
    class Base:
        x: int = 1

        def method(self) -> Any:
            return [self.x]

    class Derived(Base):
        y = Base.x

        def method(self) -> Any:
            return [*super().method(), __class__.__name__, self.y]  # type: ignore[name-defined]

    return Derived().method(), Derived.__mro__[1].__annotations__


def patterns(token: Any) -> Any:
    def match(value: Any) -> Any:
        match value:
            case {"k": [x, *rest], **others}:
                return x, rest, others
            case str() | bytes() as text:
                return text
            case complex(real=r, imag=0):
                return r
            case (a, b) if a == b:
                return "pair"
            case _:
                return None

    return [match(v) for v in ({"k": [1, 2, 3], "z": 0}, "s", 2 + 0j, (1, 1), (1, 2), token)]


def exception_groups(token: Any) -> Any:
    log: list[Any] = []
    try:
        try:
            raise ExceptionGroup("g", [ValueError(1), TypeError(2), KeyError(3)])
        except* ValueError as group:
            log.append(group.exceptions)
        except* TypeError:
            raise
    except ExceptionGroup as rest:
        log.append([repr(e) for e in rest.exceptions])
    return repr(log), token


def assignments(token: Any) -> Any:
    a, (b, *c), d = 1, (2, 3, 4), [token]
    d[0:1] = [5, 6]
    d[0] += 1
    del d[1]
    x = d is not None and a or b
    y = a if b < 3 <= 3 else c
    return a, b, c, d, x, y, -a, ~b, +a, not c, a in (1,), b not in c


async def agenerator() -> Any:
    for i in range(2):
        await asyncio.sleep(0)
        yield i


def coroutines(token: Any) -> Any:
    class AsyncManager:
        async def __aenter__(self) -> Any:
            return token

        async def __aexit__(self, *args: Any) -> bool:
            return True

    async def main() -> Any:
        async with AsyncManager() as entered:
            items = [i async for i in agenerator()]
            raise KeyError
        return entered is token, items

    coroutine = main()
    while True:
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value


CASES: list[Case] = [
    loops,
    try_finally,
    uncaught,
    with_blocks,
    generators,
    comprehensions,
    closures,
    calls,
    classes,
    patterns,
    exception_groups,
    assignments,
    coroutines,
]


def outcome(case: Case, token: Any) -> tuple[str, str]:
    """What a call returns or raises, as text without addresses of fresh objects."""
    try:
        return "returned", repr(case(token))
    except Exception:
        return "raised", traceback.format_exc()


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def units(code: CodeType) -> list[int]:
    return [instruction.offset // 2 for instruction in dis.get_instructions(code)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_evaluates_like_cpython(case: Case) -> None:
    token = object()
    expected = outcome(case, token)
    with testing.evaluate_everything() as counts:
        assert outcome(case, token) == expected
    assert counts.instructions > len(units(case.__code__)) // 2


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_hands_over_at_every_boundary(case: Case) -> None:
    token = object()
    expected = outcome(case, token)
    outcome(case, token)
    gc.collect()
    references = sys.getrefcount(token)
    for code in codes(case.__code__):
        for unit in units(code):
            with testing.hand_over_at(code, unit), testing.evaluate_everything():
                got = outcome(case, token)
            assert got == expected, (code.co_name, unit)
    gc.collect()
    assert sys.getrefcount(token) == references


@pytest.mark.parametrize("every", [1, 2, 3, 7, 50])
def test_hands_over_every_few_instructions(every: int) -> None:
    token = object()
    expected = [outcome(case, token) for case in CASES]
    with testing.hand_over_every(every), testing.evaluate_everything():
        got = [outcome(case, token) for case in CASES]
    assert got == expected


def test_keeps_no_references() -> None:
    class Node:
        pass

    def body() -> weakref.ref[Node]:
        node = Node()
        other = [node, {"n": node}]
        with contextlib.suppress(ValueError):
            raise ValueError(other)
        (lambda **kwargs: kwargs)(n=node)
        return weakref.ref(node)

    gc.collect()
    gc.disable()
    try:
        with testing.evaluate_everything():
            reference = body()
        assert reference() is None
    finally:
        gc.enable()


# -- frames as others see them -------------------------------------------------------------------


def frames() -> Any:
    def inner() -> Any:
        frame = sys._getframe()
        chain = []
        while frame and len(chain) < 3:
            chain.append((frame.f_code.co_name, frame.f_lineno - frame.f_code.co_firstlineno))
            frame = frame.f_back  # type: ignore[assignment]
        return chain, sorted(locals())

    value = 3
    chain, names = inner()
    return chain[:2], names, sorted(locals()), value


def test_frame_introspection() -> None:
    expected = frames()
    with testing.evaluate_everything():
        assert frames() == expected
    assert testing.call_evaluated(frames) == expected


def test_collects_garbage_inside_generators() -> None:
    def generator() -> Iterator[int]:
        items = [object()]
        for i in range(50):
            gc.collect(0)
            items.append((items, i, [*items]))
            yield gc.get_count()[0] >= 0 and i

    with testing.evaluate_everything():
        assert list(generator()) == list(range(50))


# -- generators ----------------------------------------------------------------------------------


def test_throw_and_close() -> None:
    log = []

    def generator() -> Iterator[Any]:
        while True:
            try:
                yield len(log)
            except KeyError as error:
                log.append(error.args)
            except GeneratorExit:
                log.append("closed")
                raise

    with testing.evaluate_everything() as counts:
        first = generator()
        assert [next(first), first.throw(KeyError(1)), first.throw(KeyError(2))] == [0, 1, 2]
        first.close()
        with pytest.raises(StopIteration):
            next(first)
        second = generator()
        with pytest.raises(ValueError, match="early"):
            second.throw(ValueError("early"))
        with pytest.raises(ValueError, match="already executing"):
            reentrant: list[Any] = []

            def self_next() -> Iterator[Any]:
                yield next(reentrant[0])

            reentrant.append(self_next())
            next(reentrant[0])
    assert log == [(1,), (2,), "closed"]
    assert counts.frames > 5


def test_handled_exceptions_survive_yields() -> None:
    def generator() -> Iterator[Any]:
        try:
            raise KeyError("inside")
        except KeyError:
            yield repr(sys.exception())
            yield repr(sys.exception())

    with testing.evaluate_everything():
        running = generator()
        items = []
        try:
            raise ValueError("outside")
        except ValueError:
            items.append(next(running))
            items.append(repr(sys.exception()))
        items.append(next(running))
        items.append(repr(sys.exception()))
    assert items == ["KeyError('inside')", "ValueError('outside')", "KeyError('inside')", "None"]


# -- events --------------------------------------------------------------------------------------


def test_interrupts_a_tight_loop() -> None:
    def forever() -> None:
        while True:
            pass

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    started = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt), testing.evaluate_everything():
            forever()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - started < 5


def test_other_threads_run() -> None:
    done = threading.Event()

    def wait() -> int:
        turns = 0
        while not done.is_set():
            turns += 1
        return turns

    with testing.evaluate_everything() as counts:
        thread = threading.Thread(target=lambda: (time.sleep(0.02), done.set()))
        thread.start()
        assert wait() > 0
        thread.join(5)
    assert counts.instructions > 100


def test_what_begins_in_threads_of_others() -> None:
    """Python code with none beneath it, which C code's threads call; what was running there goes on unseen."""
    asked, may_end = threading.Event(), threading.Event()

    def waits() -> None:
        asked.set()
        may_end.wait()
        in_threads.append(sum(x for x in range(3)))

    def ends() -> None:
        may_end.set()
        waiting.join()

    def begins() -> None:
        done = threading.Lock()
        done.acquire()
        _thread.start_new_thread(done.release, ())
        done.acquire()

    def begins_in_python() -> None:
        done = threading.Lock()
        done.acquire()
        _thread.start_new_thread(lambda: done.release(), ())
        done.acquire()

    in_threads: list[int] = []
    waiting = threading.Thread(target=waits)
    waiting.start()
    asked.wait()
    assert not testing.begins_elsewhere(lambda: sorted([2, 1], key=lambda x: -x))
    assert not testing.begins_elsewhere(ends)
    assert in_threads == [3]
    assert not testing.begins_elsewhere(begins)
    assert testing.begins_elsewhere(begins_in_python)
    assert not testing.begins_elsewhere(int)
    assert testing._native.hook_on_top() == "nobody"


def test_only_the_active_thread_is_evaluated() -> None:
    seen = []

    def counted(work: Callable[[], Any]) -> int:
        before = _stator.testing.counts()[0]
        work()
        return _stator.testing.counts()[0] - before

    def body() -> None:
        thread = threading.Thread(target=lambda: seen.append(counted(lambda: [len("")])))
        testing.call_native(thread.start)
        testing.call_native(thread.join)

    assert testing.call_evaluated(lambda: "value") == "value"
    testing.call_evaluated(body)
    assert seen == [0]
    assert counted(lambda: testing.call_evaluated(len, "")) == 0
    assert counted(lambda: None) == 0


def test_suspends() -> None:
    def native() -> int:
        return sum(x for x in range(3))

    def body() -> tuple[int, int, int]:
        before = _stator.testing.counts()[0]
        testing._native.call_native(native)
        during = _stator.testing.counts()[0]
        native()
        return before, during, _stator.testing.counts()[0]

    before, during, after = testing.call_evaluated(body)
    assert before == during < after


def test_asynchronous_exceptions() -> None:
    import ctypes

    class Stop(Exception):
        pass

    def victim() -> None:
        state.append(threading.get_ident())
        with contextlib.suppress(Stop):
            while True:
                pass
        state.append("stopped")

    state: list[Any] = []
    with testing.evaluate_everything():
        thread = threading.Thread(target=victim, daemon=True)
        thread.start()
        while not state:
            time.sleep(0.001)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(state[0]), ctypes.py_object(Stop))
        thread.join(5)
    assert state[1:] == ["stopped"]


def test_trace_function_set_in_the_middle() -> None:
    def callee(x: int) -> int:
        y = x + 1
        return y

    def body(events: list[Any]) -> int:
        def trace(frame: Any, event: str, arg: Any) -> Any:
            line = frame.f_lineno - frame.f_code.co_firstlineno
            events.append((frame.f_code.co_name, event, line))
            return trace

        callee(0)
        sys._getframe().f_trace = trace
        sys.settrace(trace)
        total = callee(1)
        try:
            total //= 0
        except ZeroDivisionError:
            total += 1
        sys.settrace(None)
        return total

    plain: list[Any] = []
    evaluated: list[Any] = []
    old = sys.gettrace()
    try:
        expected = body(plain)
        with testing.evaluate_everything():
            assert body(evaluated) == expected
    finally:
        sys.settrace(old)
    assert evaluated == plain
    assert ("callee", "call", 0) in plain


def test_profile_function() -> None:
    def body() -> int:
        return sum(map(len, ["a", "bc"]))

    def profiled() -> list[tuple[str, str]]:
        events: list[tuple[str, str]] = []
        sys.setprofile(lambda frame, event, arg: events.append((frame.f_code.co_name, event)))
        body()
        sys.setprofile(None)
        return events

    expected = profiled()
    with testing.evaluate_everything():
        assert profiled() == expected


# -- depth ---------------------------------------------------------------------------------------


def test_recursion_limit() -> None:
    def depth(n: int) -> int:
        try:
            return depth(n + 1)
        except RecursionError:
            return n

    with testing.evaluate_everything():
        evaluated = depth(0)
        with pytest.raises(RecursionError, match="maximum recursion depth exceeded"):
            (lambda f: f(f))(lambda f: f(f))
    assert abs(evaluated - depth(0)) <= 2


def in_subprocess(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("threaded", [False, True])
def test_a_raised_recursion_limit_is_safe(threaded: bool) -> None:
    output = in_subprocess(
        f"""
        import sys, threading
        import stator._testing as testing
        sys.setrecursionlimit(200_000)

        def down(n):
            return 0 if n == 0 else 1 + down(n - 1)

        def work():
            print(testing.call_evaluated(down, 100_000))
            print(down(10))

        with testing.evaluate_everything():
            print(down(100_000))
        if {threaded}:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        else:
            work()
        """
    )
    assert output.split() == ["100000", "100000", "10"]


def test_evaluates_to_the_end_of_the_process() -> None:
    output = in_subprocess(
        """
        import atexit
        import stator._testing as testing
        testing.start_evaluating_everything()
        class Late:
            def __del__(self):
                print("deleted", sum(x for x in range(3)))
        late = Late()
        late.self = late
        atexit.register(lambda: print("exit"))
        """
    )
    assert output.splitlines() == ["exit", "deleted 3"]


# -- our own bugs --------------------------------------------------------------------------------


def test_a_panic_is_an_internal_error() -> None:
    def body() -> int:
        return 1

    testing._native.panic_at_next_step()
    with pytest.raises(stator.errors.InternalError, match="Stator has a bug: asked to panic"):
        testing._native.call_evaluated(body)
    assert testing._native.call_evaluated(body) == 1
