"""Backends that compile for as long as a test wants them to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import stator
from stator import _backends

LONG = 60
"""Seconds after which a test has failed; nothing that passes waits for so long."""


class Slow:
    """Begins when it's asked, and returns when it's told to."""

    def __init__(self, make: Callable[[Any], Any] | None = None) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()
        self.asked: list[list[Any]] = []
        self.threads: list[threading.Thread] = []
        self.ran = 0
        self._make = make or (lambda graph: graph)

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.asked.append(list(inputs))
        self.threads.append(threading.current_thread())
        self.begun.set()
        assert self.go.wait(LONG)
        made = self._make(graph)

        def run(*args: Any) -> Any:
            self.ran += 1
            return made(*args)

        return run


def made(function: Callable[..., Any], make: Callable[[Any], Any], *args: Any) -> tuple[Any, Slow]:
    """A compiled function, called once, whose next call meets the code that `make` makes."""
    backend = Slow(make)
    backend.go.set()
    compiled = stator.compile(function, backend=backend, when="background")
    compiled(*args)
    assert stator.wait(timeout=LONG)
    return compiled, backend


def no_compiler(graph: Any) -> Any:
    raise RuntimeError("no compiler here")


def stand_in(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[Any], Any] = lambda graph: graph
) -> list[int]:
    """Something quicker stands for Inductor in this process; it notes what it's asked."""
    asked: list[int] = []

    def stands_for_inductor(graph: Any, inputs: Any, **settings: Any) -> Any:
        asked.append(1)
        return make(graph)

    find = _backends._find
    instead = ("inductor", stands_for_inductor, True)
    monkeypatch.setattr(
        _backends, "_find", lambda name: instead if name == "inductor" else find(name)
    )
    return asked
