"""Strides of what a program computed: symbolic where they follow from sizes, and never wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stator

SIZES = [4, 6, 5, 8, 3, 2]

Step = Callable[[torch.Tensor], torch.Tensor]

# Each takes a tensor of four dimensions, of which the first and the third vary.
FOLLOWED: dict[str, Step] = {
    "elementwise": lambda x: (x + 1) * x.relu(),
    "transposed": lambda x: x.transpose(1, 2) * 2,
    "permuted": lambda x: x.permute(0, 2, 3, 1) + 1,
    "contiguous": lambda x: x.permute(0, 2, 3, 1).contiguous(),
    "reshaped": lambda x: (x + 1).reshape(x.shape[0], -1),
    "viewed": lambda x: (x * 2).view(-1, x.shape[-1]),
    "flattened": lambda x: (x * 2).flatten(1),
    "sliced": lambda x: (x + 1)[:, :, 1:],
    "stepped": lambda x: (x + 1)[:, ::2, :, ::2],
    "selected": lambda x: (x + 1)[:, 0],
    "ellipsis": lambda x: (x + 1)[..., None, 1],
    "chosen": lambda x: (x + 1).select(1, 1).unsqueeze(-1),
    "expanded": lambda x: x.sum(1, keepdim=True).expand(-1, 5, -1, -1),
    "split": lambda x: (x + 1).split(2, 1)[1],
    "unbound": lambda x: (x + 1).unbind(1)[0],
    "matmul": lambda x: (x + 0) @ x.new_ones(6, 3),
    "batched": lambda x: (x + 0) @ (x * 2).mT,
    "linear": lambda x: F.linear(x, x.new_ones(2, 6)),
    "softmax": lambda x: (x + 1).softmax(-1).mean(0),
    "broadcast": lambda x: (x + 1) + x.new_ones(6),
    "joined": lambda x: torch.cat([x, x + 1], 2),
    "stacked": lambda x: torch.stack([x, x + 1]),
    "new": lambda x: torch.zeros(x.shape[2], x.shape[0]),
    "like": lambda x: torch.zeros_like(x.transpose(0, 1)),
    "strided": lambda x: (x + 1).as_strided((x.shape[0], 2), (x.stride(0), 1)),
    "small": lambda x: x[:2, :, :2] + 0,
    "computed of a slice": lambda x: x[:, :, 1:] * 2 + x[:, :, :-1],
    "viewed small": lambda x: x[:2, :, :2],
}

# Those whose layout isn't known: fixed, or followed, but never wrong.
OTHERS: dict[str, Step] = {
    "einsum": lambda x: torch.einsum("bcij,bdij->dbc", x, x + 1),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "convolution": lambda x: F.conv2d(x, x.new_ones(3, 3, 1, 1)),
    "pooling": lambda x: F.max_pool2d(x, 2, 1),
    "indexed": lambda x: x[:, [0, 2]],
    "masked": lambda x: x.transpose(1, 2).masked_fill(x.transpose(1, 2) > 3, 0.0),
    "merged": lambda x: x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1),
    "in place": lambda x: (x + 1).transpose_(1, 2),
    "in place after": lambda x: ((x + 1).mul_(2)).add_(1),
    "fft": lambda x: torch.fft.fft(x, dim=2).real,
    "sorted": lambda x: x.sort(2)[0],
    "cumulated": lambda x: x.transpose(1, 2).cumsum(1),
    "normalised": lambda x: F.layer_norm(x.transpose(1, 2), (6,)),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "difference": lambda x: x[:, :, 2:].contiguous() * 2,
}

# A tensor of these sizes that lies in memory in one way or another.
LAYOUTS: dict[str, Callable[[int], torch.Tensor]] = {
    "contiguous": lambda n: torch.randn(n, 3, n + 1, 6),
    "channels last": lambda n: torch.randn(n, 3, n + 1, 6).to(memory_format=torch.channels_last),
    "transposed": lambda n: torch.randn(n + 1, 3, n, 6).transpose(0, 2),
    "sliced": lambda n: torch.randn(n, 3, n + 3, 6)[:, :, 1:-1],
    "padded": lambda n: torch.randn(n, 3, n + 1, 8)[..., :6],
    "expanded": lambda n: torch.randn(n, 1, n + 1, 6).expand(-1, 3, -1, -1),
}


def facts(x: torch.Tensor) -> tuple[Any, ...]:
    """What a program may ask, in conditions too."""
    strides = x.stride()
    kind = "rows" if x.stride(0) == x[0].numel() else "other"
    return strides, x.stride(-1), x.is_contiguous(), kind, strides[0] > 40


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("step", [*FOLLOWED, *OTHERS])
def test_equals_plain_python(layout: str, step: str) -> None:
    function = {**FOLLOWED, **OTHERS}[step]

    def program(x: torch.Tensor) -> tuple[Any, ...]:
        y = function(x)
        return y, *facts(y)

    compiled = stator.compile(program, recompile_limit=64)
    for size in SIZES:
        x = LAYOUTS[layout](size)
        try:
            expected = program(x)
        except RuntimeError:
            # Views that this layout doesn't allow.
            return
        found = compiled(x)
        assert torch.allclose(found[0], expected[0], equal_nan=True), size
        assert found[0].stride() == expected[0].stride(), size
        assert found[1:] == expected[1:], size


@pytest.mark.parametrize("step", FOLLOWED)
def test_strides_stay_symbolic(step: str) -> None:
    def program(x: torch.Tensor) -> tuple[Any, ...]:
        y = FOLLOWED[step](x)
        return y * y.stride(0), y.stride(), y.is_contiguous()

    compiled = stator.compile(program)
    for size in SIZES:
        x = LAYOUTS["contiguous"](size)
        expected, found = program(x), compiled(x)
        assert torch.equal(expected[0], found[0])
        assert expected[1:] == found[1:]
    assert stator.stats(compiled).traces == 2


def test_changed_in_place() -> None:
    def program(x: torch.Tensor) -> tuple[Any, ...]:
        y = x + 1
        before = y.stride()
        y.t_()
        return y * before[0], before, y.stride()

    compiled = stator.compile(program, dynamic=True)
    for shape in [(3, 4), (5, 5), (6, 2), (4, 4), (7, 3)]:
        x = torch.randn(shape)
        expected, found = program(x), compiled(x)
        assert torch.equal(expected[0], found[0])
        assert expected[1:] == found[1:]


def test_strides_of_fixed_sizes_vary() -> None:
    """`x[:2, :2]` has plain sizes, and the strides of what it was taken from."""

    def program(x: torch.Tensor) -> tuple[Any, ...]:
        y = x[:2, :2]
        return y * y.stride(0), y.is_contiguous()

    compiled = stator.compile(program, dynamic=True)
    for width in (5, 7, 2, 9, 4):
        x = torch.randn(width + 1, width)
        expected, found = program(x), compiled(x)
        assert torch.equal(expected[0], found[0])
        assert expected[1:] == found[1:]


# What lies in memory as sizes have it: copies where a view can't be, and operations that no table follows.
ARRANGED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "reshape of a transposed one": lambda x: (x[:, None] * x[:, :, None]).transpose(1, 2).reshape(x.shape[0], -1),
    "reshape that may be a view": lambda x: x.reshape(x.shape[0], 2, -1).transpose(1, 2).reshape(x.shape[0], -1),
    "flatten": lambda x: (x.unsqueeze(1) * torch.ones(1, 2, 1)).transpose(1, 2).flatten(1),
    "unflatten": lambda x: x.t().unflatten(0, (2, -1)).flatten(0, 1).t(),
    "windows": lambda x: x.view(x.shape[0], -1, 2).transpose(0, 1).transpose(0, 1).reshape(x.shape[0], -1),
    "attention": lambda x: (x.view(x.shape[0], 1, -1, 2) @ torch.ones(2, 2)).transpose(1, 2).reshape(x.shape[0], -1),
    "sorted": lambda x: x.t().sort(0).values.t(),
    "interpolated": lambda x: torch.nn.functional.interpolate(x[None], scale_factor=1.0)[0],
    "transposed sum": lambda x: (x.t() + x.t()).t(),
    "transform": lambda x: torch.fft.rfft(x).real,
    "rolled": lambda x: x.roll(1, 1),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", ARRANGED)
def test_whether_contiguous_gives_its_argument_back(name: str, dynamic: bool | None) -> None:
    def program(x: torch.Tensor, n: int) -> tuple[Any, ...]:
        y = ARRANGED[name](x)[:, :n]
        part = y.contiguous()
        return y, part, part.exp() if part is y else part.sin(), part.view(-1)

    compiled = stator.compile(program, dynamic=dynamic, recompile_limit=100)
    with stator.config.patch(strict=True, skip_unprofitable=False):
        for columns, n in [(4, 4), (6, 6), (8, 8), (8, 5), (10, 3), (8, 8), (6, 50)]:
            x = torch.randn(3, columns)
            expected, found = program(x, n), compiled(x, n)
            assert (expected[0] is expected[1]) == (found[0] is found[1])
            for plain, ours in zip(expected, found, strict=True):
                assert torch.equal(plain, ours)
                assert plain.stride() == ours.stride()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", ARRANGED)
def test_what_contiguous_gives_back(name: str, dynamic: bool | None) -> None:
    """The argument itself where a slice takes all, and a copy elsewhere: writes tell."""

    def program(x: torch.Tensor, n: int) -> tuple[Any, ...]:
        y = ARRANGED[name](x)
        part = y[:, :n].contiguous()
        part.add_(1)
        return (
            y,
            part,
            part.sum(),
            torch.nn.functional.linear(part[None], torch.ones(2, n), torch.ones(2)),
        )

    compiled = stator.compile(program, dynamic=dynamic, recompile_limit=100)
    with stator.config.patch(strict=True, skip_unprofitable=False):
        for rows, columns, n in [(2, 4, 4), (2, 6, 6), (3, 8, 8), (3, 8, 5), (2, 10, 3), (4, 8, 8), (1, 8, 7), (3, 6, 50)]:  # fmt: skip
            x = torch.randn(rows, columns)
            n = min(n, ARRANGED[name](x).shape[1])
            expected, found = program(x.clone(), n), compiled(x.clone(), n)
            for plain, ours in zip(expected, found, strict=True):
                assert torch.equal(plain, ours)
                assert plain.stride() == ours.stride()
