"""Sums and means keep their precision, however many clients there are."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import stator.federated as fl

ml_dtypes = pytest.importorskip("ml_dtypes")

FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def reductions(of: Any, weight: Any = np.float32) -> Any:
    @fl.federated_computation(
        fl.FederatedType(of, fl.CLIENTS), fl.FederatedType(weight, fl.CLIENTS)
    )
    def reduce(values, weights):
        return {
            "sum": fl.federated_sum(values),
            "mean": fl.federated_mean(values),
            "weighted": fl.federated_mean(values, weights),
        }

    return reduce


def rounded(exact: Fraction, dtype: Any) -> Any:
    """The number of an element type next to an exact one; of two, the even one."""
    near = np.array(float(exact), dtype)
    candidates = [near]
    for end in (-np.inf, np.inf):
        candidates.append(np.nextafter(near, np.array(end, dtype)).astype(dtype))
    key = lambda number: (  # noqa: E731
        abs(Fraction(float(number)) - exact),
        int(number.reshape(1).view(f"u{number.itemsize}")[0]) & 1,
    )
    return min((number for number in candidates if math.isfinite(float(number))), key=key)


@pytest.mark.parametrize("shape", [(), (1,), (2, 2)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_they_are_rounded_once(dtype: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    reduce = reductions((dtype, shape))
    for count in (1, 3, 100):
        values = [np.asarray(rng.normal(size=shape) * 3, dtype) for _ in range(count)]
        weights = [np.float32(weight) for weight in rng.integers(1, 9, count)]
        found = reduce(values, weights)
        for at in np.ndindex(shape):
            exact = [Fraction(float(value[at])) for value in values]
            weighted = sum(x * int(w) for x, w in zip(exact, weights, strict=True))
            expected = {
                "sum": sum(exact),
                "mean": sum(exact) / count,
                "weighted": weighted / sum(int(weight) for weight in weights),
            }
            for name, number in expected.items():
                got = np.asarray(found[name])[at]
                assert got.dtype == dtype
                # Products and quotients of 64-bit floats are rounded too.
                if dtype is np.float64 and name != "sum":
                    large = max(abs(x) for x in exact)
                    assert abs(Fraction(float(got)) - number) <= large * Fraction(1, 2**52)
                else:
                    assert got == rounded(number, dtype), (name, float(number))


def total(of: Any, values: Any) -> Any:
    return fl.federated_computation(fl.federated_sum, fl.FederatedType(of, fl.CLIENTS))(values)


def mean(of: Any, values: Any) -> Any:
    of_clients = fl.FederatedType(of, fl.CLIENTS)
    return fl.federated_computation(lambda values: fl.federated_mean(values), of_clients)(values)


def test_many_small_numbers_count() -> None:
    assert total(np.float32, [0.1] * 100_000) == np.float32(100_000 * float(np.float32(0.1)))
    assert total(np.float32, [2.0**24] + [1.0] * 1000) == np.float32(2**24 + 1000)
    assert total(np.float64, [2.0**53] + [1.0] * 1000) == 2.0**53 + 1000
    assert total((np.float64, (1,)), [[2.0**53]] + [[1.0]] * 1000)[0] == 2.0**53 + 1000
    assert total(np.float64, [1e300, 1.0, -1e300]) == 1.0
    assert total(np.complex64, [2.0**24 + 1j] + [1 - 1j] * 10) == np.complex64(2**24 + 10 - 9j)


def test_means_do_not_overflow() -> None:
    big = np.float16(60000)
    assert mean(np.float16, [big] * 10) == big
    np.testing.assert_array_equal(mean((np.float16, (2,)), [[big, -big]] * 10), [big, -big])
    assert mean(ml_dtypes.bfloat16, [3.0] * 1000) == 3


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_infinities_and_what_is_no_number() -> None:
    inf, nan = np.inf, np.nan
    for values, expected in (
        ([1, inf], inf),
        ([-inf, 1], -inf),
        ([inf, -inf], nan),
        ([nan, 1], nan),
        ([3e38, 3e38], inf),
    ):
        np.testing.assert_equal(total(np.float32, values), np.float32(expected))
        found = total((np.float32, (1,)), [[value] for value in values])
        np.testing.assert_equal(found[0], np.float32(expected))


def test_integers_wrap_as_before() -> None:
    wide = [np.full(2, 100, np.int8)] * 3
    np.testing.assert_array_equal(total((np.int8, (2,)), wide), np.full(2, 44, np.int8))
    assert total(np.int64, [2**62, 2**62, 1]) == -(2**63) + 1
    assert total(np.uint64, [2**63, 2**63 + 5]) == 5


def test_torch_tensors_and_sequences() -> None:
    torch = pytest.importorskip("torch")
    of = fl.TensorType(ml_dtypes.bfloat16, [1])
    values = [torch.full((1,), 256.0, dtype=torch.bfloat16)] + [
        torch.ones(1, dtype=torch.bfloat16)
    ] * 256
    assert float(total(of, values)[0]) == 512
    assert float(mean(of, [values[0]] * 1000)[0]) == 256

    @fl.federated_computation(fl.SequenceType(np.float32))
    def in_a_row(numbers):
        return fl.sequence_sum(numbers)

    assert in_a_row([2.0**24] + [1.0] * 1000) == 2**24 + 1000


def test_bfloat16_weights() -> None:
    reduce = reductions(np.float32, ml_dtypes.bfloat16)
    assert reduce([1.0, 4.0], [1.0, 2.0])["weighted"] == 3
