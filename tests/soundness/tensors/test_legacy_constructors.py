"""`torch.Tensor([1.0])`, `torch.LongTensor((1, 2))` and such are nodes where they are given numbers alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from differential.support import api
from differential.support.describe import describe
from torch import Tensor

NAMES = """Tensor BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor
IntTensor LongTensor ShortTensor""".split()

DATA: list[Any] = [[0.5, 2.0], (1, 2), [[1, 0], [3, 4]], [], [True, False], [[], []]]


@pytest.mark.parametrize("name", NAMES)
def test_numbers(name: str) -> None:
    made = getattr(torch, name)

    def fn(x: Tensor) -> Any:
        found = [made(data) for data in DATA]
        found[0].zero_()
        return x + 1, found

    compiled = api.compile(fn, fullgraph=True)
    results = [compiled(torch.ones(2)) for _ in range(3)]
    assert all(describe(result) == describe(fn(torch.ones(2))) for result in results)
    assert len({tensor.data_ptr() for _, (tensor, *_) in results}) == 3
    assert api.PLAIN or api.hits(compiled) == 2


def of_an_argument(x: Tensor, given: Any) -> Any:
    return x.sum(), torch.Tensor(given), torch.LongTensor(given).shape


def of_data(x: Tensor, given: Any) -> Any:
    return torch.FloatTensor([x.sum().item(), 1]), torch.Tensor([float(it) for it in x])


def of_tensors(x: Tensor, given: Any) -> Any:
    return torch.FloatTensor([x.sum(), 1]), torch.Tensor((x[0], x[1]))


def of_sizes(x: Tensor, given: Any) -> Any:
    return torch.Tensor(x.shape).shape, torch.FloatTensor(2, 3).shape, torch.Tensor([*x.shape])


def of_a_tensor(x: Tensor, given: Any) -> Any:
    same = torch.FloatTensor(x)
    same.add_(1)
    return x, same.data_ptr() == x.data_ptr()


def of_arrays(x: Tensor, given: Any) -> Any:
    return torch.Tensor(np.arange(3.0)), torch.Tensor([np.float64(0.5)]), torch.Tensor([np.ones(2)])


def refused(x: Tensor, given: Any) -> Any:
    try:
        return torch.FloatTensor(["no", x.dim()])
    except Exception as error:
        return x, type(error), str(error)


def requires_gradients(x: Tensor, given: Any) -> Any:
    y = torch.Tensor([1, 2]).requires_grad_()
    (y * x).sum().backward()
    return y.grad, y.requires_grad


OTHERS: list[Callable[..., Any]] = [
    of_an_argument,
    of_data,
    of_tensors,
    of_sizes,
    of_a_tensor,
    of_arrays,
    refused,
    requires_gradients,
]


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy")
@pytest.mark.parametrize("fn", OTHERS, ids=lambda fn: fn.__name__)
def test_what_else_they_are_given(fn: Callable[..., Any]) -> None:
    compiled = api.compile(fn)
    for i, given in enumerate([[1, 2], [1, 2], (1, 2), [3, 4, 5], [[1.5]], [], [True], [1, 2]]):
        results = [fn(torch.ones(2) * i, given), compiled(torch.ones(2) * i, given)]
        assert describe(results[0]) == describe(results[1])


def test_another_default_type() -> None:
    def fn(x: Tensor) -> Any:
        return x.sum(), torch.Tensor([0.1, 1])

    compiled = api.compile(fn)
    for dtype in (torch.float32, torch.float32, torch.float64, torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        try:
            assert describe(compiled(torch.ones(2))) == describe(fn(torch.ones(2)))
        finally:
            torch.set_default_dtype(torch.float32)


def test_questions_of_containers() -> None:
    def fn(x: Tensor, given: Any) -> Any:
        return x + 1, torch.is_tensor(given), torch.is_storage(given), torch.is_tensor([x])

    compiled, x = api.compile(fn), torch.ones(2)
    for given in ([x], [x], (x, x), x, {"x": x}, 3, [x], None, x.untyped_storage(), x):
        assert describe(compiled(x, given)) == describe(fn(x, given))
    compiled = api.compile(
        lambda x: (x, torch.is_tensor([x]), torch.is_storage((x, 1))), fullgraph=True
    )
    for _ in range(3):
        assert describe(compiled(x)) == describe((x, False, False))
