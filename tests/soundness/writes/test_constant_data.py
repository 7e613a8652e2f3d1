"""Data of tensors that a trace makes of constants: read without a break, unless something was written to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from ..objects import X
from ..probe import Probe, Steps, flip, right_after


def ones(x: Tensor) -> Any:
    mask = torch.ones(2, x.shape[0], dtype=torch.long)
    return x * 2 if mask.to(torch.bool)[:, :2].all() else x * 3


def zeros(x: Tensor) -> Any:
    return x * 2 if x.new_zeros(4).any() else x * 3


def filled(x: Tensor) -> Any:
    a, b = torch.full((3,), 1.0), torch.full_like(x, fill_value=0)
    return x + bool(a.all()) + 2 * bool(b.any()) + 4 * (not b.bool().any())


def of_itself(x: Tensor) -> Any:
    steps = torch.arange(4)
    return x * int((steps[1:] - steps[:-1]).sum()) + float(steps.max()) + steps.sum().item()


def listed(x: Tensor) -> Any:
    return x + 1 if torch.tensor([1, 2, 3]).eq(2).any() else x


def joined(x: Tensor) -> Any:
    mask = torch.cat([torch.ones(2), torch.zeros(2)])
    return (x if mask.all() else -x) * int(mask.sum())


def in_a_loop(x: Tensor) -> Any:
    left = torch.tensor(3)
    while left > 0:
        x, left = x * 2, left - 1
    return x


def resized(x: Tensor) -> Any:
    mask = torch.ones(1, 1, 4, 4)
    mask = torch.nn.functional.interpolate(mask, size=(2, 2)).to(torch.bool)[0]
    padded = torch.nn.functional.pad(mask, (1, 1))
    return x + 1 if mask.all() and not padded.all() else x


def steps_of_one(x: Tensor) -> Any:
    positions = torch.arange(5).unsqueeze(0).expand(2, -1)
    first = positions[:, :1] - 1
    packed = (torch.diff(positions, prepend=first, dim=-1) != 1).cumsum(-1)
    return x + 1 if (packed[:, -1] == 0).all() else x


KNOWN = [resized, steps_of_one, ones, zeros, filled, of_itself, listed, joined, in_a_loop]


@pytest.mark.parametrize("fn", KNOWN, ids=lambda fn: fn.__name__)
def test_constants_are_read_in_one_graph(fn: Callable[..., Any]) -> None:
    compiled = api.compile(fn, fullgraph=True, backend="fx")
    for size in (3, 3, 4, 5, 0, 1):
        for _ in range(2):
            x = torch.arange(float(size))
            assert torch.equal(compiled(x), fn(x))


def test_uniform_data_asks_no_sizes() -> None:
    probe = Probe(ones, dynamic=True, fullgraph=True)
    for size in (3, 4, 5, 6, 7):
        probe.right(torch.arange(float(size)))
    assert api.traces(probe.compiled) in (1, None)


def added(x: Tensor) -> Any:
    mask = torch.ones(3)
    mask.add_(x)
    return x if mask.all() else -x


def added_to_a_view(x: Tensor) -> Any:
    mask = torch.ones(3)
    part = mask[:1]
    part.sub_(x[:1])
    return x if mask.all() else -x


def added_to_the_base(x: Tensor) -> Any:
    mask = torch.ones(3)
    whole = mask.view(3, 1)
    mask.copy_(x)
    return x if whole.all() else -x


def set_item(x: Tensor) -> Any:
    mask = torch.ones(3)
    mask[0] = x[0]
    return x if mask.all() else -x


def out(x: Tensor) -> Any:
    mask = torch.ones(3)
    torch.mul(x, x, out=mask)
    return x if mask.all() else -x


def data(x: Tensor) -> Any:
    mask = torch.ones(3)
    mask.data = x.clone()
    return x if mask.all() else -x


def through_data(x: Tensor) -> Any:
    mask = torch.ones(3)
    mask.data.mul_(x)
    return x if mask.all() else -x


def foreach(x: Tensor) -> Any:
    mask = torch.ones(3)
    torch._foreach_mul_([mask], [x])
    return x if mask.all() else -x


def statistics(x: Tensor) -> Any:
    mean, var = torch.zeros(3), torch.ones(3)
    torch.nn.functional.batch_norm(torch.stack([x, x + 1]), mean, var, training=True)
    return x * bool(mean.any()) + 1


def random(x: Tensor) -> Any:
    mask = torch.zeros(3).bernoulli_(0.5)
    return x if mask.all() else -x


def random_made(x: Tensor) -> Any:
    return x if (torch.rand(1) > 0.5).all() else -x


def dropped(x: Tensor) -> Any:
    mask = torch.nn.functional.dropout(torch.ones(1), 0.5)
    return x if mask.all() else -x


def shifted(x: Tensor) -> Any:
    return x if (torch.ones(3) * x).all() else -x


def sizes(x: Tensor) -> Any:
    return x if torch.arange(x.shape[0]).any() else -x


def empty(x: Tensor) -> Any:
    a, b = x.new_zeros(x.shape[0]).all(), torch.ones(x.shape[0]).any()
    return x + 1 if a or b else x - 1


def number(x: Tensor) -> Any:
    return x * torch.full((2,), x.shape[0]).sum().item()


def array(x: Tensor) -> Any:
    return x if torch.as_tensor(x).all() else -x


def written_by_an_operator(x: Tensor) -> Any:
    mask = torch.ones(3)
    write(mask, x)
    return x if mask.all() else -x


@torch.library.custom_op("stator_constant_data::write", mutates_args={"mask"})
def write(mask: Tensor, x: Tensor) -> None:
    mask.copy_(x)


CHANGED = [
    added,
    added_to_a_view,
    added_to_the_base,
    set_item,
    out,
    data,
    through_data,
    foreach,
    statistics,
    random,
    random_made,
    dropped,
    shifted,
    sizes,
    empty,
    number,
    array,
    written_by_an_operator,
]


@pytest.mark.parametrize("fn", CHANGED, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("dynamic", [None, True])
def test_what_was_written_or_is_random_is_not_known(fn: Callable[..., Any], dynamic: Any) -> None:
    compiled = api.compile(fn, dynamic=dynamic)
    inputs = [
        torch.ones(3),
        torch.zeros(3),
        torch.tensor([0.0, 1, 2]),
        torch.ones(3),
        torch.full((3,), -1.0),
    ]
    if fn in (sizes, empty, number, array):
        inputs += [torch.ones(1), torch.zeros(0), torch.ones(5), torch.zeros(0), torch.ones(1)]
    for _ in range(2):
        for seed, x in enumerate(inputs):
            torch.manual_seed(seed)
            found = compiled(x.clone())
            torch.manual_seed(seed)
            assert torch.equal(found, fn(x.clone())), (seed, api.reason(compiled))


@flip
def test_a_constant_from_outside_is_guarded() -> Steps:
    wanted = [1]
    yield (lambda x: x * 2 if torch.full((3,), wanted[0]).all() else x * 3), (X,)
    wanted[0] = 0
    yield None
    wanted[0] = 1
    yield None


@right_after
def test_numpy_data_is_not_known() -> Steps:
    numpy = pytest.importorskip("numpy")
    array = numpy.ones(3)
    yield (lambda x: x * 2 if torch.tensor(array).all() else x * 3), (X,)
    array[0] = 0
    yield None


@right_after
def test_the_default_dtype_is_guarded() -> Steps:
    was = torch.get_default_dtype()

    def fn(x: Tensor) -> Any:
        return x * (torch.tensor(1e-50) == 0).item()

    yield fn, (X,)
    torch.set_default_dtype(torch.float64)
    try:
        yield None
    finally:
        torch.set_default_dtype(was)
    yield None


def bytes_of_ones(x: Tensor) -> Any:
    halves = torch.ones(x.shape[0], dtype=torch.float64).view(torch.float32)
    return x * 2 if halves.all() else x * 3


def test_bytes_read_as_another_type() -> None:
    compiled = api.compile(bytes_of_ones, dynamic=True)
    for size in (3, 4, 0, 5, 0):
        x = torch.arange(float(size))
        assert torch.equal(compiled(x), bytes_of_ones(x))
        assert torch.equal(compiled(x).new_ones(1), bytes_of_ones(x).new_ones(1))
