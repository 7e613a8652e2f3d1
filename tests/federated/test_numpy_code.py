"""NumPy code in local computations: traced, sent, run at once; it gives what NumPy gives."""

from __future__ import annotations

import traceback
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import stator.federated as fl
from stator.errors import ProgramError
from stator.federated.execution import LocalContext

from .leaves import in_pairs

f32, f64, i32, i64 = np.float32, np.float64, np.int32, np.int64
FLOATS, INTEGERS = fl.TensorType(f32, [None, 4]), fl.TensorType(i32, [None, 4])
SQUARE = fl.TensorType(f64, [3, 3])
WEIGHTS = np.array([[1.0, -2.0], [0.5, 0.25], [3.0, 1.0], [0.0, -1.0]])
SHIFT = np.array([1, 2, 3, 4], i32)
SCALE = f32(0.5)
EDGES = np.array([-1.0, 0.0, 0.5, 2.0])

INTEGRAL: Callable[..., Any] = getattr(np, "trapezoid", None) or np.trapz


def quietly(x: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(np.abs(x)) / x


def chosen_elements(x: Any) -> Any:
    chosen = x[x > -9]
    mask = np.abs(x) > 1
    return (
        np.sum(x[x > 0]),
        x[mask].sum(),
        (x[mask] * 2 - x[mask].mean()).std(),
        (x[mask] * (x + 1)[mask]).sum(),
        np.sqrt(np.abs(x[mask])).mean(),
        len(x[mask]),
        x[mask].size,
        chosen.max() - np.min(chosen),
        np.ptp(chosen),
        chosen.argmax(),
        chosen.argmin(),
        chosen[0],
        chosen[-1],
        chosen[np.argmax(chosen)],
        np.var(chosen, ddof=1),
        np.median(chosen),
        np.any(x[mask] > 0),
        np.all(chosen > 0),
        np.count_nonzero(chosen),
        np.prod(chosen),
        np.sum(chosen[chosen > 0]),
        np.clip(chosen, 0, 1).sum(),
        np.sort(chosen)[1],
        len(np.unique(x[mask])),
    )


def uniques(x: Any) -> Any:
    values, counts = np.unique(np.round(x), return_counts=True)
    _, first, inverse = np.unique(x[0], return_index=True, return_inverse=True)
    return (
        len(values),
        values.sum(),
        values[np.argmax(counts)],
        counts.max(),
        len(values[counts > 1]),
        np.sum(values[counts == 1]),
        values.shape[0],
        first.sum(),
        inverse,
        (counts / counts.sum() * np.log(counts / counts.sum())).sum(),
        len(np.unique(x / 0 * 0 if x.dtype == f32 else x)),
    )


def at_places(x: Any) -> Any:
    counts = np.zeros(5)
    np.add.at(counts, np.abs(x).astype(int).clip(0, 4), 1)
    table = np.zeros((2, 4), x.dtype)
    np.add.at(table, ([0, 1, 1], [2, 3, 3]), x[0, :3])
    np.subtract.at(table, 0, x[1])
    return counts, table


# Functions of rows of four floats, of integers from -3 to 3, or of a symmetric matrix.
OF_ROWS: dict[str, Callable[..., Any]] = {
    "means": lambda x: (np.mean(x), np.mean(x, axis=0), x.mean(1), np.mean(x, 1, keepdims=True)),
    "sums": lambda x: (
        np.sum(x),
        x.sum(axis=(0, 1)),
        np.sum(x, axis=-1, dtype=f64),
        x.prod(axis=1),
    ),
    "spreads": lambda x: (np.var(x), np.std(x, axis=0), x.std(axis=1, ddof=1), x.var(ddof=0)),
    "extremes": lambda x: (np.max(x), x.min(axis=0), np.ptp(x, axis=1), np.amax(x, 0)),
    "places": lambda x: (
        np.argmax(x, axis=1),
        x.argmin(axis=0),
        np.argsort(x, axis=1, kind="stable"),
    ),
    "orders": lambda x: (np.sort(x, axis=0), np.median(x, axis=0), np.median(x)),
    "quantiles": lambda x: (
        np.quantile(x, 0.3, axis=0),
        np.percentile(x, [10, 50, 90], axis=0),
        np.percentile(x, 25, axis=1, keepdims=True),
        np.quantile(x, [0.0, 1.0]),
        np.quantile(x, 0.4, method="higher"),
        np.median(x, axis=-1, keepdims=True),
        np.median(np.sqrt(x), axis=0),
    ),
    "running": lambda x: (np.cumsum(x, axis=0), x.cumsum(), np.diff(x, axis=1)),
    "truths": lambda x: (np.any(x > 1), np.all(x > -5, axis=0), np.count_nonzero(x > 0, axis=1)),
    "averages": lambda x: (
        np.average(x, axis=1, weights=SHIFT),
        np.average(x, axis=0),
        np.average(x, weights=np.abs(x) + 1),
    ),
    "constants": lambda x: (x - SHIFT, SHIFT - x, SCALE * x, x / SCALE, x > SHIFT, SHIFT >= x),
    "numbers": lambda x: (
        np.negative(x),
        2 * x,
        x * 2.5,
        1 - x,
        2 / (x + 9),
        x / 3,
        (x + 9) ** 2,
        -x,
        abs(x),
        +x,
    ),
    "products": lambda x: (x @ WEIGHTS, x.dot(x.T), np.outer(x[0], x[0]), np.inner(x, x)),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x),
    "items": lambda x: (x[0], x[:, 1], x[-1, 1:3], x[:, None, :], x[..., 0], x[::-1], x[:, ::-1]),
    "by_arrays": lambda x: (x[:, np.array([2, 0])], np.take(x, [3, 1], axis=1), x[:, [1, 1]]),
    "chosen": lambda x: (np.where(x > 0, x, 0), np.where(x > 0, 1.5, x), np.clip(x, -1, 1)),
    "lengths": lambda x: (x.sum() / len(x), x * x.shape[1], np.float32(len(x)), x.mean() * x.size),
    "joined": lambda x: (
        np.concatenate([x, x * 2]),
        np.stack([x[0], x[0] + 1], axis=1),
        np.vstack([x[0], x[0]]),
        np.hstack([x[0], x[0]]),
    ),
    "shaped": lambda x: (
        x.reshape(-1),
        np.ravel(x),
        x.T,
        np.transpose(x),
        np.expand_dims(x, 0),
        x[:, :, None].squeeze(2),
        np.tile(x[0], 2),
        np.repeat(x[0], 2),
        np.flip(x, 1),
        np.roll(x, 1, axis=1),
        np.broadcast_to(x[0], (2, 4)),
    ),
    "made": lambda x: (
        x + np.zeros(4),
        x * np.ones(4, f32),
        x + np.arange(4),
        x @ np.eye(4),
        x * np.linspace(0, 1, 4),
        np.zeros_like(x),
        np.full((2, 2), 3.5) + x[0, 0],
        np.zeros((x.shape[0], 2)) + x[:, :2],
    ),
    "kinds": lambda x: (
        x.astype(f64),
        x.astype(int),
        np.asarray(x, dtype="float64"),
        x.astype(bool),
    ),
    "norms": lambda x: (
        np.linalg.norm(x),
        np.linalg.norm(x, axis=1),
        np.linalg.norm(x, axis=1, keepdims=True),
        np.linalg.norm(x, 1, axis=0),
    ),
    "rounded": lambda x: (np.round(x / 3, 1), np.floor(x), np.ceil(x), np.rint(x), np.sign(x)),
    "counts": lambda x: (
        np.histogram(x, bins=6, range=(-3, 3))[0],
        np.histogram(x, bins=EDGES)[0],
        np.histogram(x, bins=4, range=(-2, 2))[1],
        np.bincount((np.abs(x[:, 0]) % 3).astype(i64), minlength=4),
        np.searchsorted(EDGES, x[:, 0], side="right"),
    ),
    "parts": lambda x: (
        np.pad(x, 1),
        np.pad(x, ((0, 0), (1, 2)), constant_values=5),
        np.split(x, 2, axis=1)[1],
        np.split(x, [1, 3], axis=1)[1],
        np.moveaxis(x, 0, 1),
        np.atleast_2d(x[0]),
        np.atleast_1d(x[0, 0]),
    ),
    "looked_up": lambda x: (
        np.digitize(x, EDGES),
        np.digitize(x[:, 0], EDGES, right=True),
        np.interp(x[:, 0], EDGES, [1.0, 3.0, 2.0, 5.0]),
        np.isin(x, SHIFT),
        np.isclose(x, x + 1e-9),
    ),
    "sizes": lambda x: (x / np.size(x, 1), x / np.ndim(x), x.sum(axis=1) / np.shape(x)[1]),
    "lists": lambda x: (np.array([x.sum(), x.max()]), np.mean([x[0], x[1]], axis=0), sum([x, x])),
    "more_products": lambda x: (
        np.tensordot(x, WEIGHTS, axes=1),
        np.convolve(x[0] * 1.5, [1.0, -1.0]),
        np.convolve(x[0] * 1.5, [0.5, 0.5], mode="valid"),
        np.vdot(x[0], x[1]),
    ),
    "covariance": lambda x: np.cov(x, rowvar=False),
    "reductions": lambda x: (
        np.add.reduce(x),
        np.add.reduce(x > 0, axis=1),
        np.multiply.reduce(np.abs(x) + 1, axis=1),
        np.maximum.reduce(x, axis=(0, 1)),
        np.minimum.reduce(x, axis=None, keepdims=True),
        np.logical_or.reduce(x > 1),
        np.logical_and.reduce(x > -9, axis=1),
        np.logaddexp.reduce(x / 1.0, axis=1),
    ),
    "accumulated": lambda x: (
        np.add.accumulate(x),
        np.multiply.accumulate(x, axis=1),
        np.maximum.accumulate(x, axis=0),
        np.minimum.accumulate(x, 1),
    ),
    "outer": lambda x: (
        np.multiply.outer(x[0], x),
        np.subtract.outer(x[:, 0], SHIFT),
        np.less.outer(x[0], x[1]),
        np.add.outer(x[0], 2),
    ),
    "as_by_default": lambda x: (
        np.sort(x, axis=0, kind="stable"),
        np.add(x, 1, casting="same_kind", order="K", subok=True, where=True, dtype=None),
        np.std(x, mean=np._NoValue),
    ),
    "differences": lambda x: (
        np.diff(x, axis=1, prepend=0, append=x[:, :1]),
        np.diff(x, axis=0, prepend=7),
        np.diff(x > 0, axis=1),
        np.ediff1d(x, to_begin=0, to_end=[1, 2]),
        np.gradient(x, axis=1),
        np.gradient(x[0] * 1.5, 0.5),
        np.gradient(x, axis=0),
        INTEGRAL(x, axis=1),
        INTEGRAL(x[0], dx=0.5),
        INTEGRAL(x[0], EDGES),
    ),
    "polynomials": lambda x: (
        np.polyval([1.0, -2.0, 3.0], x),
        np.polyval(SHIFT, x),
        np.vander(x[0], 3),
        np.vander(x[0], increasing=True),
        np.polyfit(EDGES, x[0], 2),
        np.polyfit(EDGES, x[:2].T, 1),
    ),
    "correlations": lambda x: (
        np.cov(x, rowvar=False, bias=True),
        np.cov(x[0], x[1]),
        np.corrcoef(x.T * 1.5 + np.outer(EDGES, np.arange(len(x)))),
        np.corrcoef(x[0], EDGES),
        np.correlate(x[0], [1.0, 2.0]),
        np.correlate(x[0] * 1.5, [1.0, 2.0, 1.0], mode="full"),
    ),
    "counts_of_two": lambda x: (
        np.histogram2d(x[:, 0], x[:, 1], bins=3, range=[[-2, 2], [-3, 3]])[0],
        np.histogram2d(x[:, 0], x[:, 1], bins=[EDGES, EDGES])[0],
    ),
    "alike": lambda x: (
        np.allclose(x, x + 1e-9),
        np.array_equal(x, x),
        np.array_equal(x, x[:, :2]),
        np.array_equal(x, x + 1),
    ),
    "parted": lambda x: (
        np.partition(x, 1, axis=1)[:, 1],
        np.take_along_axis(x, np.argpartition(x, 0, axis=1), axis=1)[:, 0],
        np.take_along_axis(x, np.argmax(x, axis=1)[:, None], axis=1)[:, 0],
        np.lexsort((x[0] * 0, x[0])),
        np.lexsort((np.arange(4), -np.abs(x[0]) // 2)),
    ),
    "selected": lambda x: (
        np.select([x < -1, x > 1], [x * 2, 0.5], 7),
        np.select([x > 0], [x]),
        np.heaviside(x, 0.5),
    ),
    "transforms": lambda x: (
        np.abs(np.fft.fft(x, axis=1)),
        np.fft.rfft(x[0]).imag,
        np.fft.irfft(np.fft.rfft(x, axis=1), axis=1),
        np.fft.ifft(x[0], norm="ortho").real,
        np.fft.fftshift(x, axes=1) * np.fft.fftfreq(4, 0.5),
        np.fft.rfftfreq(6) + x[0, 0],
    ),
    "some_means": lambda x: (
        np.mean(x, where=x > 0),
        np.var(x, axis=0, where=x > -2, ddof=1),
        np.std(x, where=[True, False, True, True]),
    ),
    "chosen_elements": chosen_elements,
    "chosen_rows": lambda x: (
        x[x[:, 0] > -2].sum(axis=0),
        np.mean(x[x[:, 0] > -2], axis=0),
        x[x[:, 0] > -9].std(),
        np.median(x[x[:, 0] > -9], axis=0),
        len(x[x[:, 1] > 0]) + x[x[:, 1] > 0].shape[0],
        x[x[:, 1] > 9].sum(axis=0),
        x[x[:, 1] > 9].mean(),
        np.median(x[x > 9]),
    ),
    "uniques": uniques,
    "places_of": lambda x: (
        x[0][np.where(x[0] > 0)].sum(),
        x[0][np.where(x[0] > 0)[0]].sum(),
        np.flatnonzero(x > 0).sum(),
        len(np.nonzero(x[0])[0]),
        x[np.flatnonzero(x[:, 0] > 0)].sum(axis=0),
    ),
    "quietly": quietly,
    "at_places": at_places,
    "padded": lambda x: (
        np.pad(x, ((0, 0), (2, 1)), mode="edge"),
        np.pad(x, ((1, 1), (3, 2)), mode="reflect"),
        np.pad(x, ((0, 0), (5, 6)), mode="symmetric"),
        np.pad(x, ((0, 0), (5, 6)), mode="wrap"),
        np.pad(x, 1, mode="edge"),
    ),
    "more_or_fewer": lambda x: (
        np.append(x, x),
        np.append(x, x[:1], axis=0),
        np.delete(x, 1, axis=1),
        np.delete(x, -1, axis=0),
        np.delete(x, 2),
        np.insert(x, 0, 7, axis=0),
        np.insert(x, 2, x[:, 0], axis=1),
        np.insert(x[0], -1, 3),
    ),
    "grids": lambda x: (
        *np.meshgrid(x[0], [1.0, 2.0]),
        *np.meshgrid(x[0], EDGES, SHIFT, indexing="ij"),
        np.tri(3, 4, 1) * x[0, 0],
        x[0] * np.logspace(0, 2, 4),
    ),
    "turned": lambda x: (
        np.fliplr(x),
        np.flipud(x),
        np.rot90(x),
        np.dstack([x[0], x[1]]),
        np.array_split(x, 3, axis=1)[0],
        np.hsplit(x, 2)[1],
        np.hsplit(x[0], [1])[1],
        np.vsplit(x, [1])[0],
        np.apply_along_axis(lambda row: row.max() - row.min(), 0, x),
        np.apply_along_axis(lambda row: np.stack([row[0], row.sum()]), 0, x),
    ),
    "products_of_vectors": lambda x: (
        np.kron(x[0], x[:, :2]),
        np.cross(x[:, :3], x[:, 1:]),
        np.linalg.multi_dot([x, WEIGHTS, np.transpose(WEIGHTS)]),
    ),
    "of_some": lambda x: (
        np.sum(x, axis=0, where=x > 0),
        np.max(x, axis=0, initial=1),
        np.min(x, initial=-1),
    ),
}
OF_FLOATS: dict[str, Callable[..., Any]] = {
    "functions": lambda x: (
        np.sqrt(np.abs(x)),
        np.exp(x),
        np.log1p(np.square(x)),
        np.tanh(x),
        np.arctan2(x, 2.0),
        np.hypot(x, 1),
        np.maximum(x, 0),
        np.minimum(x, SCALE),
        np.power(np.abs(x), 1.5),
        np.logaddexp(x, 0),
    ),
    "not_numbers": lambda x: (np.isnan(x / x), np.isfinite(1 / x), np.nan_to_num(x / 0 * 0)),
    "left_out": lambda x: (
        np.nansum(np.sqrt(x), axis=0),
        np.nanmean(np.where(x > 9, x, x), axis=1),
        np.cbrt(x),
    ),
    "known": lambda x: (
        np.nanstd(np.where(x > 0.5, np.nan, x), axis=0),
        np.nanvar(np.where(x > 0.5, np.nan, x), ddof=1),
        np.nanmax(np.where(x > 0.5, np.nan, x), axis=0),
        np.nanmin(np.where(x > -9, np.nan, x)),
    ),
    "angles": lambda x: (
        np.degrees(x),
        np.radians(x),
        np.fabs(x),
        np.reciprocal(x),
        np.signbit(x),
        np.fmod(x, 2),
        np.angle(np.fft.fft(x[0] + EDGES)),
    ),
    "softmax": lambda x: (
        np.exp(x - x.max(axis=1, keepdims=True))
        / np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)
    ),
}
OF_INTEGERS: dict[str, Callable[..., Any]] = {
    "divided": lambda x: (x / 2, x // 2, x % 3, np.sqrt(np.abs(x)), np.exp(x), x / SHIFT),
    "bits": lambda x: (x & 1, x | 4, x ^ 3, ~x, np.bitwise_and(x, SHIFT)),
    "moved_bits": lambda x: (
        np.abs(x) << 2,
        x >> 1,
        1 << np.abs(x),
        64 >> np.abs(x),
        np.left_shift(np.abs(x), SHIFT),
        np.right_shift(x, 1),
        np.gcd(x, 6),
        np.lcm(x, SHIFT),
    ),
    "one_hot": lambda x: np.eye(7)[x[:, 0] + 3],
    "true": lambda x: (x > 0) & (x < 3) | (x == -1),
}
OF_SQUARES: dict[str, Callable[..., Any]] = {
    "solved": lambda a: (np.linalg.inv(a), np.linalg.solve(a, np.arange(3.0)), np.linalg.det(a)),
    "powers": lambda a: (
        np.linalg.matrix_power(a, 3),
        np.linalg.matrix_power(a, -1),
        np.linalg.matrix_power(np.round(a).astype(i64), 2),
        np.linalg.matrix_rank(a),
        np.linalg.matrix_rank(a * np.array([1, 0, 1])),
        tuple(np.linalg.slogdet(a)),
        np.linalg.svd(a, compute_uv=False),
    ),
    "factors": lambda a: (np.linalg.cholesky(a), np.linalg.eigh(a)[0], np.linalg.svd(a)[1]),
    "parts": lambda a: (np.trace(a), np.diag(a), np.triu(a), np.tril(a, -1), a.diagonal()),
}


def written(x: Any) -> Any:
    """Writes to what it has made."""
    own = x.copy()
    own[0] = 0
    own[:, 1] *= 2
    own += 1
    own[own > 1.5] = -1
    own.sort(axis=0)
    held = np.zeros((2, 4))
    for at in range(2):
        held[at] = x.mean(axis=0) + at
    return own, held


def written_to(x: Any) -> Any:
    """Has results written to what it has made."""
    doubled = np.empty_like(x)
    assert np.multiply(x, 2, out=doubled) is doubled
    np.exp(doubled, out=doubled)
    shares = np.divide(1.0, x, out=np.zeros_like(x), where=x > 0)
    total = np.empty(4, dtype=f32)
    np.add.reduce(x, axis=0, out=total)
    rows = np.zeros((len(x), 4), dtype=f32)
    np.cumsum(x, axis=0, out=rows)
    return doubled, shares, total, rows, np.sum(x, out=None)


def drawing(x: Any) -> Any:
    """Draws by generators of its own."""
    drawn = np.random.default_rng(7)
    turned = x @ drawn.normal(size=(4, 2)).astype(f32)
    order = drawn.permutation(4)
    signs = drawn.choice([-1.0, 1.0], size=4)
    again = np.random.default_rng([1, 2])
    return (
        turned,
        x[:, order] * signs,
        drawn.random(),
        drawn.integers(0, 9, size=(2, 2)),
        again.permutation(x[0]),
        again.choice(x[1], 3),
        again.uniform(-1, 1, 4),
    )


def given(kind: Any, rows: int, seed: int = 0) -> Any:
    drawn = np.random.default_rng(seed)
    if kind is FLOATS:
        return drawn.normal(size=(rows, 4)).astype(f32)
    if kind is INTEGERS:
        return drawn.integers(-3, 4, (rows, 4)).astype(i32)
    factor = drawn.normal(size=(3, 3))
    return factor @ factor.T + np.eye(3)


def same(found: Any, expected: Any) -> None:
    for each, given in in_pairs(found, expected):
        wanted = np.asarray(given)
        assert each.dtype == wanted.dtype and each.shape == wanted.shape
        tolerance = 1e-5 if each.dtype == f32 else 1e-10
        np.testing.assert_allclose(each, wanted, rtol=tolerance, atol=tolerance)


CASES = [
    *((FLOATS, name, function) for name, function in {**OF_ROWS, **OF_FLOATS}.items()),
    *((INTEGERS, name, function) for name, function in {**OF_ROWS, **OF_INTEGERS}.items()),
    *((SQUARE, name, function) for name, function in OF_SQUARES.items()),
    *((FLOATS, function.__name__, function) for function in (written, written_to, drawing)),
]


@pytest.mark.parametrize(
    ("kind", "function"),
    [(kind, function) for kind, _, function in CASES],
    ids=[f"{name}-{np.dtype(kind.dtype)}" for kind, name, _ in CASES],
)
def test_it_gives_what_numpy_gives(kind: Any, function: Callable[..., Any]) -> None:
    local = fl.local_computation(kind)(function)
    again = fl.framework.ConcreteComputation.from_bytes(local.to_bytes())
    with np.errstate(all="ignore"):
        for rows in (3, 5, 2):
            value = given(kind, rows, rows)
            for run in (local, again):
                same(run(value), function(value))

    # Clients with as many rows run at once.
    values = [given(kind, rows, seed) for seed, rows in enumerate((4, 2, 4, 4, 2))]

    @fl.federated_computation(fl.FederatedType(kind, fl.CLIENTS))
    def of_clients(value: Any) -> Any:
        return fl.federated_map(local, value)

    with np.errstate(all="ignore"):
        for context in (LocalContext(), LocalContext(exact=True)):
            with fl.framework.get_context_stack().install(context):
                for found, value in zip(of_clients(values), values, strict=True):
                    same(found, function(value))


def test_steps_of_a_regression_are_sent() -> None:
    model = OrderedDict(w=fl.TensorType(f64, [4]), b=fl.TensorType(f64))
    rows = OrderedDict(x=fl.TensorType(f64, [None, 4]), y=fl.TensorType(f64, [None]))

    def fit(m: Any, d: Any) -> Any:
        w, b = m["w"], m["b"]
        for _ in range(4):
            off = d["x"] @ w + b - d["y"]
            w = w - 0.1 * (d["x"].T @ off) / len(off)
            b = b - 0.1 * np.mean(off)
        return OrderedDict(w=w, b=b), np.float64(len(d["y"]))

    local = fl.local_computation(model, rows)(fit)
    assert str(local.type_signature.result) == "<<w=float64[4],b=float64>,float64>"

    @fl.federated_computation(
        fl.FederatedType(model, fl.SERVER), fl.FederatedType(rows, fl.CLIENTS)
    )
    def a_round(m: Any, d: Any) -> Any:
        made = fl.federated_map(local, (fl.federated_broadcast(m), d))
        return fl.federated_mean(made[0], made[1])

    drawn = np.random.default_rng(0)
    clients = [{"x": drawn.normal(size=(n, 4)), "y": drawn.normal(size=n)} for n in (3, 5, 5)]
    found = {"w": np.zeros(4), "b": f64(0)}
    read = fl.framework.ConcreteComputation.from_bytes(a_round.to_bytes())
    for run in (a_round, read):
        made = [fit(found, client) for client in clients]
        total = sum(count for _, count in made)
        expected = {k: sum(m[k] * count for m, count in made) / total for k in ("w", "b")}
        found = run(found, clients)
        np.testing.assert_allclose(found["w"], expected["w"], rtol=1e-12)
        np.testing.assert_allclose(found["b"], expected["b"], rtol=1e-12)


def test_pytorch_code_stays_what_it_is() -> None:
    local = fl.local_computation(INTEGERS)(lambda x: x.sum(0) / 2)
    assert local.type_signature.result.dtype == f32
    assert (
        fl.local_computation(INTEGERS)(lambda x: np.sum(x, 0) / 2).type_signature.result.dtype
        == f64
    )


def test_arrays_from_outside_are_constants_of_pytorch_code() -> None:
    bias = np.array([1.0, 2.0], f32)

    def scored(x: Any) -> Any:
        own = torch.tensor(bias)
        own[0] = 5
        weights = torch.tensor(WEIGHTS, dtype=torch.float32)
        return x @ weights + torch.from_numpy(bias) * own + torch.as_tensor(SCALE)

    local = fl.local_computation(FLOATS)(scored)
    again = fl.framework.ConcreteComputation.from_bytes(local.to_bytes())
    value = given(FLOATS, 3)
    expected = scored(torch.from_numpy(value)).numpy()
    bias[:] = 0
    for run in (local, again):
        same(run(value), expected)

    def writing(x: Any) -> Any:
        held = torch.from_numpy(bias)
        held += 1
        return x[:, :2] + held

    with pytest.raises(ProgramError, match="a tensor from outside"):
        fl.local_computation(FLOATS)(writing)
    assert not bias.any()


def test_tensors_in_containers_are_arrays_too() -> None:
    local = fl.local_computation(fl.SequenceType(fl.TensorType(f32, [2])))(
        lambda rows: {"middle": np.median(rows, axis=0), "count": np.int64(len(rows))}
    )
    found = local([f32([1, 2]), f32([3, 9]), f32([4, 1])])
    assert found["middle"].tolist() == [3, 2] and found["count"] == 3


def iterated(x: Any) -> Any:
    return [each for each in np.unique(x)]  # here


def decides(x: Any) -> Any:
    return np.sum(x) if np.mean(x) > 0 else np.min(x)  # here


def reads(x: Any) -> Any:
    return x * len(str(float(np.mean(x))))  # here


def writes(x: Any) -> Any:
    total = np.sum(x)
    x[0] = 0  # here
    return total


def draws(x: Any) -> Any:
    return np.mean(x) + np.random.normal()  # here


def unknown(x: Any) -> Any:
    return np.mean(x) + np.loadtxt("nowhere")  # here


OUTSIDE = np.zeros(4, f32)
GENERATOR = np.random.default_rng(3)


def writes_outside(x: Any) -> Any:
    return np.sum(x, axis=0, out=OUTSIDE)  # here


def draws_outside(x: Any) -> Any:
    return np.mean(x) + GENERATOR.normal()  # here


REFUSED = [
    iterated,
    decides,
    reads,
    writes,
    draws,
    unknown,
    writes_outside,
    draws_outside,
]


@pytest.mark.parametrize("function", REFUSED)
def test_what_cant_be_traced_is_said_at_its_line(function: Callable[..., Any]) -> None:
    with pytest.raises((ProgramError, TypeError)) as met:
        fl.local_computation(function, FLOATS)
    frames = [each for each in traceback.extract_tb(met.tb) if each.filename == __file__]
    assert "# here" in (frames[-1].line or "")
    assert not any("stator/_program" in each.filename for each in traceback.extract_tb(met.tb))


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: np.std(x, mean=0.0), "np.std has no parameter `mean` in tensor programs"),
        (lambda x: np.sum(x, initial=1.0), "np.sum has no parameter `initial`"),
        (lambda x: np.add(x, 1, casting="unsafe"), "np.add has no parameter `casting`"),
        (lambda x: np.array(np.sum(x), order="F"), "np.array has no parameter `order`"),
        (lambda x: np.sum(x).mean(extra=1), "np.mean has no parameter `extra`"),
        (lambda x: np.add.reduce(x, initial=1), "np.add.reduce has no parameter `initial`"),
        (lambda x: np.hypot.reduce(x), "np.hypot.reduce isn't there in tensor programs"),
        (lambda x: np.divide.at(np.zeros(3), 0, np.sum(x)), "np.divide.at isn't there"),
        (lambda x: np.random.default_rng().normal() + np.sum(x), "default_rng in a tensor program"),
        (lambda x: np.random.default_rng(np.sum(x)).normal(), "takes numbers, not arrays"),
        (lambda x: np.mean(x) + np.random.rand(3), "np.random.rand in a tensor program"),
        (lambda x: np.histogram(x, bins="auto"), "tensor programs have no element type <U4"),
    ],
)
def test_what_numpy_has_besides_is_said_with_what_to_do(
    function: Callable[..., Any], text: str
) -> None:
    with pytest.raises(TypeError) as met:
        fl.local_computation(function, FLOATS)
    assert text in str(met.value)
    assert "\n  hint: " in str(met.value) and "`result=`" in str(met.value)
    frames = [each for each in traceback.extract_tb(met.tb) if each.filename == __file__]
    assert "lambda x: " in (frames[-1].line or "")


def test_a_result_has_a_size_that_is_known() -> None:
    with pytest.raises((ProgramError, TypeError), match="as many elements as its data say"):
        fl.local_computation(lambda x: np.unique(np.round(x)), FLOATS)


def test_extremes_of_no_elements_are_errors_when_the_program_runs() -> None:
    local = fl.local_computation(lambda x: np.max(x[x > 0]), FLOATS)
    assert local(-given(FLOATS, 3)) == np.max(-given(FLOATS, 3))
    with pytest.raises((IndexError, RuntimeError)):
        local(-np.ones((2, 4), f32))
    third = fl.local_computation(lambda x: np.sort(x[x > 0])[2], FLOATS)
    assert third(np.ones((1, 4), f32)) == 1
    with pytest.raises((IndexError, RuntimeError)):
        third(np.eye(2, 4, dtype=f32))


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("dtype", [f32, i64])
def test_extremes_beside_another_number(count: int, dtype: Any) -> None:
    def extremes(x: Any) -> Any:
        return (
            np.max(x, initial=-7),
            x.min(axis=0, initial=3),
            x.max(axis=(0, 1), initial=2, keepdims=True),
            np.max(x.sum(), initial=1),
            np.maximum.reduce(x, axis=0, initial=-1),
        )

    x = np.random.default_rng(0).normal(size=(count, 4)).astype(dtype)
    local = fl.local_computation(fl.TensorType(dtype, [None, 4]))(extremes)
    for found, expected in zip(local(x), extremes(x), strict=True):
        assert np.shape(found) == np.shape(expected)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_what_arrays_lack_is_said_with_what_to_do() -> None:
    def lacking(x: Any) -> Any:
        return np.sum(x).nonzero()

    with pytest.raises(AttributeError, match="'Array' object has no attribute 'nonzero'") as met:
        fl.local_computation(lacking, FLOATS)
    assert "With `result=` the function is called as it is" in met.value.__notes__[-1]


def test_as_many_numbers_are_drawn_as_there_are_rows() -> None:
    """There is a program for each number of rows."""

    def draws(x: Any) -> Any:
        return x[:, 0] * np.random.default_rng(1).normal(size=len(x))

    local = fl.local_computation(draws, FLOATS)
    for rows in (3, 5, 3):
        x = np.ones((rows, 4), np.float32)
        np.testing.assert_allclose(local(x), draws(x), rtol=1e-6)


def test_what_pytorch_code_cant_do_is_said_of_pytorch_code() -> None:
    def reading(x: Any) -> Any:
        return x * len(str(torch.relu(x).sum().item()))

    with pytest.raises(ProgramError, match="the text of a number"):
        fl.local_computation(reading, FLOATS)
