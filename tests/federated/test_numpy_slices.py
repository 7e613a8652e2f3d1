"""Slices of NumPy code up to numbers that data say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stator.federated as fl
from stator.errors import ProgramError

torch = pytest.importorskip("torch")

CASES: dict[str, Callable[[Any, Any], Any]] = {
    "up to a number": lambda x, n: np.sum(x[:n], axis=0),
    "from a number": lambda x, n: np.mean(x[n:, 1]),
    "the last": lambda x, n: x[-n:].max(axis=0) + np.zeros(4),
    "between two": lambda x, n: np.sum(x[n : n + 2, 1:3], axis=0),
    "columns": lambda x, n: np.sum(x[:, :n]) + np.sum(x[..., n:]),
    "a trimmed mean": lambda x, n: np.sort(x[:, 0])[1 : np.count_nonzero(x[:, 1] > -9) - 1].mean(),
    "the greatest ones": lambda x, n: np.sort(x, axis=0)[::-1][:n].sum(axis=0),
    "up to a count": lambda x, n: np.cumsum(x[:, 0])[: np.sum(x[:, 0] > 0)].sum(),
    "computed": lambda x, n: np.sum(x[: n // 2 + 1]),
    "its length": lambda x, n: np.ones(3) * len(x[:n]),
    "a copy that is written": lambda x, n: written(x, n),
}


def written(x: Any, n: Any) -> Any:
    own = x[:n].copy()
    own += 1
    return np.sum(own) + np.sum(x)


@pytest.mark.parametrize("rows", [8, None])
@pytest.mark.parametrize("name", CASES)
def test_it_gives_what_numpy_gives(name: str, rows: int | None) -> None:
    function = CASES[name]
    local = fl.local_computation(fl.TensorType(np.float64, [rows, 4]), np.int64)(function)
    for seed, size in ((0, 8), (1, 8), (2, 8 if rows else 5)):
        x = np.random.default_rng(seed).normal(size=(size, 4))
        for n in (3, 1, 4, -2):
            np.testing.assert_allclose(local(x, np.int64(n)), function(x, n), rtol=1e-12)


OF_SIZES: dict[str, Callable[[Any], Any]] = {
    "a share": lambda x: np.sum(x[: int(0.8 * len(x))], axis=0),
    "the rest": lambda x: np.mean(x[int(0.8 * len(x)) :], axis=0),
    "columns too": lambda x: np.sum(x[len(x) // 2 :, 1:3], axis=0),
    "from the end": lambda x: np.sum(x[-(x.shape[0] // 2 + 1) :], axis=0),
    "at least one": lambda x: np.sort(x, axis=0)[: max(1, int(0.1 * len(x)))].sum(axis=0),
    "trimmed": lambda x: np.sort(x[:, 0])[int(0.1 * len(x)) : len(x) - int(0.1 * len(x))].mean(),
    "written": lambda x: written_by_share(x),
    "split": lambda x: np.split(x, [int(0.8 * len(x))])[1].sum(axis=0),
}


def written_by_share(x: Any) -> Any:
    own = np.copy(x)
    own[: len(own) // 2] = 0
    own[len(own) // 2 :, 1] += 1
    return np.sum(own, axis=0)


@pytest.mark.parametrize("name", OF_SIZES)
def test_slices_up_to_numbers_of_sizes(name: str) -> None:
    function = OF_SIZES[name]
    local = fl.local_computation(fl.TensorType(np.float64, [None, 4]))(function)
    for size in (8, 5, 10, 3, 40):
        x = np.random.default_rng(size).normal(size=(size, 4))
        np.testing.assert_allclose(local(x), function(x), rtol=1e-12)


def test_a_slice_up_to_such_a_number_is_a_result() -> None:
    local = fl.local_computation(fl.TensorType(np.float64, [None]))(
        lambda x: np.copy(x[: len(x) // 2])
    )
    assert str(local.type_signature.result) == "float64[?]"
    assert local(np.arange(5.0)).tolist() == [0, 1]


def test_what_needs_the_value_of_a_size_is_a_program_for_each() -> None:
    def fixed(x: Any) -> Any:
        return np.sum(x) * len(str(int(0.8 * len(x))))

    local = fl.local_computation(fl.TensorType(np.float64, [None]), arrays="numpy")(fixed)
    for size in (3, 20, 200):
        assert local(np.ones(size)) == fixed(np.ones(size))


SCALARS: dict[str, Callable[[Any], Any]] = {
    "a constant": lambda x: torch.exp(x) * np.log(2 * np.pi),
    "of a known size": lambda x: torch.tanh(x) / np.sqrt(x.shape[1]),
    "of a size": lambda x: torch.exp(x).sum() / np.sqrt(len(x)) + np.log(len(x)),
    "rounded": lambda x: torch.relu(x)[: int(np.floor(0.8 * len(x)))].sum() + np.ceil(1.5),
    "limits": lambda x: torch.clamp(x, np.log(0.5), np.maximum(1, 2.5)) * np.square(3),
}


@pytest.mark.parametrize("name", SCALARS)
def test_functions_of_numbers_in_pytorch_code(name: str) -> None:
    function = SCALARS[name]
    local = fl.local_computation(fl.TensorType(np.float32, [None, 4]))(function)
    for size in (8, 5, 3):
        x = np.random.default_rng(size).normal(size=(size, 4)).astype(np.float32)
        found, expected = local(x), function(torch.from_numpy(x)).numpy()
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_slice_is_a_result() -> None:
    kinds = fl.TensorType(np.float64, [8, 4]), np.int64
    local = fl.local_computation(*kinds)(lambda x, n: np.copy(x[:n]))
    assert str(local.type_signature.result) == "float64[?,4]"
    assert local(np.ones((8, 4)), 3).shape == (3, 4)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x, n: np.sum(x[::n]), "has no step"),
        (lambda x, n: np.sum(x[: x[0, 0]]), "slice bounded by a tensor"),
    ],
)
def test_others_are_errors_at_the_line(function: Callable[..., Any], why: str) -> None:
    kinds = fl.TensorType(np.float64, [8, 4]), np.int64
    with pytest.raises((ProgramError, NotImplementedError), match=why):
        fl.local_computation(*kinds, arrays="numpy")(function)


def test_a_view_that_is_written_is_refused() -> None:
    def zeroed(x: Any, n: Any) -> Any:
        own = np.copy(x)
        part = own[:n]
        part *= 0
        return own

    def stored(x: Any, n: Any) -> Any:
        own = np.copy(x)
        own[:n] = 0
        return own

    for function in (zeroed, stored):
        with pytest.raises(ProgramError):
            fl.local_computation(fl.TensorType(np.float64, [8, 4]), np.int64)(function)
