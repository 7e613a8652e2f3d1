"""PyTorch code that makes arrays by NumPy of constants alone, and numbers of lists of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import stator.federated as fl
from stator.errors import ProgramError

ROWS = fl.TensorType(np.float32, [None, 4])


def identities(x: Any) -> Any:
    ridge = x.T @ x + torch.from_numpy(np.eye(4, dtype=np.float32)) * 0.5
    return torch.linalg.solve(ridge, x.sum(0)), torch.linalg.det(ridge + torch.tensor(np.eye(4)))


def numbers(x: Any) -> Any:
    grid = np.linspace(0, 1, 5)
    scaled = x * float(grid[2]) + int(np.arange(3).sum())
    return scaled, torch.stack([x * rate for rate in grid.tolist()]).sum(0)


def decided(x: Any) -> Any:
    weights = np.array([1.0, 2.0, -3.0, 4.0])
    return x * torch.as_tensor(np.abs(weights)).float() if weights.min() < 0 else x


def matrices(x: Any) -> Any:
    window = torch.tensor(np.hanning(4), dtype=torch.float32)
    return x @ window, x @ torch.as_tensor(np.diag([1.0, 2.0, 3.0, 4.0]), dtype=torch.float32)


def drawn(x: Any) -> Any:
    return x @ torch.from_numpy(np.random.default_rng(3).normal(size=(4, 2))).float()


def of_sizes(x: Any) -> Any:
    many = np.prod(x.shape)
    return (
        torch.sum(x) / many,
        x.reshape(-1, np.prod(x.shape[1:]) // 2).sum(0),
        np.mean([1.0, 2.5]) * x,
    )


def own_copy(x: Any) -> Any:
    table = np.zeros(4, np.float32)
    own = torch.tensor(table)
    own[1] = 7
    return x + own, x + torch.tensor(table)


CASES = [identities, numbers, decided, matrices, drawn, of_sizes, own_copy]


@pytest.mark.parametrize("function", CASES)
@pytest.mark.parametrize("arrays", [None, "torch"])
def test_it_gives_what_pytorch_gives(function: Callable[..., Any], arrays: str | None) -> None:
    how = {} if arrays is None else {"arrays": arrays}
    local = fl.local_computation(ROWS, **how)(function)
    again = fl.framework.ConcreteComputation.from_bytes(local.to_bytes())
    for count in (5, 2, 9):
        x = np.random.default_rng(count).normal(size=(count, 4)).astype(np.float32)
        expected = function(torch.from_numpy(x))
        expected = expected if isinstance(expected, tuple) else (expected,)
        for run in (local, again):
            found = run(x)
            found = found if isinstance(found, tuple) else (found,)
            for own, plain in zip(found, expected, strict=True):
                assert own.dtype == plain.numpy().dtype
                np.testing.assert_allclose(own, plain.numpy(), rtol=1e-5, atol=1e-6)


def beside_a_tensor(x: Any) -> Any:
    return torch.relu(x) * np.ones(4, np.float32)


def unseeded(x: Any) -> Any:
    return x @ torch.from_numpy(np.random.normal(size=(4, 2))).float()


def test_others_are_said() -> None:
    with pytest.raises(ProgramError, match="in beside_a_tensor"):
        fl.local_computation(ROWS)(beside_a_tensor)
    with pytest.raises(TypeError, match="np.random.normal in a tensor program would draw"):
        fl.local_computation(ROWS)(unseeded)


def given_arrays(x: Any) -> Any:
    rows = torch.from_numpy(x)
    found = (rows.T @ rows).detach().numpy()
    return np.trace(found), torch.relu(rows).sum(0).numpy() * np.arange(4)


def test_code_that_is_given_arrays_may_use_pytorch() -> None:
    local = fl.local_computation(ROWS)(given_arrays)
    for count in (3, 6):
        x = np.random.default_rng(count).normal(size=(count, 4)).astype(np.float32)
        for found, expected in zip(local(x), given_arrays(x), strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_numpy_code_stays_what_it_is() -> None:
    """What names NumPy alone divides by the number of elements."""

    @fl.local_computation(ROWS)
    def spread(x):
        return x.std() * np.ones(2)

    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_allclose(spread(x), x.std() * np.ones(2), rtol=1e-6)
