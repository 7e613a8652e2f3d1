"""What a signal handler raises arrives, once, whatever Stator is doing at that moment.

`STATOR_SIGNALS=10000` raises so many; by default there are fewer.
"""

from __future__ import annotations

import collections
import ctypes
import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator

RAISED = int(os.environ.get("STATOR_SIGNALS", "400"))
MODEL = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
X = torch.ones(3)
SETTINGS = {"seed": 0}


class Stop(BaseException):
    """A timeout of the user's."""


class Late(ValueError):
    """Another one, of a class that code may expect."""


KINDS = (Stop, Late, KeyboardInterrupt, ValueError, RuntimeError, AttributeError, TimeoutError)


def operations(x: Tensor, n: int) -> Tensor:
    for _ in range(n):
        x = x + 1
    return x


def modules(x: Tensor, n: int) -> Tensor:
    for _ in range(n // 8):
        x = nn.functional.softmax(MODEL(x), -1)
    return x


def breaks(x: Tensor, n: int) -> Tensor:
    for _ in range(n // 10):
        x = x + 1
        stator.graph_break()
        x = x * 1.5
    return x


def reads_data(x: Tensor, n: int) -> Tensor:
    for _ in range(n // 10):
        if x.sum().item() > -1:
            x = x + 1
    return x


def generators(x: Tensor, n: int) -> Tensor:
    return sum((x + k for k in range(n // 2)), x)


def attributes(x: Tensor, n: int) -> Tensor:
    for _ in range(n // 10):
        x = x + getattr(x, "missing", 1) + int(hasattr(x, "nothing"))
    return x


@pytest.fixture
def alarm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def call_until(seconds: float, call: Callable[[], Any]) -> Any:
    """`call()`, with an alarm on the way; it is off afterwards."""
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        result = call()
        signal.setitimer(signal.ITIMER_REAL, 0)
        return result
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.mark.usefixtures("alarm")
@pytest.mark.filterwarnings("ignore::stator.RecompileLimitWarning")
def test_every_exception_of_a_handler_arrives_once() -> None:
    """In recordings, at their ends, in replays, in native calls and behind breaks."""
    raised = 0
    kind: type[BaseException] = Stop
    where = ""

    def handler(number: int, frame: Any) -> None:
        nonlocal raised, where
        raised += 1
        where = "".join(traceback.format_stack(frame)[-8:])
        raise kind("from the handler")

    # What others have left behind would call back wherever the collector comes by.
    gc.collect()
    signal.signal(signal.SIGALRM, handler)
    functions = [operations, modules, breaks, reads_data, generators, attributes]
    compiled = [(fn, stator.compile(fn)) for fn in functions]
    compiled += [
        (modules, stator.compile(modules, dynamic=True)),
        (operations, stator.compile(operations, backend="fx")),
        (breaks, stator.compile(breaks, is_compiling=True)),
    ]
    chance = random.Random(SETTINGS["seed"])
    lost: list[str] = []
    arrived = 0
    while raised < RAISED:
        fn, ours = chance.choice(compiled)
        if chance.random() < 0.3:
            stator.reset()
        kind = chance.choice(KINDS)
        count = 40 + chance.randrange(5)
        before, caught, result = raised, 0, None
        with stator.config.patch(skip_unprofitable=chance.random() < 0.5):
            try:
                seconds = chance.random() ** 3 * 0.01 + 1e-5
                result = call_until(seconds, lambda ours=ours, count=count: ours(X, count))
            except BaseException as error:
                if type(error) is not kind or str(error) != "from the handler":
                    raise
                caught = 1
        arrived += caught
        if raised - before != caught:
            lost.append(f"{fn.__name__}, handled at\n{where}")
        elif result is not None:
            assert torch.equal(result, fn(X, count))
    assert not lost, "\n".join(lost)
    assert arrived == raised


def test_every_exception_of_another_thread_arrives_once() -> None:
    """`PyThreadState_SetAsyncExc`, as libraries for timeouts call it: in recordings, replays, behind breaks."""
    send = ctypes.pythonapi.PyThreadState_SetAsyncExc
    functions = [operations, modules, breaks, reads_data, generators, attributes]
    compiled = [(fn, stator.compile(fn)) for fn in functions]
    chance = random.Random(4)
    main, kind, seconds = threading.get_ident(), KINDS[0], 0.0
    due, sent = threading.Event(), threading.Event()
    ends = False

    def work() -> None:
        while due.wait() and not ends:
            due.clear()
            time.sleep(seconds)
            assert send(ctypes.c_ulong(main), ctypes.py_object(kind)) == 1
            sent.set()

    def wait() -> None:
        while not sent.is_set():
            time.sleep(1e-4)

    def call(ours: Callable[..., Any]) -> None:
        due.set()
        ours(X, 40 + chance.randrange(5))
        wait()
        time.sleep(1e-4)  # it has arrived by now

    interval, thread = sys.getswitchinterval(), threading.Thread(target=work)
    sys.setswitchinterval(1e-4)
    thread.start()
    lost: collections.Counter[str] = collections.Counter()
    try:
        for _ in range(RAISED // 4):
            fn, ours = chance.choice(compiled)
            if chance.random() < 0.7:
                stator.reset()
            kind, seconds = chance.choice(KINDS), chance.random() ** 2 * 0.01
            sent.clear()
            try:
                call(ours)
                lost[fn.__name__] += 1
            except BaseException as error:
                if type(error) is not kind:
                    raise
            wait()
    finally:
        sys.setswitchinterval(interval)
        ends = True
        due.set()
        thread.join()
    assert not lost


@pytest.mark.usefixtures("alarm")
def test_a_handler_that_the_program_handles_leaves_no_trace() -> None:
    """What the program does then, no other call does."""
    raised, handled = 0, 0

    def handler(number: int, frame: Any) -> None:
        nonlocal raised
        raised += 1
        raise Late

    def careful(x: Tensor, n: int, breaks: bool) -> Tensor:
        nonlocal handled
        try:
            x = operations(x, n)
        except:  # noqa: E722
            handled += 1
            return -x
        if breaks:
            stator.graph_break()
        return operations(x, n)

    def plain(x: Tensor, n: int) -> Tensor:
        return operations(operations(x, n), n)

    signal.signal(signal.SIGALRM, handler)
    compiled = stator.compile(careful)
    chance = random.Random(1)
    for _ in range(RAISED // 4):
        if chance.random() < 0.3:
            stator.reset()
        count, odd = 30 + chance.randrange(3), chance.random() < 0.5
        before, caught = (raised, handled), 0
        try:
            seconds = chance.random() ** 2 * 0.01 + 1e-5
            call_until(seconds, lambda count=count, odd=odd: compiled(X, count, odd))
        except Late:
            caught = 1
        assert raised - before[0] == handled - before[1] + caught
        assert torch.equal(compiled(X, count, odd), plain(X, count))


def heavy(x: Tensor, n: int) -> Tensor:
    for _ in range(n):
        x = (x @ x).tanh()
    return x


def within_one_trace(x: Tensor, n: int) -> Any:
    try:
        return heavy(x, n)
    except Late:
        return "too late"


def with_its_own_timer(x: Tensor, n: int) -> Any:
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    try:
        return heavy(x, n)
    except Late:
        return "too late"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def in_a_frame_outside(x: Tensor, n: int) -> Any:
    try:
        try:
            return heavy(x, n)
        finally:
            x = x + 1
    except Late:
        return "too late", x[0, 0].item()


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("fn", [within_one_trace, with_its_own_timer, in_a_frame_outside])
def test_a_timer_that_the_function_handles(fn: Callable[..., Any]) -> None:
    """The `try` may lie within one replay, which no handler interrupts."""

    def handler(number: int, frame: Any) -> None:
        raise Late

    signal.signal(signal.SIGALRM, handler)
    x = torch.full((400, 400), 1e-3)
    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False):
        if fn is not with_its_own_timer:
            for _ in range(3):
                compiled(x, 60)
            assert stator.stats(compiled).hits
        for ours in (fn, compiled, compiled, compiled):
            result = call_until(0.01, lambda ours=ours: ours(x, 60))
            assert (result if isinstance(result, str) else result[0]) == "too late"


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_timer_that_calls_nobody_is_no_reason_to_run_natively(handler: signal.Handlers) -> None:
    """Many programs end themselves by an alarm if they take too long."""
    signal.signal(signal.SIGALRM, handler)
    x = torch.full((40, 40), 1e-3)
    compiled = stator.compile(within_one_trace)
    with stator.config.patch(skip_unprofitable=False):
        compiled(x, 6)
        signal.setitimer(signal.ITIMER_REAL, 600)
        compiled(x, 6)
    assert stator.stats(compiled).hits == 1


@pytest.mark.usefixtures("alarm")
def test_interrupts() -> None:
    """Ctrl-C's own handler is written in C."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    compiled = stator.compile(operations)
    chance = random.Random(2)
    arrived = 0
    try:
        for _ in range(50):
            stator.reset()
            try:
                call_until(
                    chance.random() * 0.003 + 1e-5, lambda: operations(compiled(X, 60), 4000)
                )
            except KeyboardInterrupt:
                arrived += 1
    finally:
        signal.signal(signal.SIGINT, before)
    assert arrived == 50


@pytest.mark.usefixtures("alarm")
def test_handlers_run_in_nodes_of_the_users_at_their_end_at_the_latest() -> None:
    """A handler that doesn't raise: it runs, and the call goes on."""
    ran = []
    signal.signal(signal.SIGALRM, lambda number, frame: ran.append(number))
    compiled = stator.compile(operations)
    for _ in range(20):
        count = len(ran)
        while len(ran) == count:
            assert torch.equal(call_until(1e-3, lambda: compiled(X, 50)), operations(X, 50))


def test_other_threads_do_not_defer_the_main_thread() -> None:
    """A compiled function in another thread; signals are the main thread's."""
    stop = threading.Event()
    compiled = stator.compile(operations)

    def work() -> None:
        while not stop.is_set():
            stator.reset()
            compiled(X, 20)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        with warnings.catch_warnings():
            signal.signal(signal.SIGUSR1, lambda number, frame: caught.append(number))
            caught: list[int] = []
            for number in range(20):
                signal.raise_signal(signal.SIGUSR1)
                assert len(caught) == number + 1
    finally:
        stop.set()
        thread.join()
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    # `signal.signal` asks whether this is the main thread: it still is.
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("wraps", [True, False])
def test_a_backend_that_takes_the_exception_for_its_own(wraps: bool) -> None:
    """What comes is the handler's, not what the backend makes of it; one handled before isn't."""

    def handler(number: int, frame: Any) -> None:
        raise Late("from the handler")

    def compile(module: Any, inputs: Any) -> Callable[..., Any]:
        try:
            if interrupts:
                signal.raise_signal(signal.SIGALRM)
            raise LookupError("the backend's own")
        except Exception as error:
            raise RuntimeError("can't compile") from (error if wraps else None)

    interrupts = True
    signal.signal(signal.SIGALRM, handler)
    compiled = stator.compile(operations, backend=compile, when="first_call")
    with pytest.raises(Late, match="from the handler"):
        compiled(X, 3)
    interrupts = False
    try:
        handler(0, None)
    except Late:
        with (
            stator.config.patch(strict=False),
            pytest.warns(stator.BackendFailedWarning, match="can't compile"),
        ):
            assert torch.equal(compiled(X, 4), operations(X, 4))


def test_an_interrupted_import_leaves_nothing_half_done() -> None:
    """The first graph of a process that goes to a backend imports what it needs, for a second or two."""
    program = textwrap.dedent(
        """
        import signal, sys, time
        import torch, stator

        def f(x):
            return (x + 1).relu() * 2

        def handler(number, frame):
            raise TimeoutError("from the handler")

        stator.config.strict = True
        signal.signal(signal.SIGALRM, handler)
        x = torch.ones(3)
        compiled = stator.compile(f, backend="fx", when="first_call", dynamic=True)
        arrived = 0
        signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
        try:
            compiled(x)
            time.sleep(60)
        except TimeoutError as error:
            assert str(error) == "from the handler"
            arrived = 1
        assert arrived
        for _ in range(3):
            assert torch.equal(compiled(x), f(x))
        """
    )
    for seconds in ("0.02", "0.3", "1.0"):
        subprocess.run([sys.executable, "-c", program, seconds], check=True, timeout=120)
