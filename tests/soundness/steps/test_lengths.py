"""Programs whose sizes come out of tensors: batches of different lengths, packing, routing, crops, caches. One trace serves them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Generator, Tensor, nn
from torch.nn import functional

from .results import copied, same

torch.manual_seed(0)
ROWS = torch.randn(64, 8)
TABLE, LAYER = nn.Embedding(50, 8), nn.Linear(8, 8)
RECURRENT, MEMORY = nn.GRU(8, 8, batch_first=True), nn.LSTM(8, 4, bidirectional=True)
ATTENTION = nn.MultiheadAttention(8, 2, batch_first=True)


def draw(least: int, most: int, count: int, generator: Generator) -> Tensor:
    return torch.randint(least, most, (count,), generator=generator)


def attended(x: Tensor, generator: Generator) -> Tensor:
    lengths = draw(1, 12, 4, generator)
    longest = int(lengths.max())
    given = x[:1].expand(4, longest, 8)
    blank = torch.arange(longest)[None] >= lengths[:, None]
    made, _ = ATTENTION(given, given, given, key_padding_mask=blank, need_weights=False)
    return made.masked_fill(blank[..., None], 0).sum(1)


def cached(x: Tensor, generator: Generator) -> Tensor:
    at = draw(1, 60, 1, generator).item()
    cache = torch.zeros(64, 8)
    cache[:at] = x[:at]
    cache[at] = 1.0
    return (cache[: at + 1] @ x[0]).softmax(0) @ cache[: at + 1]


def causal(x: Tensor, generator: Generator) -> Tensor:
    length = draw(1, 20, 1, generator).item()
    mask = torch.full((length, length), float("-inf")).triu(1)
    x = x[:length]
    return ((x @ x.t()) / math.sqrt(8) + mask).softmax(-1) @ x


def classes(x: Tensor, generator: Generator) -> tuple[Tensor, int]:
    labels = draw(0, 7, 9, generator)
    count = int(labels.max()) + 1
    return functional.one_hot(labels, count).float() @ x[:count], count


def collated(x: Tensor, generator: Generator) -> tuple[Tensor, Tensor, int]:
    lengths = draw(1, 9, 4, generator).tolist()
    longest = max(lengths)
    rows = [
        functional.pad(torch.arange(length), (0, longest - length), value=49) for length in lengths
    ]
    mask = torch.zeros(4, longest, dtype=torch.bool)
    for row, length in enumerate(lengths):
        mask[row, :length] = True
    return TABLE(torch.stack(rows))[mask], mask, sum(lengths)


def dispatched(x: Tensor, generator: Generator) -> Tensor:
    experts = draw(0, 4, 64, generator)
    order = experts.argsort(stable=True)
    counts = torch.bincount(experts, minlength=4).tolist()
    parts = [LAYER(part) * (at + 1) for at, part in enumerate(x[order].split(counts))]
    result = torch.empty_like(x)
    result[order] = torch.cat(parts)
    return result


def encoded(x: Tensor, generator: Generator) -> Tensor:
    length = draw(2, 30, 1, generator).item()
    angles = torch.arange(length)[:, None] / (10000 ** (torch.arange(0, 8, 2) / 8))
    places = torch.zeros(length, 8)
    places[:, 0::2], places[:, 1::2] = angles.sin(), angles.cos()
    return x[:length] + places


def gradients(x: Tensor, generator: Generator) -> tuple[Tensor, Tensor, float]:
    length = draw(1, 40, 1, generator).item()
    weights = torch.ones(8, requires_grad=True)
    loss = (x[:length] * weights).sum(1).pow(2).mean()
    loss = loss + functional.pad(x[:length] @ weights, (0, 3)).sum()
    (gradient,) = torch.autograd.grad(loss, weights)
    return loss, gradient, loss.item() / length


def grid(x: Tensor, generator: Generator) -> Tensor:
    height, width = draw(2, 9, 2, generator).tolist()
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack([rows, columns], -1).view(height * width, 2).float().mean(0)


def kept(x: Tensor, generator: Generator) -> Tensor:
    chances, order = torch.rand(20, generator=generator).softmax(0).sort(descending=True)
    count = int((chances.cumsum(0) < 0.7).sum()) + 1
    chosen = chances[:count] / chances[:count].sum()
    return torch.zeros(20).scatter(0, order[:count], chosen)


def packed(x: Tensor, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
    lengths = draw(1, 12, 3, generator).sort(descending=True).values
    given = x[:36].view(3, 12, 8)[:, : lengths[0].item()]
    sequences = nn.utils.rnn.pack_padded_sequence(given, lengths, batch_first=True)
    made, state = RECURRENT(sequences)
    result, lengths = nn.utils.rnn.pad_packed_sequence(made, batch_first=True)
    return result.sum(1), state, lengths


def packed_both_ways(x: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    lengths = draw(2, 12, 3, generator).tolist()
    padded = nn.utils.rnn.pad_sequence([x[:length] for length in lengths])
    sequences = nn.utils.rnn.pack_padded_sequence(
        padded, torch.tensor(lengths), enforce_sorted=False
    )
    made, (state, _) = MEMORY(sequences)
    return nn.utils.rnn.pad_packed_sequence(made)[0].mean(0), state


def ragged(x: Tensor, generator: Generator) -> list[Tensor]:
    bounds = functional.pad(draw(0, 6, 5, generator).cumsum(0), (1, 0)).tolist()
    return [x[start:end].sum(0) for start, end in zip(bounds, bounds[1:])]


def ring(x: Tensor, generator: Generator) -> tuple[Tensor, int]:
    buffer, at = torch.zeros(16, 8), 0
    for count in draw(1, 5, 4, generator).tolist():
        buffer[(torch.arange(count) + at) % 16] = x[:count]
        at = (at + count) % 16
    return buffer, at


def segments(x: Tensor, generator: Generator) -> Tensor:
    lengths = draw(1, 6, 5, generator)
    owners = torch.repeat_interleave(torch.arange(5), lengths)
    return torch.zeros(5, 8).index_add(0, owners, x[: owners.shape[0]]) / lengths[:, None]


def windows(x: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    length = draw(8, 40, 1, generator).item()
    return x[:length].view(-1, 2, 4).mean(1), x[length - 8 : length].roll(length, 0)


PROGRAMS: tuple[Callable[[Tensor, Generator], Any], ...] = (
    attended, cached, causal, classes, collated, dispatched, encoded, gradients, grid, kept, packed,
    packed_both_ways, ragged, ring, segments, windows,
)  # fmt: skip

# Lengths that are alike for the one, the longest sequence's for the other, are no longer so.
MORE = {"packed": 3, "packed_both_ways": 6}


def play(step: Callable[[Tensor, Generator], Any], calls: int, wider: bool) -> list[Any]:
    generator, played = Generator(), []
    for call in range(calls):
        generator.manual_seed(call % 17)
        x = torch.cat([ROWS, ROWS[: 2 * call]]) if wider and call % 2 else ROWS.clone()
        played.append(copied([step(x, generator), generator.get_state()]))
    return played


@pytest.mark.parametrize("program", PROGRAMS)
def test_one_trace_serves_all_lengths(program: Callable[..., Any]) -> None:
    compiled = api.compile(program, backend="eager")
    assert same(play(compiled, 25, wider=False), play(program, 25, wider=False))
    if not api.PLAIN:
        assert api.breaks(compiled) == 0
        assert api.traces(compiled) <= MORE.get(program.__name__, 1)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.filterwarnings("ignore::stator.RecompileLimitWarning")
def test_lengths_beside_sizes_that_vary(program: Callable[..., Any], dynamic: bool | None) -> None:
    if program is dispatched:
        pytest.skip("it has as many experts as rows")
    compiled = api.compile(program, backend="eager", dynamic=dynamic)
    assert same(play(compiled, 12, wider=True), play(program, 12, wider=True))
