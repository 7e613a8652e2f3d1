"""NumPy code that computes with arrays from outside by their own operators, items and methods: they are
constants of its program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import stator.federated as fl
from stator.errors import ProgramError
from stator.federated.execution import LocalContext

from .leaves import in_pairs

f32, f64 = np.float32, np.float64
ROWS = fl.TensorType(f64, [None, 3])
EDGES = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
TABLE = np.array([[1, 2, 3], [4, 5, 6]])
SMALL = np.array([0.5, 1.5, -0.25], f32)
IS_USED = np.array([True, False, True])
SETTINGS = {"edges": EDGES, "rates": [SMALL, SMALL * 2]}


class Scaler:
    mean = np.array([0.1, 0.2, 0.3])

    def __init__(self) -> None:
        self.scale = np.array([1.0, 2.0, 4.0])

    def __call__(self, x: Any) -> Any:
        return (x - self.mean[None]) / self.scale.reshape(1, -1)[0]


SCALER = Scaler()


def operators(x: Any) -> Any:
    return (
        x * (TABLE * 2 + 1)[0],
        x + (1 - SMALL) / 2,
        x @ (TABLE.T @ TABLE),
        -SMALL * x,
        np.abs(SMALL) + x,
        (TABLE % 2 == 0) & (x[:2] > 0),
        SMALL**2 + TABLE // 2 + x[0],
        (TABLE > 2).sum() + x.sum(),
        (SMALL < np.array([0.0, 2.0, 0.0], f32)) | (x[0] > 9),
        ~IS_USED & (x[0] > 0),
    )


def items(x: Any) -> Any:
    places = np.argmax(x, axis=1)
    return (
        (EDGES[1:] + EDGES[:-1])[0] / 2 + x[0],
        x @ TABLE[0] + TABLE[1, 2],
        x * TABLE[-1] + TABLE[:, 1:].sum(),
        SMALL[places] + x[:, 0],
        TABLE[:, places].sum(0) + x[:, 1],
        x * SMALL[::-1],
        x[:, 0] * EDGES[None, 1:2] + TABLE[..., 0][1],
        TABLE[0][1] * x[0, 0],
    )


def attributes(x: Any) -> Any:
    return (
        TABLE.shape[1] * x,
        TABLE.ndim + x[0],
        x / EDGES.size,
        np.zeros(SMALL.shape, SMALL.dtype) + x[0].astype(SMALL.dtype),
        x @ TABLE.T,
        len(TABLE) + x.sum(),
    )


def methods(x: Any) -> Any:
    return (
        x / EDGES.max() + EDGES.argmax(),
        x - SMALL.mean(),
        x * TABLE.sum(axis=0),
        x + SMALL.astype(f64).cumsum(),
        TABLE.reshape(-1).repeat(2).sum() + x.sum(),
        TABLE.copy().clip(2, 5).std() * x,
        SMALL.std() + x.std(),
    )


def iterated(x: Any) -> Any:
    total = x.sum() * 0
    for edge in EDGES:
        total = total + (x > edge).sum()
    for at, (low, high) in enumerate(zip(EDGES[:-1], EDGES[1:], strict=True)):
        total = total + at * ((x >= low) & (x < high)).sum()
    for row in TABLE:
        total = total + (x @ row).max()
    first, second = TABLE
    return total, np.array([(x > edge).mean() for edge in EDGES]), x @ first - x @ second


def in_containers(x: Any) -> Any:
    rates = SETTINGS["rates"]
    return (
        np.digitize(x, SETTINGS["edges"][1:-1]),
        x * rates[1] + rates[0][0],
        SCALER(x),
        Scaler.mean[1] + x,
    )


def enclosing() -> Any:
    weights = np.linspace(0, 1, 3)

    def weighted(x: Any) -> Any:
        def score(row: Any) -> Any:
            return (row * weights[::-1]).sum()

        return np.stack([score(row) for row in x[:2]]), x @ weights

    return weighted


CASES = [operators, items, attributes, methods, iterated, in_containers, enclosing()]


def rows(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(count, 3))


def same(found: Any, expected: Any) -> None:
    for each, given in in_pairs(found, expected):
        wanted = np.asarray(given)
        assert each.dtype == wanted.dtype and each.shape == wanted.shape
        np.testing.assert_allclose(each, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("function", CASES)
def test_it_gives_what_numpy_gives(function: Callable[..., Any]) -> None:
    local = fl.local_computation(ROWS, arrays="numpy")(function)
    again = fl.framework.ConcreteComputation.from_bytes(local.to_bytes())
    # Calls with two rows and more: `TABLE` has two.
    for count in (2,) if function is operators else (3, 5, 2):
        for run in (local, again):
            same(run(rows(count)), function(rows(count)))

    @fl.federated_computation(fl.FederatedType(ROWS, fl.CLIENTS))
    def of_clients(x: Any) -> Any:
        return fl.federated_map(local, x)

    values = [rows(2, seed) for seed in range(4)]
    for context in (LocalContext(), LocalContext(exact=True)):
        with fl.framework.get_context_stack().install(context):
            for found, value in zip(of_clients(values), values, strict=True):
                same(found, function(value))


def test_arrays_have_the_values_of_the_trace() -> None:
    table = np.array([1.0, 2.0, 3.0])

    def shifted(x: Any) -> Any:
        return x + table[0] * np.ones(3) + (table * 2).sum() - table.max()

    local = fl.local_computation(ROWS)(shifted)
    expected = shifted(rows(2))
    table[:] = 100
    same(local(rows(2)), expected)
    same(fl.local_computation(ROWS)(shifted)(rows(2)), shifted(rows(2)))


def test_an_array_is_one_constant() -> None:
    def repeated(x: Any) -> Any:
        for at in range(3):
            x = x * SMALL[at] + SMALL + np.add(x, SMALL)
        return x

    data = fl.local_computation(ROWS)(repeated).to_bytes()
    assert data.count(SMALL.tobytes()) == 1


def writes_item(x: Any) -> Any:
    EDGES[0] = 5
    return np.sum(x)


def writes_in_place(x: Any) -> Any:
    edges = EDGES
    edges += 1
    return np.sum(x)


def writes_view(x: Any) -> Any:
    own = EDGES[1:]
    own[0] = 7
    return np.sum(x)


@pytest.mark.parametrize("function", [writes_item, writes_in_place, writes_view])
def test_what_cant_be_is_an_error(function: Callable[..., Any]) -> None:
    before = EDGES.copy()
    with pytest.raises((ProgramError, TypeError)):
        fl.local_computation(ROWS, arrays="numpy")(function)
    assert (EDGES == before).all()
