"""`traceback.format_exc()` of plain Python and of compiled code, character for character.

The frame that makes the call is the same function in every comparison, so its lines are equal by
construction and nothing needs to be cut out.
"""

from __future__ import annotations

import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from differential.support import api

from .raising import CASES, Raising

_ADDRESS = re.compile(r"0x[0-9a-f]+")
_REPEATED = re.compile(r"\[Previous line repeated (\d+) more times\]")


def _text(fn: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """The traceback that `fn(*args)` ends with; how deep a recursion got is asked elsewhere."""
    return _REPEATED.sub("[Previous line repeated]", _raw_text(fn, args))


def _raw_text(fn: Callable[..., Any], args: tuple[Any, ...]) -> str:
    try:
        fn(*args)
    except BaseException:
        return _ADDRESS.sub("0x…", traceback.format_exc())
    raise AssertionError("the call was to raise")


def _frames(fn: Callable[..., Any], args: tuple[Any, ...]) -> list[tuple[str, int, list[str]]]:
    """Name, line and names of locals of each frame in the traceback."""
    try:
        fn(*args)
    except BaseException as error:
        found: list[tuple[str, int, list[str]]] = []
        trace = error.__traceback__
        while trace is not None:
            frame = trace.tb_frame
            found.append((frame.f_code.co_name, trace.tb_lineno, sorted(frame.f_locals)))
            trace = trace.tb_next
        return found[1:]
    raise AssertionError("the call was to raise")


def _warm(case: Raising) -> Any:
    compiled = api.compile(case.fn)
    if case.good is not None:
        for _ in range(2):
            compiled(*case.good())
    return compiled


@pytest.fixture(autouse=True)
def _fresh() -> None:
    api.reset()


@pytest.mark.parametrize("name", CASES)
def test_first_call(name: str) -> None:
    case = CASES[name]
    expected = _text(case.fn, case.args())
    assert _text(api.compile(case.fn), case.args()) == expected


@pytest.mark.parametrize("name", CASES)
def test_warm_call(name: str) -> None:
    case = CASES[name]
    expected = _text(case.fn, case.args())
    compiled = _warm(case)
    for _ in range(2):
        assert _text(compiled, case.args()) == expected


@pytest.mark.parametrize("name", [name for name in CASES if name != "recursion_error"])
def test_frames_and_their_locals(name: str) -> None:
    case = CASES[name]
    expected = _frames(case.fn, case.args())
    compiled = _warm(case)
    assert _frames(compiled, case.args()) == expected
    assert _frames(compiled, case.args()) == expected


@pytest.mark.parametrize("name", ["data_decides", "nested_calls", "user_exception"])
def test_call_after_an_exception_is_right(name: str) -> None:
    case = CASES[name]
    assert case.good is not None
    compiled = _warm(case)
    _text(compiled, case.args())
    assert (compiled(*case.good()) == case.fn(*case.good())).all()


def test_recursion_is_as_deep() -> None:
    """The recursion limit counts the user's frames, and no frame of ours."""
    case = CASES["recursion_error"]
    found = _REPEATED.search(_raw_text(case.fn, case.args()))
    ours = _REPEATED.search(_raw_text(api.compile(case.fn), case.args()))
    assert found is not None and ours is not None
    assert abs(int(found[1]) - int(ours[1])) <= 2


def test_corpus_is_large_enough() -> None:
    assert len(CASES) >= 30


_SCRIPT = """\
import torch
DECORATOR


@decorate
def outer(x):
    y = x + 1
    return inner(y)


def inner(y):
    return y @ torch.ones(7)


outer(torch.ones(3))
"""


@pytest.mark.skipif(api.PLAIN, reason="compares plain Python with itself")
def test_uncaught_in_a_script(tmp_path: Path) -> None:
    """What the interpreter prints for a script that ends with an exception."""
    shown = []
    for decorator in ("decorate = lambda fn: fn", "from stator import compile as decorate"):
        script = tmp_path / "script.py"
        script.write_text(_SCRIPT.replace("DECORATOR", decorator))
        done = subprocess.run(
            [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        shown.append(done.stderr)
    assert shown[1] == shown[0]
