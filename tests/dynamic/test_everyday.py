"""What programs that vary in size do every day: layers, slices, windows, masks. Two traces serve them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stator

SIZES = [14, 16, 18, 12, 25, 15, 7, 9, 20]


def image(n: int) -> tuple[Any, ...]:
    return (torch.randn(2, 3, n, n + 2),)


def sequence(n: int) -> tuple[Any, ...]:
    return (torch.randn(2, n, 16),)


def matrix(n: int) -> tuple[Any, ...]:
    return (torch.randn(n, 4),)


def long_and_number(n: int) -> tuple[Any, ...]:
    return torch.randn(60), n


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(64, 16)
        self.register_buffer("fixed", torch.randn(1, 64, 16))

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.size(1), device=x.device)
        return x + self.fixed[:, : x.size(1)] + self.table(places)[None]


class Rotary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("inverse", 1 / (10000 ** (torch.arange(0, 16, 2) / 16)))

    def forward(self, x: Tensor) -> Tensor:
        angles = torch.outer(torch.arange(x.shape[1]).float(), self.inverse)
        angles = torch.cat([angles, angles], -1)
        first, second = x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()


def windows(x: Tensor) -> Tensor:
    x = F.pad(x, (0, (-x.shape[3]) % 4, 0, (-x.shape[2]) % 4))
    x = x.unflatten(2, (-1, 4)).unflatten(4, (-1, 4))
    return x.permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, 3)


def assigned(x: Tensor) -> Tensor:
    y = torch.zeros(2, x.shape[1] + 2, 16)
    y[:, 1:-1] = x
    y[:, : x.shape[1] // 2] += 1
    return y


torch.manual_seed(0)
attention = nn.MultiheadAttention(16, 4, batch_first=True).eval()
transformer = nn.Transformer(16, 4, 1, 1, 32, dropout=0.0, batch_first=True)
layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
encoder = nn.TransformerEncoder(layer, 2).eval()
lstm = nn.LSTM(16, 8, batch_first=True)
up = nn.ConvTranspose2d(3, 4, 3, 2, 1)
causal = nn.Transformer.generate_square_subsequent_mask
attend = F.scaled_dot_product_attention

CASES: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2), image),
    "interpolate by a fraction": (
        lambda x: F.interpolate(x, scale_factor=1.7, mode="bicubic", recompute_scale_factor=True),
        image,
    ),
    "interpolate to a size": (lambda x: F.interpolate(x[:, :, ::2], size=x.shape[2:]), image),
    "unfold and fold": (lambda x: F.fold(F.unfold(x, 2), x.shape[2:], 2), image),
    "windows of a sequence": (lambda x: x.unfold(1, 3, 2).sum(-1), sequence),
    "windows of an image": (windows, image),
    "einsum": (lambda x: torch.einsum("...ij,...kj->...ik", x, x), sequence),
    "heads": (
        lambda x: x.reshape(x.size(0), -1, 4, 4).transpose(1, 2).reshape(x.size(0), -1),
        sequence,
    ),
    "head of a vector": (lambda x, n: x[:n], long_and_number),
    "slice of a vector": (lambda x, n: x[n : 2 * n : 2], long_and_number),
    "tail of a vector": (lambda x, n: x[-n:], long_and_number),
    "element": (lambda x, n: x[n] + x[-1], long_and_number),
    "arange": (lambda x, n: torch.arange(n) * 2, long_and_number),
    "arange in steps": (lambda x, n: torch.arange(n, 0, -2), long_and_number),
    "full": (lambda x, n: torch.full((n, n + 1), n), long_and_number),
    "triangle": (lambda x, n: torch.ones(n, n).tril(), long_and_number),
    "pad to a size": (lambda x: F.pad(x, (0, 0, 0, max(0, 32 - x.shape[1]))), sequence),
    "pad by reflection": (lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), image),
    "split": (lambda x, n: x.split([n, 60 - n])[1], long_and_number),
    "chunks": (lambda x: x.chunk(2, -1)[1], sequence),
    "sections": (lambda x: x.hsplit([2, 5])[1] + x.tensor_split([3], 0)[0].sum(), sequence),
    "attention": (lambda x: attention(x, x, x)[0], sequence),
    "attention without weights": (lambda x: attention(x, x, x, need_weights=False)[0], sequence),
    "causal attention": (lambda x: attend(x, x, x, is_causal=True), sequence),
    "transformer": (
        lambda x: transformer(x, x, tgt_mask=causal(x.shape[1]), tgt_is_causal=True),
        sequence,
    ),
    "encoder": (encoder, sequence),
    "lstm": (lambda x: lstm(x)[0], sequence),
    "positions": (Positions(), sequence),
    "rotary positions": (Rotary(), sequence),
    "strided convolution": (nn.Conv2d(3, 4, 3, 3, 1, dilation=2), image),
    "transposed convolution": (
        lambda x: up(x, output_size=(x.shape[2] * 2, x.shape[3] * 2)),
        image,
    ),
    "pooling, rounded up": (nn.MaxPool2d(3, 2, 1, ceil_mode=True), image),
    "averages, rounded up": (nn.AvgPool2d(3, 2, 1, ceil_mode=True), image),
    "adaptive pooling": (nn.AdaptiveAvgPool2d((3, None)), image),
    "batch normalisation": (nn.BatchNorm2d(3, track_running_stats=False), image),
    "top of each": (lambda x: x.topk(x.shape[1] // 2, dim=1)[0], sequence),
    "assignment": (assigned, sequence),
    "scatter": (
        lambda x: torch.zeros(2, x.shape[1] + 1, 16).scatter(1, x.long().clamp(0, 0), x),
        sequence,
    ),
    "normalised": (lambda x: F.normalize(x, dim=-1) @ F.normalize(x, dim=-1).T, matrix),
    "mean by hand": (lambda x: x.sum() / x.shape[0] + x.numel() / len(x), matrix),
    "half of them": (lambda x: x[: int(x.shape[0] * 0.5)], matrix),
    "list of sizes": (lambda x: torch.ones([*x.shape[:-1], 7]), matrix),
    "logarithm of a size": (lambda x: x * math.log(x.shape[0]), matrix),
    "fourier": (lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=0), n=x.shape[0], dim=0), matrix),
}


@pytest.mark.parametrize("name", CASES)
def test_two_traces_serve_all_sizes(name: str) -> None:
    function, arguments = CASES[name]
    compiled = stator.compile(function)
    with torch.no_grad():
        for size in SIZES:
            given = arguments(size)
            torch.testing.assert_close(compiled(*given), function(*given), atol=1e-5, rtol=1e-4)
    stats = stator.stats(compiled)
    assert (stats.traces, stats.native, stats.breaks) == (2, 0, 0), stats.reason


def test_parts_that_are_structure() -> None:
    """How many parts there are is a trace each, their sizes aren't."""

    def pairs(x: Tensor) -> Tensor:
        return torch.stack([part.sum() for part in x.split(5)])

    compiled = stator.compile(pairs)
    for size in (6, 7, 8, 9, 11, 12, 14):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), pairs(x))
    assert stator.stats(compiled).traces <= 3
