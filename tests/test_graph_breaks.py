"""What ends a trace: the report, `fullgraph=True`, functions that are not to be traced."""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import os
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import stator

X = torch.ones(3)
HERE = Path(__file__)


def reads(x):
    return x * x.sum().tolist()


def outer(x):
    x = x + 1
    return reads(x)


@pytest.fixture
def reports(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The records of the `graph_breaks` log so far, with lines counted from each function's own."""
    monkeypatch.chdir(HERE.parent)
    stator.set_logs(graph_breaks=True)
    caplog.set_level(logging.INFO, "stator")
    return caplog


def line(function: Any) -> int:
    return function.__code__.co_firstlineno


def test_report(reports: Any) -> None:
    """What, why, what to do, and the user's frames with their code."""
    compiled = stator.compile(outer)
    for _ in range(2):
        assert torch.equal(compiled(X), outer(X))
    name = HERE.name
    assert reports.messages == [
        f"graph break in outer ({name}:{line(outer)})\n"
        "SB002 Python reads the data of a tensor\n"
        "  What: tolist\n"
        "  Why: a guard can speak of a tensor's metadata, not of its values\n"
        "  Hint: keep the decision in tensors (torch.where), or move it out of the compiled "
        "function\n"
        "  See: python -m stator explain SB002\n"
        "  User code:\n"
        f"    {name}:{line(outer) + 2} in outer\n"
        "      return reads(x)\n"
        f"    {name}:{line(reads) + 1} in reads\n"
        "      return x * x.sum().tolist()"
    ]
    stats = stator.stats(compiled)
    assert (stats.traces, stats.breaks, stats.hits, stats.native) == (2, 1, 1, 0)
    assert stats.reason == (
        f"SB002 Python reads the data of a tensor: tolist (at {name}:{line(reads) + 1} in reads)"
    )


def test_fullgraph_raises_at_the_first_break() -> None:
    calls = []

    @stator.compile(fullgraph=True)
    def fn(x):
        calls.append("before")
        y = reads(x)
        calls.append("behind")
        return y

    for _ in range(2):
        with pytest.raises(stator.GraphBreakError) as raised:
            fn(X)
    assert calls == ["before"] * 2, "what stands before it was done, once; nothing behind it was"
    error = raised.value
    assert error.id == "SB002"
    assert error.explanation == "Python reads the data of a tensor: tolist"
    assert error.hint.startswith("keep the decision in tensors")
    first = line(fn.__wrapped__)
    assert [(file, at - first, name.rpartition(".")[2]) for file, at, name in error.stack] == [
        (str(HERE), 3, "fn"),
        (str(HERE), line(reads) + 1 - first, "reads"),
    ]
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert frames[1:] == ["fn", "reads"]
    assert error.__cause__ is None and error.__context__ is None
    assert stator.stats(fn).native == 0


class Out(io.StringIO):
    """Of a class of the program's, so that writing to it breaks the graph."""


def printed_by(fn: Callable[..., Any], *args: Any) -> tuple[str, str]:
    """What a call prints, and the id of the break that it raises."""
    compiled = stator.compile(fn, fullgraph=True)
    seen = []
    for _ in range(2):
        with contextlib.redirect_stdout(Out()) as out:
            with pytest.raises(stator.GraphBreakError) as raised:
                compiled(*args)
        seen.append((out.getvalue(), raised.value.id))
        assert sys.exc_info() == (None, None, None)
    assert seen[0] == seen[1]
    # The thread executes as ever afterwards.
    assert torch.equal(stator.compile(lambda x: x * 2 + len([1]))(X), X * 2 + 1)
    return seen[0]


class Manager:
    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, *rest: Any) -> bool:
        LEFT.append(kind is not None and not issubclass(kind, Exception))
        return False


LEFT: list[Any] = []


def test_nothing_behind_the_break_runs() -> None:
    def call(x):
        sys.stdout.write("never")

    def branch(x):
        if x.sum().tolist() > 0:
            sys.stdout.write("never")
        return x

    def handler(x):
        try:
            return x * x.sum().tolist()
        except Exception:
            sys.stdout.write("never")

    def inlined(x):
        def inner(y):
            try:
                int(y[0])
                sys.stdout.write("never")
            except (RuntimeError, stator.StatorError):
                sys.stdout.write("never")

        inner(x)
        sys.stdout.write("never")

    def loop(x):
        for value in x.tolist():
            sys.stdout.write(f"never {value}")

    def assertion(x):
        assert x.sum().tolist() > 100, sys.stdout.write("never")

    for function in (call, branch, handler, inlined, loop, assertion):
        assert printed_by(function, X)[0] == "", function


def test_the_frames_are_left_as_by_any_exception() -> None:
    def fn(x):
        with Manager():
            try:
                with torch.no_grad():
                    x = x + 1
                    x.sum().tolist()
                    LEFT.append("never")
            finally:
                LEFT.append("finally")

    LEFT.clear()
    assert printed_by(fn, X) == ("", "SB002")
    assert LEFT == ["finally", True] * 2
    assert torch.is_grad_enabled()


def test_a_program_that_catches_everything() -> None:
    """It goes on natively, and the error comes all the same."""

    def fn(x):
        try:
            x.sum().tolist()
        except:  # noqa: E722
            print("caught")
        return x.sum().tolist()

    assert printed_by(fn, X) == ("caught\n", "SB002")


def test_a_break_that_c_code_calls_back() -> None:
    """`sorted` is in the middle of it: the call ends behind it."""

    def fn(x):
        def key(k):
            print("key", k)
            return k

        x = x * sorted([2, 1], key=key)[0]
        print("never")
        return x

    assert printed_by(fn, X) == ("key 2\nkey 1\n", "SB001")


def test_an_operation_that_raised() -> None:
    def fn(x):
        try:
            torch.linalg.cholesky(x.new_zeros(2, 2))
        except RuntimeError:
            print("never")
        return x

    assert printed_by(fn, X) == ("", "SB007")
    with pytest.raises(RuntimeError, match="size"):
        stator.compile(lambda x: x + torch.ones(7), fullgraph=True)(X)


def test_a_break_in_a_handler() -> None:
    """What is being handled is left in order, wherever the call ends."""

    class Called:
        def __len__(self):
            os.getpid()
            return 1

    def raises(x):
        try:
            raise ValueError
        except ValueError:
            torch.linalg.cholesky(x.new_zeros(2, 2))

    def returns(x):
        try:
            raise ValueError
        except ValueError:
            return sorted([x], key=lambda v: len(Called()))

    def leaves(x):
        for _ in range(2):
            try:
                raise ValueError
            except ValueError as error:
                sorted([error], key=lambda v: len(Called()))
                continue

    assert printed_by(raises, X) == ("", "SB007")
    assert printed_by(returns, X)[1] == "SB001"
    assert printed_by(leaves, X)[1] == "SB001"


def test_a_finalizer_that_breaks() -> None:
    class Loud:
        def __del__(self):
            print("gone")

    def fn(x):
        loud = Loud()
        del loud
        print("never")

    with pytest.warns() as given:
        warnings.warn("one")
        printed, _ = printed_by(fn, X)
    assert printed == "gone\n" and len(given) == 1


def test_effects_before_the_break_stay() -> None:
    seen: dict[str, Any] = {}

    def fn(x):
        seen["n"] = seen.get("n", 0) + 1
        x.add_(1)
        sys.stdout.flush()
        seen["n"] = 100

    x = torch.zeros(2)
    assert printed_by(fn, x) == ("", "SB001")
    assert seen == {"n": 2} and torch.equal(x, torch.full((2,), 2.0))


def test_fullgraph_lets_the_calls_own_exception_through() -> None:
    @stator.compile(fullgraph=True)
    def fn(x):
        try:
            reads(x)
        finally:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fn(X)


def test_fullgraph_of_what_is_one_graph() -> None:
    compiled = stator.compile(lambda x: x * 2, fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(X), X * 2)
    assert stator.stats(compiled).hits == 1


@stator.disable(reason="it is slow")
def slow(x):
    return x + 1


@torch.compiler.disable
def slow_for_torch(x):
    return x + 1


def test_disabled_functions_end_the_trace() -> None:
    compiled = stator.compile(lambda x: slow(x) * 2)
    assert torch.equal(compiled(X), (X + 1) * 2)
    reason = stator.stats(compiled).reason
    assert reason is not None
    assert reason.startswith("SB016 a function that is not to be traced: it is slow (at ")

    compiled = stator.compile(lambda x: slow_for_torch(x) * 2)
    assert torch.equal(compiled(X), (X + 1) * 2)
    reason = stator.stats(compiled).reason
    assert reason is not None
    assert "torch.compiler.disable" in reason


def test_disabled_functions_are_not_compiled() -> None:
    assert stator.compile(slow) is slow
    with pytest.raises(stator.GraphBreakError, match="it is slow"):
        stator.compile(slow, fullgraph=True)
    for marked in (stator.disable(reads, recursive=False, reason="it is slow"), slow_for_torch):
        compiled = stator.compile(marked)
        assert torch.equal(compiled(X), marked(X))
        assert stator.stats(compiled).native == 1
        strict = stator.compile(marked, fullgraph=True)
        for _ in range(2):
            with pytest.raises(stator.GraphBreakError, match="it is slow|torch.compiler.disable"):
                strict(X)


def test_code_replaced_after_a_break_is_traced() -> None:
    def fn(x):
        return x * x.sum().tolist()

    compiled = stator.compile(fn)
    compiled(X)
    assert stator.stats(compiled).graphs == 2
    fn.__code__ = (lambda x: x * 3).__code__
    assert torch.equal(compiled(X), X * 3)
    assert stator.stats(compiled).graphs == 1


def test_entries_before_the_limit_still_serve() -> None:
    compiled = stator.compile(lambda x, s: x * len(s), recompile_limit=2)
    with pytest.warns(stator.RecompileLimitWarning):
        for s in ("a", "bb", "ccc"):
            compiled(X, s)
    before = stator.stats(compiled).hits
    for s in ("a", "bb"):
        assert torch.equal(compiled(X, s), X * len(s))
    assert stator.stats(compiled).hits == before + 2


def test_cycles_through_a_compiled_function_are_collected() -> None:
    def build() -> weakref.ref[Any]:
        def fn(x):
            return x * 2 if holder else x

        holder = [stator.compile(fn)]
        holder[0].holder = holder
        holder[0](X)
        return weakref.ref(fn)

    gc.collect()
    watched = build()
    gc.collect()
    assert watched() is None


def test_collections_while_compiled_functions_are_made() -> None:
    """The object is whole before the collector can see it."""

    def make(fn: Any) -> Any:
        return stator.Compiled(
            fn,
            backend=None,
            when=2,
            is_slow=False,
            verifies=None,
            is_timed=False,
            recompile_limit=None,
            fullgraph=False,
            dynamic=None,
            is_compiling=False,
        )

    taken, made = [], []
    gc.freeze()
    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for n in range(20):
            # CPython keeps up to 80 dictionaries for reuse: only without them does it allocate.
            taken.append([{} for _ in range(100 + n)])
            made.append(make(lambda x: x))
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
    assert torch.equal(made[-1](X), X)


def test_names_can_be_set() -> None:
    compiled = stator.compile(lambda x: x * 2)
    compiled.__name__ = compiled.__qualname__ = "double"
    compiled.__doc__ = "Doubles."
    assert repr(compiled).startswith("<compiled function double at 0x")
    assert compiled.__doc__ == "Doubles."
