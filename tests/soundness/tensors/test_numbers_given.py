"""Numbers given as tensors, in forms that PyTorch's operator database doesn't reach.

A tensor of one element is taken wherever a number is. The number is read from its data, so a trace must
not keep what was made of it: each program is recorded with one value and called with others.
"""

from __future__ import annotations

import collections
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from differential.support import api
from torch import Tensor, nn

import stator

Program = Callable[[Tensor], Any]
PROGRAMS: list[tuple[Program, tuple[Any, ...]]] = []


def given(*values: Any) -> Callable[[Program], Program]:
    """Adds a program, with the values that its tensor takes."""

    def add(program: Program) -> Program:
        PROGRAMS.append((program, values))
        return program

    return add


def table() -> Tensor:
    return torch.arange(24.0).reshape(4, 6)


class Convolution(nn.Module):
    """Numbers of a layer that are attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(1, 1, 1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        self.layer.stride = t
        self.layer.padding = (t,)
        return self.layer(x)


CONVOLUTION = Convolution()


@given(4, 9, 3)
def padded_to_the_longest(t: Tensor) -> Any:
    x = F.pad(table(), (0, t.max() - 3))
    return x.sum(1) / x.shape[1], x.shape


@given(1, 2, 3)
def pad(t: Tensor) -> Any:
    named = F.pad(table(), pad=(0, t))
    return named.shape, F.pad(table(), [0, t, t, 0], value=1.0).shape


@given(1, 2)
def nested_lists(t: Tensor) -> Any:
    return torch.tensordot(table(), table(), dims=([t - 1], [t - 1])).shape


@given(2, 3, 6)
def views(t: Tensor) -> Any:
    x = table()
    return x.view(t, -1).shape, x.reshape((t, -1)).shape, x.view(size=(-1, t)).shape


@given(1, 2, 3)
def sizes_in_order(t: Tensor) -> Any:
    return torch.zeros(t).shape, torch.zeros(t, 3).shape, torch.zeros(3, t).shape


@given(1, 2, 3)
def sizes_in_containers(t: Tensor) -> Any:
    two = torch.ones([t, t]).shape
    return two, torch.zeros((3, t)).shape, torch.zeros(size=(t,)).shape, torch.Size([t, 3])


@given(1, 2, 3)
def slices(t: Tensor) -> Any:
    x = table()
    seen = [part.shape for part in (x[:t], x[t:], x[:, t:], x[::t], x[..., :t], x[t, :t])]
    return seen, slice(t).indices(10), [1, 2, 3, 4][:t], (1, 2, 3, 4)[t:]


@given(1, 2, 3)
def slices_written(t: Tensor) -> Any:
    x = table()
    x[:t] = 0
    x[:, t:] += 1
    return x


@given(1, 2, 3)
def ranges(t: Tensor) -> Any:
    return [i for i in range(t)], list(range(0, 4, t)), table()[list(range(t))].shape


@given(1, 2, 3)
def modules(t: Tensor) -> Any:
    return CONVOLUTION(torch.ones(1, 1, 9), t).shape, nn.MaxPool1d(t)(table()[None]).shape


@given(1, 2, 3)
def modules_made(t: Tensor) -> Any:
    return nn.ConstantPad1d((t, 0), 1.0)(table()).shape, nn.Flatten(t - 1)(table()[None]).shape


@given(1, 2, 3)
def numpy_numbers(t: Tensor) -> Any:
    n = np.int64(3)
    return torch.zeros(n, 2).shape, F.pad(table(), (0, n)).shape, t + 1


@given(1, 2, 3)
def numpy_numbers_of_tensors(t: Tensor) -> Any:
    n = t.numpy()
    return torch.zeros(n[()], 2).shape, t + 1


@given(1, 2, 3)
def generators(t: Tensor) -> Any:
    generator = torch.Generator()
    generator.manual_seed(0)
    return torch.rand(t, generator=generator), torch.randint(0, t, (3,), generator=generator)


@given(1, 2, 3)
def repeated_sequences(t: Tensor) -> Any:
    return [table()] * t, t * (1, 2), [None] * t, "ab" * t, (None,) * t


@given(1, 2, 3)
def repeated_in_place(t: Tensor) -> Any:
    items = [None]
    items *= t
    return items


@given(1, 2, 3)
def lists(t: Tensor) -> Any:
    items = [1, 2, 3, 4]
    items.insert(t, 9)
    popped = items.pop(t)
    items[t] = 7
    del items[t - 1]
    return items, popped, (5, 6, 7, 8)[t], "abcd"[t]


@given(1, 2, 3)
def list_methods(t: Tensor) -> Any:
    items = [1, 2, 3, 4]
    items.__setitem__(t, 9)
    items.__delitem__(t)
    return items, items.__getitem__(t - 1), [1].__mul__(t)


@given(1, 2, 3)
def deques(t: Tensor) -> Any:
    items = collections.deque([1, 2, 3, 4])
    items.rotate(t)
    items.insert(t, 9)
    return list(items)


@given(True, False)
def ordered_dictionaries(t: Tensor) -> Any:
    table = collections.OrderedDict(a=1, b=2, c=3)
    table.move_to_end("b", last=t)
    return list(table)


@given(1, 2, 3)
def iterators(t: Tensor) -> Any:
    first = list(itertools.islice([1, 2, 3, 4], t))
    return first, list(itertools.repeat(7, t)), list(itertools.combinations([1, 2, 3], t))


@given(1, 2, 3)
def numbers_of_python(t: Tensor) -> Any:
    return math.factorial(t), operator.index(t), hex(t), "ab".zfill(t), sorted([1, 2], reverse=t)


@given(2, 4, 6)
def transforms(t: Tensor) -> Any:
    x = table()
    named = torch.fft.rfft(x, n=t).shape
    return (
        named,
        torch.fft.irfft(x, t).shape,
        torch.fft.fftfreq(t).shape,
        torch.fft.rfft2(x, s=(t, t)).shape,
    )


@given(1, 2, 3)
def scale_factors(t: Tensor) -> Any:
    x = table()[None, None]
    return F.interpolate(x, size=(t, t)).shape, F.interpolate(
        x, scale_factor=t, recompute_scale_factor=True
    ).shape


@given(0, 1)
def dimensions(t: Tensor) -> Any:
    x = table()
    joined = (
        torch.cat([x, x], t).shape,
        torch.stack([x], dim=t).shape,
        torch.cat((x, x), axis=t).shape,
    )
    return x.sum(t).shape, x.mean(dim=[t]).shape, x.unsqueeze(t).shape, x.softmax(t), joined


@given(0, 1)
def metadata(t: Tensor) -> Any:
    x = table()
    return x.size(t), x.size(dim=t), x.stride(t)


@given(1, 2, 3)
def parts(t: Tensor) -> Any:
    x = table()
    counts = len(x.split(t)), len(torch.split(x, t, dim=1)), len(x.chunk(t)), len(x.tensor_split(t))
    return counts, [part.shape for part in torch.split(x, [t, 4 - t])]


@given(1, 2, 3)
def indices_that_split(t: Tensor) -> Any:
    indices = torch.stack([t - 1, t])
    parts = torch.tensor_split(table(), indices), torch.ops.aten.tensor_split(table(), indices)
    return [[part.shape for part in each] for each in parts]


@given(1, 2, 3)
def operators_of_torch_ops(t: Tensor) -> Any:
    aten = torch.ops.aten
    padded = aten.constant_pad_nd(table(), [0, t]), aten.constant_pad_nd.default(table(), [0, t])
    return [x.shape for x in padded], len(aten.split.Tensor(table(), t))


@given(1, 2, 3)
def one_element(t: Tensor) -> Any:
    x = table()
    return (
        torch.zeros(t.view(1)).shape,
        F.pad(x, [0, t.view(1, 1)]).shape,
        x.sum(t.view(1) * 0).shape,
    )


@given(1, 2, 3)
def ranges_of_numbers(t: Tensor) -> Any:
    return torch.arange(t), torch.arange(0, 9, step=t), torch.linspace(0, 1, steps=t)


@given(True, False)
def truth_values(t: Tensor) -> Any:
    torch.manual_seed(0)
    layer, x = nn.MultiheadAttention(4, 2), torch.ones(3, 1, 4)
    return F.multi_head_attention_forward(
        x, x, x, 4, 2, layer.in_proj_weight, layer.in_proj_bias, None, None, False, 0.0,
        layer.out_proj.weight, layer.out_proj.bias, need_weights=t,
    )[1] is None  # fmt: skip


def shown(program: Program, value: Any) -> str:
    torch.manual_seed(0)
    return str(program(torch.tensor(value)))


@pytest.mark.parametrize(
    ("program", "values"), PROGRAMS, ids=lambda value: getattr(value, "__name__", "")
)
def test_program(program: Program, values: tuple[Any, ...]) -> None:
    compiled = api.compile(program)
    for value in (values[0], *values, values[0]):
        assert shown(compiled, value) == shown(program, value)


# Numbers of the arithmetic decide nothing but values: a replay reads them again.


def floats(x: Tensor, t: Tensor) -> Any:
    scaled = torch.add(x, x, alpha=t), F.softplus(x, t), F.leaky_relu(x, t), x.clamp(t)
    return *scaled, torch.full((2,), 1.0).fill_(t), torch.addcmul(x, x, x, value=t)


def operands(x: Tensor, t: Tensor) -> Any:
    return torch.mul(x, t), torch.sub(2, t), x.pow(t), torch.pow(2, t), torch.maximum(x, t), t / x


def whole_functions(x: Tensor, t: Tensor) -> Any:
    """Python functions of PyTorch, looked into for the tensor's sake."""
    return F.normalize(x, p=t), F.gumbel_softmax(x, tau=t), F.layer_norm(x, (6,), eps=t)


def chosen(x: Tensor, t: Tensor) -> Any:
    return torch.where(x > t, x, t), torch.cat([x.flatten(), t[None]]), torch.stack([t, t])


@pytest.mark.parametrize("program", [floats, operands, chosen, whole_functions])
def test_numbers_of_the_arithmetic_are_data(program: Callable[..., Any]) -> None:
    compiled = api.compile(program)
    for number in (1.0, 1.0, 2.0, 3.0):
        torch.manual_seed(0)
        expected = program(table(), torch.tensor(number))
        torch.manual_seed(0)
        found = compiled(table(), torch.tensor(number))
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
    if program is not whole_functions:
        assert api.PLAIN or (api.traces(compiled), api.breaks(compiled)) == (1, 0)


def test_a_number_that_an_operation_may_refuse_is_read() -> None:
    """A replay that raises must find what it wrote as it was; so the write is no part of one with the number."""

    def refused(x: Tensor, t: Tensor) -> Any:
        x.add_(1)
        try:
            return torch.dropout(x, t, True)
        except RuntimeError:
            return "refused"

    compiled = api.compile(refused)
    for number in (0.0, 0.0, 1.0, 2.0, 0.0):
        x, y = torch.zeros(3), torch.zeros(3)
        found, expected = compiled(x, torch.tensor(number)), refused(y, torch.tensor(number))
        assert str(found) == str(expected)
        assert torch.equal(x, y)


@pytest.mark.skipif(api.PLAIN, reason="asks a backend")
def test_other_backends_break_where_a_number_is_a_tensor() -> None:
    """Their code can't read it."""
    compiled = api.compile(lambda x, t: torch.add(x, x, alpha=t), backend="aot_eager")
    for number in (1.0, 1.0, 2.0):
        assert torch.equal(compiled(table(), torch.tensor(number)), (1 + number) * table())
    assert api.breaks(compiled) == 1


def test_old_orders_of_arguments_are_data() -> None:
    """`x.add_(2, y)`: deprecated, and everywhere in old code."""

    def step(x: Tensor, y: Tensor) -> Tensor:
        return x.add(2, y).addcmul(0.5, y, y)

    compiled = api.compile(step)
    for number in (1.0, 1.0, 2.0):
        y = torch.tensor([number])
        assert torch.equal(compiled(torch.ones(1), y), step(torch.ones(1), y))
    assert api.PLAIN or api.breaks(compiled) == 0


def test_a_number_decides_which_object_is_returned() -> None:
    """`dropout` by 0 returns its input."""

    def dropped(x: Tensor, t: Tensor) -> Any:
        y = torch.dropout(x, t, True)
        return y, y is x

    compiled = api.compile(dropped)
    for number in (0.0, 0.0, 1.0, 0.0):
        x = torch.ones(3)
        found, is_same = compiled(x, torch.tensor(number))
        assert (found is x) == is_same == (number == 0)
        assert torch.equal(found, (1 - number) * x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool])
def test_copies_of_single_elements_are_no_reads(dtype: torch.dtype) -> None:
    """As `num_batches_tracked` is copied from model to model."""

    def fn(source: Tensor, kept: Tensor, x: Tensor) -> Any:
        kept.detach().copy_(source.detach())
        x.copy_(source)
        x[0].copy_(source.sum())
        return kept + 1, x

    compiled = api.compile(fn)
    with stator.config.patch(skip_unprofitable=False, strict=True):
        for value in (1, 0, 3, 5):
            given = [torch.tensor(value).to(dtype), torch.zeros((), dtype=torch.int64)]
            left = fn(*given, torch.zeros(2))
            right = compiled(given[0], torch.zeros((), dtype=torch.int64), torch.zeros(2))
            assert all(map(torch.equal, left, right))
    if not api.PLAIN:
        assert (stator.stats(compiled).breaks, stator.stats(compiled).traces) == (0, 1)


@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_the_smaller_of_two_tensors_of_one_element(
    name: str, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    """PyTorch takes none of them for a dimension."""
    function = getattr(torch, name)

    def program(x: Tensor, other: Tensor) -> Any:
        return function(x, other), function(input=x, other=other), getattr(x, name)(other)

    api.reset()
    compiled = api.compile(program)
    for number in (0, 0, 1, 0):
        x, other = torch.full(shape, 1).to(dtype), torch.full(shape, number).to(dtype)
        for found, wanted in zip(compiled(x, other), program(x, other), strict=True):
            assert torch.equal(found, wanted) and found.dtype == wanted.dtype
    assert api.breaks(compiled) in (None, 0)


@pytest.mark.parametrize("name", ["min", "max"])
def test_a_dimension_that_is_a_tensor_is_read(name: str) -> None:
    def program(x: Tensor, t: Tensor) -> Any:
        function = getattr(torch, name)
        return *function(x, dim=t), *function(x, t, True), *function(x, t, keepdim=True)

    api.reset()
    compiled = api.compile(program)
    for number in (0, 0, 1, 0):
        t = torch.tensor(number)
        for found, wanted in zip(compiled(table(), t), program(table(), t), strict=True):
            assert torch.equal(found, wanted)


def histogram(x: Tensor, t: Tensor) -> Tensor:
    return torch.histc(x, t, 0, 6)


def lower(x: Tensor, t: Tensor) -> Tensor:
    return x.tril(t) + x.triu(diagonal=t)


def classes(x: Tensor, t: Tensor) -> Tensor:
    return F.one_hot(x.long()[0].clamp(max=1), t + 1)


def counts(x: Tensor, t: Tensor) -> Tensor:
    return torch.bincount(x.long()[0], minlength=t)


def steps(x: Tensor, t: Tensor) -> Tensor:
    return torch.linspace(0, 1, t) + x[0, 0]


def resized(x: Tensor, t: Tensor) -> Tensor:
    return (
        F.interpolate(x[None, None], size=[t, 2 * t])
        + F.interpolate(x[None, None, 0], size=t)[0, 0, 0]
    )


@pytest.mark.parametrize("program", [histogram, lower, classes, counts, steps, resized])
def test_integers_that_are_tensors_are_read_and_the_trace_goes_on(
    program: Callable[..., Tensor],
) -> None:
    api.reset()
    compiled = api.compile(program)
    for number in (2, 2, 3, 1, 3, 2, 1):
        for t in (torch.tensor(number), torch.tensor(number, dtype=torch.int32)):
            assert torch.equal(compiled(table(), t), program(table(), t))
    assert api.PLAIN or api.breaks(compiled) == 0


def test_what_takes_no_tensors_for_integers_raises_as_before() -> None:
    def program(x: Tensor, t: Tensor) -> Tensor:
        return torch.histc(x, t)

    compiled = api.compile(program)
    for t in (torch.tensor([3]), torch.tensor(True), torch.tensor(2.0)):
        for _ in range(2):
            with pytest.raises(TypeError, match="must be int, not Tensor"):
                compiled(table(), t)
    packet = torch.ops.aten.arange.start_step
    compiled = api.compile(lambda t: packet(0, t, 2))
    for _ in range(2):
        with pytest.raises(RuntimeError):
            packet(0, torch.tensor(6), 2)
        with pytest.raises(RuntimeError):
            compiled(torch.tensor(6))
