"""Numbers of Python's that NumPy code makes of what it computes of constants alone: an array from outside has the
values that it has when the function is traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import stator.federated as fl
from stator.errors import ProgramError

from .leaves import in_pairs

EDGES = np.array([-2.0, -1.0, 0.5, 2.0])
COUNTS = np.array([3, -1, 2])
ROWS = fl.TensorType(np.float64, [None])


def ranges(x: Any) -> Any:
    return np.histogram(x, bins=4, range=(float(EDGES.min()), float(EDGES.max())))[0]


def conversions(x: Any) -> Any:
    width = EDGES[1].item() - float(EDGES[0])
    rates = (EDGES * 2).tolist()
    return (
        x * width + int(COUNTS[0]),
        x[: int(COUNTS.max())],
        x * rates[3] + rates[-1],
        bool(COUNTS[1]),
    )


def decisions(x: Any) -> Any:
    if EDGES[0] < 0 and not (COUNTS > 3).any():
        x = x + 1
    total = x.sum()
    for count in COUNTS:
        if count > 0:
            total = total + count * x[0]
    return total, x.mean() if (np.diff(EDGES) > 0).all() else x.sum()


def absolutes(x: Any) -> Any:
    return x[:3] * abs(COUNTS), abs(EDGES).sum() * x, abs(x), abs(-3) * x


def made(x: Any) -> Any:
    grid = np.linspace(0, 1, 5)
    scale = float(np.sqrt(grid[-1] + 3)) + float(np.linalg.norm(EDGES))
    return x * scale, x + float(np.eye(3)[1, 1])


def drawn(x: Any) -> Any:
    return np.sum(x) * float(np.random.default_rng(1).normal())


def written(x: Any) -> Any:
    a = np.zeros(3)
    a[1] = 2.0
    b = a[:2]
    a += 1
    return x * a[1], b.sum() * x


CASES = [ranges, conversions, decisions, absolutes, made, drawn, written]


@pytest.mark.parametrize("function", CASES)
def test_it_gives_what_numpy_gives(function: Callable[..., Any]) -> None:
    local = fl.local_computation(ROWS, arrays="numpy")(function)
    again = fl.framework.ConcreteComputation.from_bytes(local.to_bytes())
    for count in (6, 9, 4):
        x = np.random.default_rng(count).normal(size=count)
        for run in (local, again):
            for found, expected in in_pairs(run(x), function(x)):
                np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-9)


def test_values_are_those_of_when_it_was_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(4.0)
    before = fl.local_computation(ROWS, arrays="numpy")(decisions)
    expected = decisions(x)[0]
    monkeypatch.setitem(globals(), "EDGES", -EDGES)
    assert before(x)[0] == expected
    after = fl.local_computation(ROWS, arrays="numpy")(decisions)
    assert after(x)[0] == decisions(x)[0] != expected


def of_input(x: Any) -> Any:
    return np.sum(x) * float(x.max() - x.max())


def of_a_size(x: Any) -> Any:
    return np.sum(x) * float(np.sqrt(len(x)))


def of_a_size_and_a_constant(x: Any) -> Any:
    return np.sum(x) * float((EDGES * len(x)).max())


def of_as_many_zeros(x: Any) -> Any:
    return np.sum(x) if np.zeros(len(x)).sum() == 0 else np.sum(x) * 2


def of_a_size_in_an_array(x: Any) -> Any:
    return np.sum(x) * float(np.array([1.0, len(x)])[1])


def of_shapes(x: Any) -> Any:
    return np.sum(x) * float(np.array(x.shape)[0])


def of_a_size_beside_numbers(x: Any) -> Any:
    return np.sum(x) * np.array([1.0, len(x)])[1]


def of_sizes_alone(x: Any) -> Any:
    return np.sum(x) * np.array(x.shape)


def of_sizes_in_a_function(x: Any) -> Any:
    return np.max((len(x), 7)) * np.sum(x)


def of_what_is_written(x: Any) -> Any:
    a = np.zeros(3)
    b = a[1:]
    b[0] = x[0]
    return np.sum(x) * float(a[1])


def of_an_element(x: Any) -> Any:
    return np.sum(x) if EDGES[np.argmax(x[:3])] > 0 else np.sum(x) * 2


def of_inputs(x: Any) -> Any:
    order = np.sort(x)
    return (
        float(np.mean(x)),
        int(np.sum(x > 0)),
        2 * order[len(x) // 2].item(),
        order[: int(np.sum(x > -9)) - 1].max(),
    )


@pytest.mark.parametrize("function", [of_input, of_what_is_written, of_inputs])
def test_runs_read_numbers_of_inputs(function: Callable[..., Any]) -> None:
    local = fl.local_computation(ROWS, arrays="numpy")(function)
    for count in (6, 9):
        x = np.random.default_rng(count).normal(size=count)
        for found, expected in in_pairs(local(x), function(x)):
            np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-6)


OF_SIZES = [
    of_a_size,
    of_a_size_and_a_constant,
    of_as_many_zeros,
    of_a_size_in_an_array,
    of_shapes,
    of_a_size_beside_numbers,
    of_sizes_alone,
    of_sizes_in_a_function,
]


@pytest.mark.parametrize("function", OF_SIZES)
def test_numbers_of_sizes_are_those_of_each_size(function: Callable[..., Any]) -> None:
    """There is a program for each size."""
    local = fl.local_computation(ROWS, arrays="numpy")(function)
    for size in (3, 5, 3, 1):
        x = np.arange(1.0, 1 + np.prod([size if of is None else of for of in ROWS.shape]))
        x = x.reshape([size if of is None else of for of in ROWS.shape]).astype(ROWS.dtype)
        np.testing.assert_allclose(np.asarray(local(x)), np.asarray(function(x)), rtol=1e-6)


def test_numbers_that_differ_between_runs_are_refused() -> None:
    with pytest.raises((ProgramError, TypeError)) as raised:
        fl.local_computation(ROWS, arrays="numpy")(of_an_element)
    assert "of_an_element" in "".join([str(raised.value), *raised.value.__notes__])
