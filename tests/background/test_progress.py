"""What is seen of compilations that take long."""

from __future__ import annotations

import io
import logging
import re
import sys
import threading
import time
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from background.slow import LONG, Slow
from stator import _backends, _progress

X = torch.arange(6.0)


class Terminal(io.StringIO):
    """What stderr is, where somebody looks at it."""

    def __init__(self, *, is_terminal: bool = True, fails: bool = False) -> None:
        super().__init__()
        self.is_terminal = is_terminal
        self.fails = fails

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> int:
        if self.fails:
            raise OSError("the terminal is gone")
        return super().write(text)

    def wait_for(self, pattern: str) -> None:
        end = time.monotonic() + LONG
        while not re.search(pattern, self.getvalue()):
            assert time.monotonic() < end, self.getvalue()
            time.sleep(0.005)


def doubled(x: Tensor) -> Tensor:
    return x * 2 + 1


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_progress, "PATIENCE", 0.01)
    monkeypatch.setattr(_progress, "STEP", 0.01)


def asked(name: str, **settings: Any) -> tuple[Any, Slow]:
    backend = Slow()
    stator.register_backend(backend, name=name, slow=True)
    return stator.compile(doubled, backend=name, **settings), backend


def test_a_line_on_a_terminal(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    compiled, backend = asked("slow_seen")
    other, _ = asked("slow_waiting")
    compiled(X)
    other(X)
    terminal.wait_for(
        r"\r\x1b\[Kstator: compiling a graph of 2 operations that begins in doubled \(.*:\d+\), "
        r"by slow_seen, 0 s; 1 graph waits\r"
    )
    # A line takes the place of the one before.
    assert "\n" not in terminal.getvalue()
    other._jobs()[0].cancel()
    backend.go.set()
    assert stator.wait(timeout=LONG)
    terminal.wait_for(r"\r\x1b\[K$")
    assert torch.equal(compiled(X), doubled(X))
    assert not [each for each in threading.enumerate() if each.name == "stator-progress"]


def test_a_line_while_a_call_waits(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    compiled, backend = asked("slow_waited_for", when="second_call")
    compiled(X)
    threading.Thread(
        target=lambda: (terminal.wait_for("by slow_waited_for, 0 s"), backend.go.set())
    ).start()
    assert torch.equal(compiled(X), doubled(X))
    assert "0 graphs wait" in terminal.getvalue()


@pytest.mark.parametrize("kind", ["no terminal", "gone", "none"])
def test_nobody_looks(kind: str, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(is_terminal=kind == "gone", fails=kind == "gone")
    monkeypatch.setattr(sys, "stderr", None if kind == "none" else terminal)
    compiled, backend = asked("slow_unseen")
    compiled(X)
    assert backend.begun.wait(LONG)
    time.sleep(0.1)
    backend.go.set()
    assert stator.wait(timeout=LONG)
    assert torch.equal(compiled(X), doubled(X))
    assert terminal.getvalue() == "" and stator.stats(compiled).tiers == ["compiled"]


def test_no_thread_for_a_line(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    compiled, backend = asked("slow_alone", when="second_call")
    backend.go.set()
    compiled(X)
    monkeypatch.setattr(threading.Thread, "start", fails)
    assert torch.equal(compiled(X), doubled(X))
    assert stator.stats(compiled).tiers == ["compiled"] and terminal.getvalue() == ""


def test_short_compilations_show_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    compiled, backend = asked("slow_but_short")
    backend.go.set()
    compiled(X)
    assert stator.wait(timeout=LONG)
    assert terminal.getvalue() == ""


def test_log_records(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(_backends, "_has_swapped", False)
    with caplog.at_level(logging.INFO, "stator.background"):
        for name in ("slow_first", "slow_second"):
            compiled, backend = asked(name)
            backend.go.set()
            compiled(X)
            assert stator.wait(timeout=LONG)
            compiled(X)
    begins, ends, first, _, _, second = caplog.messages
    graph = (
        r"a graph of 2 operations that begins in doubled \(.*test_progress.py:\d+\), by slow_first"
    )
    assert re.fullmatch(f"compiling {graph}", begins)
    assert re.fullmatch(rf"done with {graph} after \d+\.\d s; 0 graphs wait", ends)
    assert first.startswith("from call 2 on the code of slow_first serves a graph of 2")
    assert "differ from the replay's by 0 at most" in first
    # Once a process.
    assert "stator.compile(when='first_call') makes that the same in each run" in first
    assert second.endswith("by 0 at most, relative to the largest value")


def test_backends_that_are_quick_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    compiled = stator.compile(doubled, backend="fx")
    with caplog.at_level(logging.INFO, "stator.background"):
        for _ in range(3):
            compiled(X)
    assert caplog.messages == []
