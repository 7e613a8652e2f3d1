"""Indices that are integer tensors without dimensions are part of the program, as PyTorch takes them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from stator.errors import ProgramError
from stator.programs import TensorProgram, TensorSpec

X = torch.arange(60.0).reshape(3, 4, 5)
READS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "k": lambda x, k, j: x[k],
    "k :": lambda x, k, j: x[k, :],
    ": k": lambda x, k, j: x[:, k],
    "... k": lambda x, k, j: x[..., k],
    "k ... j": lambda x, k, j: x[k, ..., j],
    "k j": lambda x, k, j: x[k, j],
    "k : j": lambda x, k, j: x[k, :, j],
    "None k": lambda x, k, j: x[None, k],
    "k None : j": lambda x, k, j: x[k, None, :, j],
    "k list": lambda x, k, j: x[k, :, [0, 1]],
    "k tensor": lambda x, k, j: x[k, :, torch.tensor([0, 1, 1])],
    "1: k ::2": lambda x, k, j: x[1:, k, ::2],
    "0 k": lambda x, k, j: x[0, k],
    "k then j": lambda x, k, j: x[k][j],
    "k 1 2": lambda x, k, j: x[k, 1, 2],
    "k + 0": lambda x, k, j: x[k + 0],
    "computed": lambda x, k, j: x[torch.argmax(x[:, 0, 0])],
    "in a loop": lambda x, k, j: sum(x[k] for _ in range(2)),
    "up to k": lambda x, k, j: x[:k],
    "from k": lambda x, k, j: x[k:].sum(0),
    "from k up to j": lambda x, k, j: x[k:j],
    "from k up to 2": lambda x, k, j: x[k:2:1],
    "from 1 up to k": lambda x, k, j: x[1:k],
    "from the end": lambda x, k, j: x[-2:k],
    "columns": lambda x, k, j: x[:, k:j, 1:],
    "the last": lambda x, k, j: x[..., :k],
    "k, then up to j": lambda x, k, j: x[k, :j],
    "up to k, then j": lambda x, k, j: x[None, :k, j],
    "up to k of both": lambda x, k, j: x[:k, :j],
    "in turn": lambda x, k, j: x[:k][:, :j].flatten(),
    "its length": lambda x, k, j: x[0, 0] * len(x[:k]),
}


def store(x: Any, k: Any, j: Any) -> Any:
    y = torch.zeros(3, 4, 5)
    y[k] = x[k]
    y[j, 0] = 3
    return y


def add(x: Any, k: Any, j: Any) -> Any:
    y = x.clone()
    y[k] += 1
    y[k] *= y[j]
    return y


def store_part(x: Any, k: Any, j: Any) -> Any:
    y = x.clone()
    y[:, k, 1:3] = 7
    y[k, :, j] = torch.ones(4, dtype=torch.float64)
    y[k, j, 0] -= 5
    y[..., k] = y[..., j]
    y[k, None, 1] = torch.ones(1, 5)
    return y


def assert_same(function: Callable[..., Any], dtype: torch.dtype) -> None:
    specs = (TensorSpec(torch.float32, (3, 4, 5)), TensorSpec(dtype), TensorSpec(dtype))
    program = TensorProgram.trace(function, specs)
    for program in (program, TensorProgram.from_bytes(program.to_bytes())):
        for at, other in itertools.product((0, 2, -1, -3), repeat=2):
            k, j = torch.tensor(at, dtype=dtype), torch.tensor(other, dtype=dtype)
            (found,) = program(X, k, j)
            expected = function(X, k, j)
            assert found.shape == expected.shape
            assert torch.equal(found, expected), (at, other)


@pytest.mark.parametrize("name", READS)
def test_reads(name: str) -> None:
    assert_same(READS[name], torch.int64)


@pytest.mark.parametrize("function", [store, add, store_part])
def test_writes(function: Callable[..., Any]) -> None:
    assert_same(function, torch.int64)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32])
def test_all_integers(dtype: torch.dtype) -> None:
    for function in (READS["k : j"], READS["from k up to j"], add):
        assert_same(function, dtype)


@pytest.mark.parametrize("at", [3, -4, 100])
def test_out_of_range(at: int) -> None:
    specs = (TensorSpec(torch.float32, (3, 4, 5)), TensorSpec(torch.int64))
    for function in (lambda x, k: x[k], lambda x, k: x[k, 1:, 0]):
        program = TensorProgram.trace(function, specs)
        with pytest.raises(IndexError) as expected:
            function(X, torch.tensor(at))
        with pytest.raises(IndexError) as found:
            program(X, torch.tensor(at))
        assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64])
def test_slices_of_any_size(dtype: torch.dtype) -> None:
    specs = (TensorSpec(torch.float32, (None, 2)), TensorSpec(dtype), TensorSpec(dtype))
    for function in (lambda x, k, j: x[k:j], lambda x, k, j: x.T[:, :k] * 2):
        program = TensorProgram.trace(function, specs)
        for count, at, other in itertools.product((0, 1, 200), (0, 3, -2, 100, -100), (1, -1, 120)):
            x, k, j = torch.randn(count, 2), *torch.tensor([at, other], dtype=dtype)
            assert torch.equal(program(x, k, j)[0], function(x, k, j))

    def slope(x: Any, k: Any, j: Any) -> Any:
        return torch.func.grad(lambda x: (x[k:j] ** 2).sum())(x)

    x, k, j = torch.randn(6, 2), *torch.tensor([-4, 5], dtype=dtype)
    found = TensorProgram.trace(slope, specs)(x, k, j)[0]
    assert torch.equal(found, slope(x, k, j))


def test_too_many_indices_and_gradients() -> None:
    specs = (TensorSpec(torch.float32, (3,)), TensorSpec(torch.int64))
    with pytest.raises(IndexError, match="too many indices for tensor of dimension 1"):
        TensorProgram.trace(lambda x, k: x[k, 0], specs)
    program = TensorProgram.trace(
        lambda x, k: torch.func.grad(lambda x: (x[k] ** 2).sum())(x), specs
    )
    (found,) = program(torch.ones(3), torch.tensor(-2))
    assert found.tolist() == [0, 2, 0]


def test_unknown_sizes() -> None:
    specs = (TensorSpec(torch.float32, (None, 2)), TensorSpec(torch.int64))
    program = TensorProgram.trace(lambda x, k: x[k], specs)
    for count in (1, 5):
        assert program(torch.ones(count, 2), torch.tensor(-1))[0].tolist() == [1, 1]


def write_row(x: Any, k: Any) -> Any:
    y = x.clone()
    row = y[k]
    row += 1
    return y


def read_old_row(x: Any, k: Any) -> Any:
    y = x.clone()
    row = y[k]
    y += 1
    return row


def use_old_row(x: Any, k: Any) -> Any:
    y = x.clone()
    row = y[k]
    y.zero_()
    return row + 1


def read_between(x: Any, k: Any) -> Any:
    y = x.clone()
    row = y[k]
    row += 1
    total = y.sum()
    y[k] = row
    return total


def write_view_of_row(x: Any, k: Any) -> Any:
    y = x.clone()
    y[k][0] = 5
    return y


def write_rows(x: Any, k: Any) -> Any:
    y = x.clone()
    rows = y[1:k]
    rows.zero_()
    return y


@pytest.mark.parametrize(
    "function", [write_row, write_rows, read_old_row, use_old_row, read_between, write_view_of_row]
)
def test_what_would_tell_a_copy_from_a_view_is_refused(function: Callable[..., Any]) -> None:
    specs = (TensorSpec(torch.float32, (3, 4)), TensorSpec(torch.int64))
    with pytest.raises(ProgramError, match="the row is a copy in a program") as caught:
        TensorProgram.trace(function, specs)
    assert function.__name__ in str(caught.value)


def store_slice(x: Any, k: Any) -> Any:
    x[:k] = 0
    return x


def add_slice(x: Any, k: Any) -> Any:
    x[0, k:] += 1
    return x


def test_slices_with_steps_are_errors_at_the_line() -> None:
    specs = (TensorSpec(torch.float32, (3, 4)), TensorSpec(torch.int64))
    for function in (lambda x, k: x[::k], lambda x, k: x[:k:2]):
        with pytest.raises(NotImplementedError, match="has no step") as caught:
            TensorProgram.trace(function, specs)
        assert caught.traceback[-1].path.samefile(__file__)


def test_other_reads_of_data_are_errors_at_the_line() -> None:
    specs = (TensorSpec(torch.float32, (3, 4)), TensorSpec(torch.int64))
    for function in (
        lambda x, k: store_slice(x.clone(), k),
        lambda x, k: add_slice(x.clone(), k),
        lambda x, k: x.narrow(0, k, 1),
        lambda x, k: [1, 2, 3][k],
        lambda x, k: x[[k, k]],
        lambda x, k: torch.masked_select(x, x > 0).unbind(0),
    ):
        with pytest.raises(ProgramError) as caught:
            TensorProgram.trace(function, specs)
        assert __file__ in str(caught.value)
