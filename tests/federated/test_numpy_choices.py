"""NumPy code that chooses, in local computations: by numbers and masks, sets, bits, windows. It gives
what NumPy gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import stator.federated as fl
from stator.federated.execution import LocalContext

from .leaves import in_pairs

f32 = np.float32
FLOATS = fl.TensorType(f32, [6])
ROWS = fl.TensorType(f32, [4, 3])
NUMBERS = fl.TensorType(np.int64, [6])
BITS = fl.TensorType(np.bool_, [11])
BYTES = fl.TensorType(np.uint8, [2, 3])
PAIRS = np.vectorize(lambda v: (v + 1, v > 0), otypes=[float, bool])
SQUARES = np.vectorize(lambda v: v * v)


def under_masks(x: Any) -> Any:
    own = x.copy()
    own[x > 0] = x[x > 0] * 2
    own[own < 0] += 1
    own[x > 1] = 7
    return own


def rows_under_masks(x: Any) -> Any:
    own = x.copy()
    own[x[:, 0] > 0] = [1, 2, 3]
    return own, x[:, x[0] > 0].sum(axis=1), np.compress(x[0] > 0, x, axis=1).sum()


def written_in_place(x: Any) -> Any:
    masked, placed, copied, chosen = x.copy(), x.copy(), np.zeros_like(x), x.copy()
    np.putmask(masked, masked < 0, 0)
    np.putmask(chosen, x > 0, x * 3)
    np.place(placed, placed < 0, [7])
    np.copyto(copied, x, where=x > 0)
    return masked, placed, copied, chosen


def extracted(x: Any) -> Any:
    both = x[x > -9] * x[x > -8]
    return (
        np.compress(x > 0, x).sum(),
        np.extract(x > 0, x).mean(),
        np.argwhere(x > 0).sum(),
        both.sum(),
        np.concatenate([x[x > 0], x[x <= 0]]).std(),
        x[x > 0].cumsum().sum(),
        np.percentile(x[x > -9], 30),
    )


def kept_when_written(x: Any) -> Any:
    own, mask = x.copy(), x > 0
    before = own[mask]
    own[:] = 1
    mask[:] = True
    return before.sum(), own[mask].sum(), (own[mask] + x[mask]).sum()


def chosen_by_numbers(i: Any) -> Any:
    return (
        np.choose(i % 3, [i, i * 10, -1]),
        np.choose(i, [10, 20, 30], mode="clip"),
        np.choose(i, [10, 20, 30], mode="wrap"),
        (i % 2).choose([1.5, i]),
        np.ravel_multi_index((i % 2, i % 3), (2, 3)),
        np.stack(np.unravel_index(i, (2, 3))),
        np.bitwise_count(i - 2) if hasattr(np, "bitwise_count") else i,
    )


def in_sets(i: Any) -> Any:
    other = i[::-1] + 2
    return (
        np.intersect1d(i, other).sum(),
        np.setdiff1d(i, other).size,
        np.union1d(i, other).sum(),
        len(np.setxor1d(i, other)),
    )


def pieces(x: Any) -> Any:
    return (
        np.piecewise(x, [x < 0, x >= 0], [lambda v: -v, lambda v: v * 2]),
        np.piecewise(x, [x < -1, x > 1], [-1, 1, lambda v: v - v.mean()]),
        SQUARES(x),
        np.vectorize(lambda v, k: np.maximum(v, 0) * k + 1)(x, 3),
        PAIRS(x),
    )


def windows(x: Any) -> Any:
    return (
        np.lib.stride_tricks.sliding_window_view(x, 3).mean(axis=1),
        x * np.hanning(6),
        x * np.hamming(6),
        x * np.blackman(6),
        np.hanning(1) * x[0],
        np.convolve(x, [1, 2, 1], mode="same"),
        np.convolve(x[:2], x, mode="same"),
        np.convolve(x, [1, 2, 1, 4], mode="same"),
    )


def by_places(x: Any) -> Any:
    (rows,) = np.where(x[:, 0] > 0)
    own = x.copy()
    own[rows, 1] = 5
    own[rows] *= 2
    return x[rows, 0].sum(), x[rows][:, 1].sum(), own


def blocks(x: Any) -> Any:
    return (
        np.block([[x, x], [x * 0, x]]),
        np.block([x, np.ones((4, 1))]),
        np.fromiter((row.sum() for row in x), dtype=f32),
        x[np.ix_([0, 2], [1, 2])],
        np.lib.stride_tricks.sliding_window_view(x, (2, 2)).sum(axis=(2, 3)),
    )


def squares_fitted(x: Any) -> Any:
    found = np.linalg.lstsq(x, np.ones(4, f32), rcond=None)
    return found[0], found[1].sum(), found[2], found[3]


def parts(x: Any) -> Any:
    return *np.modf(x * 3), *np.frexp(x), np.unwrap(x * 4), np.unwrap(x * 4, period=2)


def known_ones(x: Any) -> Any:
    known = np.where(x > 0.5, np.nan, x)
    return (
        np.nanpercentile(known, 30),
        np.nanmedian(known, axis=0),
        np.nanquantile(known, [0.1, 0.6], axis=1),
        np.nanmedian(known, axis=1, keepdims=True),
    )


def best_at(x: Any) -> Any:
    places = np.array([0, 1, 2, 3, -1, 0])
    highest, lowest, product = np.zeros(5, f32), np.zeros(5, f32), np.ones(5, f32)
    np.maximum.at(highest, places, x)
    np.minimum.at(lowest, places, x)
    np.multiply.at(product, places, x)
    return highest, lowest, product


def bits(b: Any) -> Any:
    return np.packbits(b), np.packbits(b, bitorder="little"), np.packbits(np.stack([b, ~b]), axis=1)


def unpacked(b: Any) -> Any:
    return np.unpackbits(b), np.unpackbits(b, axis=1, count=10), np.unpackbits(b, bitorder="little")


def given(kind: Any, seed: int) -> Any:
    drawn = np.random.default_rng(seed)
    if kind.dtype == f32:
        return drawn.normal(size=kind.shape).astype(f32)
    if kind.dtype == np.bool_:
        return drawn.random(kind.shape) > 0.5
    return drawn.integers(0, 250 if kind is BYTES else 6, kind.shape).astype(kind.dtype)


def same(found: Any, expected: Any) -> None:
    for each, given in in_pairs(found, expected):
        wanted = np.asarray(given)
        assert each.shape == wanted.shape and each.dtype == wanted.dtype
        np.testing.assert_allclose(each, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        *((FLOATS, function) for function in (under_masks, written_in_place, extracted, pieces)),
        *((FLOATS, function) for function in (kept_when_written, windows, parts, best_at)),
        *((ROWS, function) for function in (rows_under_masks, by_places, blocks, known_ones)),
        (ROWS, squares_fitted),
        *((NUMBERS, function) for function in (chosen_by_numbers, in_sets)),
        *((BITS, bits), (BYTES, unpacked)),
    ],
)
def test_it_gives_what_numpy_gives(kind: Any, function: Callable[..., Any]) -> None:
    local = fl.local_computation(kind)(function)
    again = fl.framework.ConcreteComputation.from_bytes(local.to_bytes())
    values = [given(kind, seed) for seed in range(5)]
    wanted = [function(value) for value in values]
    for value, expected in zip(values, wanted, strict=True):
        for run in (local, again):
            same(run(value), expected)

    @fl.federated_computation(fl.FederatedType(kind, fl.CLIENTS))
    def of_clients(value: Any) -> Any:
        return fl.federated_map(local, value)

    for context in (LocalContext(), LocalContext(exact=True)):
        with fl.framework.get_context_stack().install(context):
            for found, expected in zip(of_clients(values), wanted, strict=True):
                same(found, expected)


def test_numbers_beyond_the_choices_are_an_error_when_the_program_runs() -> None:
    @fl.local_computation(NUMBERS)
    def chosen(i: Any) -> Any:
        return np.choose(i, [1, 2])

    assert chosen(np.array([0, 1, 0, 1, 0, 1])).tolist() == [1, 2, 1, 2, 1, 2]
    with pytest.raises((IndexError, RuntimeError), match="index"):
        chosen(np.arange(6))


def test_counts_that_differ_are_an_error_when_the_program_runs() -> None:
    @fl.local_computation(FLOATS)
    def both(x: Any) -> Any:
        return np.sum(x[x > 0] + x[x < 0])

    assert both(np.array([1, -2, 0, 0, 5, -1], f32)) == 3
    with pytest.raises(RuntimeError, match="must match the size"):
        both(np.array([1, 2, 3, 0, -5, -1], f32))


def test_diagonals_are_filled() -> None:
    def both(x: Any) -> Any:
        product, wide = np.outer(x, x), np.ones((2, 3), np.int32)
        np.fill_diagonal(product, 0)
        np.fill_diagonal(wide, x[0])
        return product, wide

    x = np.arange(1, 7, dtype=f32)
    for found, expected in zip(fl.local_computation(FLOATS)(both)(x), both(x), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(TypeError, match="a matrix and one value"):
        fl.local_computation(lambda x: np.fill_diagonal(x * 1, 0), FLOATS)


def test_writes_to_arrays_from_outside_are_refused() -> None:
    outside = np.zeros(6, f32)
    for write in (np.copyto, np.putmask, np.place):

        def writes(x: Any) -> Any:
            write(outside, x > 0, x) if write is not np.copyto else write(outside, x)  # noqa: B023
            return x

        with pytest.raises(TypeError, match="from outside"):
            fl.local_computation(FLOATS)(writes)
    assert not outside.any()
