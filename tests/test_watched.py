"""Debuggers, profilers and measurements of coverage see the user's code, as in plain Python."""

from __future__ import annotations

import cProfile
import ctypes
import io
import logging
import pdb
import pstats
import sys
import threading
import trace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator.programs import TensorProgram, TensorSpec

X = torch.ones(3)
REASON = "SB026 a trace or profile function is active in this thread"


def double(x: Tensor) -> Tensor:
    return x * 2


def through_a_break(x: Tensor) -> Tensor:
    y = double(x)
    stator.graph_break()
    y = double(y)
    return y + 1


def raising(x: Tensor) -> Tensor:
    try:
        double(x).reshape(7)
    except RuntimeError:
        x = double(x)
    return x


def in_one_piece(x: Tensor) -> Tensor:
    return double(x) + 1


FUNCTIONS = [in_one_piece, through_a_break, raising]
OURS = {fn.__code__ for fn in (double, *FUNCTIONS)}

Event = tuple[str, str, int]


def python_events(setter: Callable[[Any], None]) -> Callable[[Callable[[], Any]], list[Event]]:
    def events(call: Callable[[], Any]) -> list[Event]:
        seen: list[Event] = []

        def note(frame: Any, event: str, arg: Any) -> Any:
            if frame.f_code in OURS:
                seen.append((frame.f_code.co_name, event, frame.f_lineno))
            return note

        setter(note)
        try:
            call()
        finally:
            setter(None)
        return seen

    return events


def c_events(setter: str) -> Callable[[Callable[[], Any]], list[Event]]:
    """As tracers in C do it, such as coverage's."""
    function = getattr(ctypes.pythonapi, setter)
    prototype = ctypes.PYFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.c_int, ctypes.c_void_p
    )

    def events(call: Callable[[], Any]) -> list[Event]:
        seen: list[Event] = []

        def note(_: Any, frame: Any, event: int, arg: Any) -> int:
            if frame.f_code in OURS:
                seen.append((frame.f_code.co_name, str(event), frame.f_lineno))
            return 0

        callback = prototype(note)
        function(callback, None)
        try:
            call()
        finally:
            function(None, None)
        return seen

    return events


def profiled(call: Callable[[], Any]) -> list[Event]:
    """What cProfile has counted: names, and how often they were called."""
    profile = cProfile.Profile()
    profile.runcall(call)
    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    names = {code.co_name for code in OURS}
    return sorted((name, "calls", row[1]) for (_, _, name), row in stats.items() if name in names)


def covered(call: Callable[[], Any]) -> list[Event]:
    """What `python -m trace --count` has counted."""
    tracer = trace.Trace(count=True, trace=False)
    tracer.runfunc(call)
    counts = tracer.results().counts
    return sorted(
        ("line", str(count), line) for (file, line), count in counts.items() if file == __file__
    )


WATCHERS = {
    "settrace": python_events(sys.settrace),
    "setprofile": python_events(sys.setprofile),
    "C tracer": c_events("PyEval_SetTrace"),
    "C profiler": c_events("PyEval_SetProfile"),
    "cProfile": profiled,
    "trace": covered,
}


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("watcher", WATCHERS)
@pytest.mark.parametrize("calls", [0, 1, 3])
def test_events_are_those_of_plain_python(watcher: str, fn: Any, calls: int) -> None:
    """Watched before the first call, and once there are traces; replays resume afterwards."""
    events = WATCHERS[watcher]
    compiled = stator.compile(fn)
    for _ in range(calls):
        compiled(X)
    before = stator.stats(compiled)
    for _ in range(2):
        expected, found = events(lambda: fn(X)), events(lambda: compiled(X))
        assert found == expected and expected
    stats = stator.stats(compiled)
    assert (stats.traces, stats.hits) == (before.traces, before.hits)
    assert stats.native == before.native + 2
    assert stats.reason is not None and stats.reason.startswith(REASON)
    for _ in range(3):
        assert torch.equal(compiled(X), fn(X))
    assert stator.stats(compiled).hits >= before.hits + 2


@pytest.mark.parametrize("setter", [sys.settrace, sys.setprofile], ids=lambda set: set.__name__)
@pytest.mark.parametrize("place", ["outer", "inner", "neither"])
@pytest.mark.parametrize("ends", [True, False])
def test_watched_from_within(setter: Any, place: str, ends: bool) -> None:
    """The function that is recorded installs the function that watches it, and maybe removes it."""

    def outer(x: Tensor, note: Any) -> Tensor:
        y = double(x)
        if note and place == "outer":
            setter(note)
        y = inner(double(y), note)
        if note and ends:
            setter(None)
        return double(y)

    def inner(y: Tensor, note: Any) -> Tensor:
        y = y + 1
        if note and place == "inner":
            setter(note)
        return double(y)

    ours = {outer.__code__, inner.__code__, double.__code__}

    def events(fn: Any, watch: bool) -> tuple[Tensor, list[tuple[str, str]]]:
        seen: list[tuple[str, str]] = []

        def note(frame: Any, event: str, arg: Any) -> Any:
            if frame.f_code in ours:
                seen.append((frame.f_code.co_name, event))
            return note

        try:
            return fn(X, note if watch else None), seen
        finally:
            setter(None)

    compiled = stator.compile(outer)
    for watch in (True, True, False, True, False, False, True):
        (expected, theirs), (found, ours_seen) = events(outer, watch), events(compiled, watch)
        assert torch.equal(found, expected)
        assert ours_seen == theirs
    assert stator.stats(compiled).hits >= 2


def debug(call: Callable[[], Any], commands: str) -> str:
    """What a session with pdb prints."""
    out = io.StringIO()
    debugger = pdb.Pdb(stdin=io.StringIO(commands), stdout=out, nosigint=True, readrc=False)
    debugger.use_rawinput = False
    debugger.prompt = ""
    debugger.runcall(call)
    return out.getvalue()


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_pdb_stops_at_breakpoints_and_steps(calls: int) -> None:
    compiled = stator.compile(through_a_break)
    for _ in range(calls):
        compiled(X)
    line = double.__code__.co_firstlineno + 1
    commands = f"break {__file__}:{line}\ncontinue\nup\np y if 'y' in dir() else 0\ndown\nreturn\nnext\nnext\nnext\nclear 1\ncontinue\n"
    # Breakpoints are numbered on through a process.
    texts = []
    for fn in (through_a_break, compiled):
        pdb.Pdb.clear_all_breaks(pdb.Pdb())
        import bdb

        bdb.Breakpoint.next = 1
        bdb.Breakpoint.bplist = {}
        bdb.Breakpoint.bpbynumber = [None]
        texts.append(debug(lambda fn=fn: fn(X), commands).replace("<lambda>", ""))
    assert texts[0] == texts[1]
    assert "double" in texts[0]
    compiled(X)
    hits = stator.stats(compiled).hits
    compiled(X)
    assert stator.stats(compiled).hits == hits + 1


def test_set_trace_inside_a_compiled_function() -> None:
    """`breakpoint()` is a break; behind it everything runs in the debugger, and the next call replays."""

    def fn(x: Tensor, stops: bool, debugger: Any) -> Tensor:
        y = double(x)
        if stops:
            debugger.set_trace()
        y = double(y)
        return y + 1

    def session(target: Any) -> tuple[str, Tensor]:
        out = io.StringIO()
        # Since 3.13 the debugger stops where it is called, not at the next line.
        nexts = "next\n" * (1 if sys.version_info < (3, 13) else 2)
        commands = io.StringIO(f"p y\n{nexts}p y\ncontinue\n")
        debugger = pdb.Pdb(stdin=commands, stdout=out, nosigint=True, readrc=False)
        debugger.use_rawinput = False
        debugger.prompt = ""
        try:
            return out.getvalue(), target(X, True, debugger), out.getvalue()
        finally:
            sys.settrace(None)

    compiled = stator.compile(fn)
    for _ in range(3):
        (_, expected, theirs), (_, found, ours) = session(fn), session(compiled)
        assert torch.equal(found, expected)
        assert ours == theirs and "tensor([4., 4., 4.])" in ours
    for _ in range(3):
        assert torch.equal(compiled(X, False, None), fn(X, False, None))
    assert stator.stats(compiled).hits >= 2


def test_other_threads_are_watched_by_their_own(caplog: pytest.LogCaptureFixture) -> None:
    stator.set_logs(graph_breaks=True)
    caplog.set_level(logging.INFO, "stator")
    compiled = stator.compile(in_one_piece)
    for _ in range(2):
        compiled(X)
    seen: list[str] = []

    def note(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code in OURS:
            seen.append(frame.f_code.co_name)

    threading.settrace(note)
    try:
        thread = threading.Thread(target=lambda: [compiled(X), compiled(X)])
        thread.start()
        hits = stator.stats(compiled).hits
        compiled(X)
        assert stator.stats(compiled).hits == hits + 1
        thread.join()
    finally:
        threading.settrace(None)  # type: ignore[arg-type]
    assert seen == ["in_one_piece", "double"] * 2
    assert stator.stats(compiled).native == 2
    (text,) = caplog.messages  # once, not for each call
    assert text.startswith("runs natively: in_one_piece (") and "SB026" in text
    assert Path(__file__).name in text


def test_tensor_programs_are_traced_while_somebody_watches() -> None:
    sys.settrace(lambda *args: None)
    try:
        program = TensorProgram.trace(double, (TensorSpec(torch.float32, [3]),))
    finally:
        sys.settrace(None)
    (found,) = program(X)
    assert torch.equal(found, X * 2)


def test_compiled_functions_within_a_trace_function_are_replayed() -> None:
    compiled = stator.compile(in_one_piece)
    results: list[Tensor] = []

    def note(frame: Any, event: str, arg: Any) -> None:
        if frame.f_code is double.__code__:
            results.append(compiled(X))

    for _ in range(3):
        sys.settrace(note)
        try:
            double(X)
        finally:
            sys.settrace(None)
    assert len(results) == 3 and all(torch.equal(found, X * 2 + 1) for found in results)
    assert stator.stats(compiled).hits == 2
