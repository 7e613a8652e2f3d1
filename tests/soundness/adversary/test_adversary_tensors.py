"""Tensors as indices, lengths and elements; inputs that share storage or are changed inside."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..objects import X
from ..probe import Steps, right_after, two_worlds


class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


@right_after
def test_subclass_argument() -> Steps:
    yield (lambda x: x * 2), (X,)
    yield (torch.ones(3).as_subclass(Tagged),)
    yield (nn.Parameter(torch.ones(3)),)
    yield (X,)


@right_after
def test_tensor_attribute() -> Steps:
    t = torch.ones(3)
    t.scale = 2  # type: ignore[attr-defined]
    yield (lambda x: x * t.scale), (X,)  # type: ignore[attr-defined]
    t.scale = 3  # type: ignore[attr-defined]
    yield None


@right_after
def test_tensor_in_list_membership() -> Steps:
    t = torch.ones(1)
    yield (lambda x, ts: x if any(t is other for other in ts) else -x), (X, [t, X])
    yield X, [X, X]


@right_after
def test_items_of_a_tensor_read_by_c() -> Steps:
    yield (lambda x, t: x * sum(range(t))), (X, torch.tensor(3))
    yield X, torch.tensor(4)


@right_after
def test_tensor_as_index_of_a_list() -> Steps:
    yield (lambda x, t: x * [1, 2, 3][t]), (X, torch.tensor(1))
    yield X, torch.tensor(2)


@right_after
def test_tensor_formats() -> Steps:
    yield (lambda x, t: x * len(f"{t:.3f}")), (X, torch.tensor(1.0))
    yield X, torch.tensor(1000.0)


@right_after
def test_max_of_tensors() -> Steps:
    yield (lambda x, a, b: x * max(a, b)), (X, torch.tensor(1.0), torch.tensor(2.0))
    yield X, torch.tensor(4.0), torch.tensor(3.0)


@right_after
def test_sorted_tensors() -> Steps:
    def fn(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        first, second = sorted([a, b])
        return x * first - second

    yield fn, (X, torch.tensor(1.0), torch.tensor(2.0))
    yield X, torch.tensor(4.0), torch.tensor(3.0)


@right_after
def test_tensor_sizes_as_tensors() -> Steps:
    yield (lambda x, t: x + torch.ones(t, 1)), (X, torch.tensor(1))
    yield X, torch.tensor(3)


@two_worlds
def test_inputs_that_share_storage() -> Steps:
    base = torch.ones(4)

    def fn(a: Tensor, b: Tensor) -> Tensor:
        a.mul_(2)
        return b + a

    yield fn, (base[:3], base[1:])
    yield torch.ones(3), torch.ones(3)


@two_worlds
def test_view_of_an_input_is_written() -> Steps:
    def fn(a: Tensor) -> Tensor:
        a[0].add_(1)
        view = a.view(-1)
        view[1:].mul_(2)
        return a * 2

    yield fn, (torch.ones(2, 2),)
    yield (torch.ones(2, 2),)


@two_worlds
def test_metadata_of_an_input_changes_inside() -> Steps:
    def fn(a: Tensor) -> Tensor:
        a.unsqueeze_(0)
        a.t_()
        return a * a.shape[0]

    yield fn, (torch.ones(3),)
    yield (torch.ones(3),)
    yield (torch.ones(4),)


@two_worlds
def test_data_of_an_input_is_replaced() -> Steps:
    def fn(a: Tensor) -> Tensor:
        a.data = torch.zeros(5)
        return a + a.shape[0]

    yield fn, (torch.ones(3),)
    yield (torch.ones(3),)


@two_worlds
def test_requires_grad_of_an_input_changes_inside() -> Steps:
    def fn(a: Tensor) -> Any:
        a.requires_grad_()
        return (a * 2).requires_grad

    yield fn, (torch.ones(3),)
    yield (torch.ones(3),)
