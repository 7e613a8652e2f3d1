"""Graphs that one thread describes and another compiles.

What belongs to the thread of the call is taken at once: PyTorch's modes, and for PyTorch's own
backends what their inputs are like. Such a backend never sees the inputs, so the program may write
to them, and drop them, while it is at work. PyTorch compiles one thing at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch.fx
from torch._dynamo.convert_frame import compile_lock
from torch._functorch import config as functorch
from torch._subclasses import FakeTensorMode

from stator import _stator
from stator._fx.graphs import Code, Row, graph_module
from stator._fx.modes import Modes
from stator._fx.symbolic import begin_symbolic

Compile = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def begin(
    name: str,
    is_torch: bool,
    compile_module: Compile,
    description: Sequence[Row],
    inputs: list[Any],
) -> Callable[[], Callable[..., Any] | Code]:
    """What compiles the graph when it's called, on any thread."""
    modes = Modes.here()
    if not is_torch:

        def compile() -> Callable[..., Any] | Code:
            with modes.applied():
                return compile_module(graph_module(description, inputs), inputs)

        return compile
    # Without a GPU, the first thread that enters this mode owns an object that PyTorch uses ever
    # after: it crashes behind that thread's end. That of a call lives longer than that of a job.
    with FakeTensorMode():
        pass
    compile_theirs = begin_symbolic(name, compile_module, description, inputs)

    def compile_torch() -> Callable[..., Any] | Code:
        # Their code compiles the way back when that is first gone, and a call would wait for it.
        with exclusively(), functorch.patch(force_non_lazy_backward_lowering=True), modes.applied():
            return compile_theirs()

    return compile_torch


@contextlib.contextmanager
def exclusively() -> Iterator[None]:
    """Nobody else compiles with PyTorch meanwhile. Whom that waits for doesn't wait for calls."""
    if not compile_lock.acquire(blocking=False):
        _stator._hurry(True)
        try:
            compile_lock.acquire()
        finally:
            _stator._hurry(False)
    try:
        yield
    finally:
        compile_lock.release()


def forget_lock() -> None:
    """This is a forked process: who held the lock isn't there."""
    compile_lock._at_fork_reinit()  # type: ignore[attr-defined]
