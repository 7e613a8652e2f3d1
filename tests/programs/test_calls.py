"""Calls of programs: what they are given, and from how many threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from programs.common import I64, spec

from stator.programs import TensorProgram


def train(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    w = w.clone().requires_grad_()
    for _ in range(3):
        torch.nn.functional.cross_entropy(x @ w, y).backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
            w.grad.zero_()
    return w


SPECS = (spec(4, 3), spec(None, 4), spec(None, dtype=I64))


@pytest.fixture(scope="module")
def program() -> TensorProgram:
    return TensorProgram.trace(train, SPECS)


def test_wrong_inputs(program: TensorProgram) -> None:
    w, x, y = torch.ones(4, 3), torch.ones(5, 4), torch.zeros(5, dtype=I64)
    cases: list[tuple[Any, str]] = [
        ((w, x), "takes 3 tensors, not 2"),
        ((w, x, 3), r"`y` is 3 \(type int\), not a tensor"),
        ((w.double(), x, y), r"`w` is of type float64\[4, 3\], where the program takes float32\[4, 3\]"),
        ((w, x[0], y), r"`x` is of type float32\[4\], where the program takes float32\[\?, 4\]"),
        ((w, x[:, :3], y), r"float32\[5, 3\]"),
        ((w, x, y[:3]), r"x.size\(0\) == y.size\(0\), as it was traced; x.size\(0\) is 5, y.size\(0\) is 3"),
    ]  # fmt: skip
    for given, message in cases:
        with pytest.raises(ValueError, match=message):
            program(*given)


def test_default_dtype(program: TensorProgram) -> None:
    given = torch.ones(4, 3), torch.ones(5, 4), torch.zeros(5, dtype=I64)
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ValueError, match="default element type"):
            program(*given)
    finally:
        torch.set_default_dtype(torch.float32)


def test_threads(program: TensorProgram) -> None:
    inputs = [
        (torch.randn(4, 3), torch.randn(n, 4), torch.randint(0, 3, (n,))) for n in range(1, 41)
    ]
    expected = [train(*given).detach() for given in inputs]
    barrier = threading.Barrier(8)

    def work(start: int) -> list[tuple[int, torch.Tensor]]:
        barrier.wait()
        return [(i, program(*inputs[i])[0]) for i in range(start, len(inputs), 8)]

    with ThreadPoolExecutor(8) as pool:
        for results in pool.map(work, range(8)):
            for index, output in results:
                assert torch.equal(output, expected[index])


def test_state_after_calls(program: TensorProgram) -> None:
    broken = TensorProgram.trace(fails_late, (spec(None),))
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            program(torch.ones(4, 3), torch.ones(5, 4), torch.zeros(5, dtype=I64))
            with pytest.raises(RuntimeError):
                broken(torch.ones(3))
            assert torch.is_grad_enabled() is grad


def fails_late(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return torch.linalg.cholesky(-torch.diag(x))


def test_nothing_is_cached_for_the_function() -> None:
    import stator

    compiled = stator.compile(train)
    TensorProgram.trace(compiled, SPECS)
    TensorProgram.trace(train, SPECS)
    assert stator.stats(compiled).traces == 0


def test_memory() -> None:
    """A program holds its constants, and nothing else of the user's."""
    import gc
    import weakref

    weight = torch.ones(3)
    model = torch.nn.Linear(3, 3)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return model(x) * weight  # noqa: F821

    program = TensorProgram.trace(fn, (spec(None, 3),))
    dead = [weakref.ref(weight), weakref.ref(model), weakref.ref(fn)]
    del weight, model, fn
    gc.collect()
    assert [ref() for ref in dead] == [None, None, None]
    program(torch.ones(2, 3))
