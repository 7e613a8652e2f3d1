"""Each row of the break table has a program that meets it, and is right all the same."""

from __future__ import annotations

import inspect
import itertools
import logging
import math
import random
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator import _testing
from stator.errors import ProgramError
from stator.programs import TensorProgram, TensorSpec

X = torch.arange(1.0, 5.0)
TABLE = Path(__file__).resolve().parents[2] / "docs" / "breaks.md"


def generator(x: Tensor) -> Iterator[Tensor]:
    yield x * 2


def raises_inside(x: Tensor) -> Tensor:
    try:
        return torch.linalg.cholesky(-x.diag())
    except torch.linalg.LinAlgError:
        return x - 1


def defines_a_class(x: Tensor) -> Tensor:
    class Scale:
        factor = 3

    return x * Scale.factor


LOCK = threading.Lock()
BYTES = bytearray(b"abc")


class Box:
    """A class whose attribute comes and goes."""

    n: int


def deletes(x: Tensor) -> Tensor:
    Box.n = 2
    x = x * Box.n
    del Box.n
    return x


@stator.disable
def doubled(x: Tensor) -> Tensor:
    return x * 2


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "SB001": lambda x: (print(end=""), x + 1)[1],
    "SB002": lambda x: x * x.sum().tolist(),
    "SB003": lambda x: torch.linalg.lstsq(x[:, None], x[:, None], driver="gelsd")[0] * 2,
    "SB004": deletes,
    "SB006": defines_a_class,
    "SB007": raises_inside,
    "SB010": lambda x: x * (id(object()) > 0),
    "SB012": lambda x: x * len(BYTES),
    "SB016": lambda x: doubled(x) + 1,
    "SB017": lambda x: (stator.graph_break(), x + 1)[1],
    "SB027": lambda x: x * [2, 2][random.getrandbits(6) & 1],
    "SB028": lambda x: x + LOCK.acquire(False) + (LOCK.release() is None),
    "SB024": lambda x: torch.func.linearize(lambda y: y * 2, x)[0],
}


def ids(compiled: Any) -> list[str]:
    """The rows that the first break of a compiled function names."""
    return re.findall(r"SB\d+", stator.stats(compiled).reason or "")


@pytest.mark.parametrize("row", PROGRAMS)
def test_rows_that_break(row: str) -> None:
    program = PROGRAMS[row]
    compiled = stator.compile(program)
    for _ in range(3):
        expected, found = program(X), compiled(X)
        assert torch.equal(torch.as_tensor(expected), torch.as_tensor(found))
    assert row in ids(compiled), stator.stats(compiled).reason


def test_an_exception_that_is_alive_at_a_break() -> None:
    """SB005: C code has raised it, and nothing guards the module's name in its text."""

    def fn(x: Tensor) -> Tensor:
        try:
            return x * math.missing  # type: ignore[no-any-return, attr-defined]
        except AttributeError as error:
            print(end="")
            return x * len(error.args)

    compiled = stator.compile(fn)
    for _ in range(3):
        assert torch.equal(compiled(X), fn(X))
    assert "SB005" in ids(compiled)


def test_what_cannot_be_rebuilt() -> None:
    """SB008: a set of objects with an equality of their own is alive where the graph breaks."""

    class Part:
        def __hash__(self) -> int:
            return 7

        def __eq__(self, other: object) -> bool:
            return self is other

    def fn(x: Tensor) -> Tensor:
        parts = {Part(), Part()}
        print(end="")
        return x + len(parts)

    compiled = stator.compile(fn)
    for _ in range(3):
        assert torch.equal(compiled(X), fn(X))
    assert "SB008" in ids(compiled) and stator.stats(compiled).native == 3


def test_an_iterator_from_outside() -> None:
    """SB009"""
    pieces, expected = itertools.accumulate([1] * 9), iter(range(1, 10))
    compiled = stator.compile(lambda x, it: x * next(it))
    for _ in range(3):
        assert torch.equal(compiled(X, pieces), X * next(expected))
    assert "SB009" in ids(compiled)


def test_an_operation_that_may_raise() -> None:
    """SB025: a write that changed a tensor's place in a gradient's graph can't be taken back, and the graph of a
    backend has no exits."""

    def fn(x: Tensor, index: Tensor) -> Tensor:
        return x.mul_(2).sum() + x[index]

    compiled, leaf = stator.compile(fn, backend="fx"), X.clone().requires_grad_()
    for _ in range(3):
        assert torch.equal(compiled(leaf * 1, torch.tensor(1)), fn(leaf * 1, torch.tensor(1)))
    assert "SB025" in ids(compiled)


def test_a_trace_function() -> None:
    """SB026: it sees the user's code."""
    compiled = stator.compile(lambda x: x + 1)
    sys.settrace(lambda *args: None)
    try:
        assert torch.equal(compiled(X), X + 1)
    finally:
        sys.settrace(None)
    assert "SB026" in ids(compiled)


def test_a_generator_that_does_not_tell() -> None:
    """SB029: as those of CUDA while a graph is captured."""

    def refuse() -> Tensor:
        raise RuntimeError("no state while a graph is captured")

    accelerator = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 1,
        current_device=lambda: 0,
        current_stream=lambda _: SimpleNamespace(stream_id=0),
        default_generators=(SimpleNamespace(get_state=refuse),),
    )
    compiled = stator.compile(lambda x: x + 1)
    with _testing.accelerator("meta", accelerator):
        for _ in range(3):
            assert torch.equal(compiled(X), X + 1)
        assert "SB029" in ids(compiled) and stator.stats(compiled).traces == 0
    assert torch.equal(compiled(X), X + 1) and stator.stats(compiled).traces == 1


def test_little_room_for_frames() -> None:
    """SB031: what runs beside the program would meet the limit that the program hasn't reached."""

    def at(depth: int) -> Tensor:
        return compiled(X) if depth == 0 else at(depth - 1)

    compiled = stator.compile(lambda x: x * 3.5 + 1)
    for _ in range(3):
        assert torch.equal(at(sys.getrecursionlimit() - len(inspect.stack()) - 50), X * 3.5 + 1)
    assert "SB031" in ids(compiled) and stator.stats(compiled).traces == 0
    for _ in range(3):
        assert torch.equal(compiled(X), X * 3.5 + 1)


def test_an_error_of_stators_own() -> None:
    """SB030: the call ends as plain Python ends it."""
    compiled = stator.compile(lambda x: x + 1)
    with (
        stator.config.patch(strict=False),
        pytest.warns(stator.InternalErrorWarning, match="injected"),
        _testing.inject("note", 1),
    ):
        assert torch.equal(compiled(X), X + 1)
    assert torch.equal(compiled(X), X + 1)
    assert "SB030" in ids(compiled)


class Printer(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage())


def test_user_code_that_is_told() -> None:
    """SB020: it may see or change anything. Under `fullgraph` the graph is cut all the same."""
    log = logging.getLogger("stator-test-table")
    log.propagate = False
    log.handlers[:] = [Printer()]
    compiled = stator.compile(lambda x: (log.warning("told"), x + 1)[1], fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(X), X + 1)
    assert "SB020" in ids(compiled) and stator.stats(compiled).graphs == 2


def test_a_foreign_mode() -> None:
    """SB011"""
    compiled = stator.compile(lambda x: x + 1)
    with torch.device("cpu"):
        assert torch.equal(compiled(X), X + 1)
    assert "SB011" in ids(compiled)


def test_generator_functions() -> None:
    """SB013"""
    with pytest.raises(stator.GraphBreakError) as raised:
        stator.compile(generator, fullgraph=True)
    assert raised.value.id == "SB013"


def test_the_recompile_limit() -> None:
    """SB015"""
    compiled = stator.compile(lambda x, n: x * n, recompile_limit=1)
    compiled(X, 2)
    with pytest.warns(stator.RecompileLimitWarning):
        assert torch.equal(compiled(X, 3), X * 3)
    assert "SB015" in ids(compiled)


def test_a_break_that_a_test_asks_for() -> None:
    """SB019"""
    compiled = stator.compile(lambda x: x + 1)
    with _testing.break_everywhere():
        assert torch.equal(compiled(X), X + 1)
    assert "SB019" in ids(compiled)


def writes_input(x: Tensor) -> Tensor:
    """SB021"""
    return x.add_(1)


def needs_size(x: Tensor) -> Tensor:
    """SB022"""
    return x * sum(range(x.shape[0]))


def looks_at_memory(x: Tensor) -> Tensor:
    """SB023"""
    return x.as_strided((2,), (1,))


@pytest.mark.parametrize("function", [writes_input, needs_size, looks_at_memory])
def test_what_no_program_does(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(ProgramError) as raised:
        TensorProgram.trace(function, (TensorSpec(torch.float32, (None,)),))
    assert raised.value.id == function.__doc__


def test_a_long_trace() -> None:
    """SB032: see `test_breaks.py` for what goes on behind it."""

    def long_loop(x: Tensor) -> Tensor:
        for _ in range(140_000):
            x = x + 1
        return x

    compiled = stator.compile(long_loop, fullgraph=True)
    with pytest.raises(stator.GraphBreakError) as raised:
        compiled(X)
    assert raised.value.id == "SB032"


def test_every_row_is_met_here() -> None:
    rows = set(re.findall(r"\bSB\d{3}\b", TABLE.read_text()))
    here = set(re.findall(r"\bSB\d{3}\b", Path(__file__).read_text()))
    assert rows <= here, rows - here
