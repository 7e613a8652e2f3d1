"""Operations whose results are as large as data says: the trace goes on, and serves other counts, 0 and 1 among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor
from torch.nn import functional

from .results import copied, same

EXPERTS = 4


def stored(x: Tensor, mask: Tensor) -> Tensor:
    y = x.clone()
    y[mask] = 0
    y[mask[:, 0]] += 1
    return y + 1


def accumulated(x: Tensor, mask: Tensor) -> Tensor:
    rows = torch.where(mask[:, 0])[0]
    result = torch.zeros_like(x)
    result.index_add_(0, rows, x[rows] * 2)
    return result


def masked_loss(x: Tensor, mask: Tensor) -> Tensor:
    losses = functional.mse_loss(x * 2, x.flip(0), reduction="none")
    loss = (
        losses[mask].mean()
        + functional.cross_entropy(x, mask.long().argmax(1), reduction="none")[mask.any(1)].sum()
    )
    return loss * 0.5


def weighted(x: Tensor, mask: Tensor) -> Tensor:
    kept, others = x[mask], (x + 1).masked_select(mask)
    return (kept * others).sum() / kept.shape[0] if kept.numel() else x.sum()


def routed(x: Tensor, mask: Tensor) -> Tensor:
    """As transformers' mixture of experts, each expert in turn."""
    weights, chosen = (x + mask).softmax(-1).topk(2)
    hits = functional.one_hot(chosen, EXPERTS).permute(2, 1, 0)
    result = torch.zeros_like(x)
    for expert in range(EXPERTS):
        at, rows = torch.where(hits[expert])
        given = x[None, rows].reshape(-1, x.shape[1])
        made = torch.tanh(given * expert) * weights[rows, at, None]
        result.index_add_(0, rows, made.to(x.dtype))
    return result


def suppressed(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Boxes above a bound, the best first."""
    scores = torch.where(mask.any(1), x.abs().sum(1), -1.0)
    keep = scores > 0
    boxes, scores = x[keep], scores[keep]
    order = scores.argsort(descending=True)
    return boxes[order], scores[order] / scores.sum()


def twice(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    once = x[mask[:, 0]]
    again = once[once[:, 0] > 0]
    return again * 2, once.mean(0)


def gradients(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
    leaf = x.detach().clone().requires_grad_()
    loss = (leaf[mask] * 2).exp().sum() + leaf[leaf[:, 0] > 0].pow(2).sum()
    (gradient,) = torch.autograd.grad(loss, leaf)
    return loss, gradient


# One trace serves all counts.
FOLLOWED: dict[str, Callable[..., Any]] = {
    "argwhere": lambda x, m: torch.argwhere(m).sum(0),
    "bincount": lambda x, m: torch.bincount(m.sum(1)) * 2,
    "cat": lambda x, m: torch.cat([x[m], x.flatten()]),
    "stack": lambda x, m: torch.stack([x[m], x[m] + 1]).sum(1),
    "gradients": gradients,
    "index_add": accumulated,
    "loss": masked_loss,
    "mask and rows": lambda x, m: x[m[:, 0]].softmax(-1) @ x.t(),
    "mask of columns": lambda x, m: x[:, m[0]].sum(1),
    "masks": lambda x, m: x[m[:, 0], 1] * 2,
    "masked_select": lambda x, m: x.masked_select(m).exp(),
    "nested": twice,
    "nonzero": lambda x, m: (m.nonzero(), m.nonzero(as_tuple=True)[1] + 1),
    "one_hot": lambda x, m: functional.one_hot(m.sum(1)).float() * 2,
    "product": lambda x, m: x[m] * (x + 1)[m],
    "repeated": lambda x, m: torch.repeat_interleave(x, m.sum(1), dim=0) * 2,
    "repeated, all alike": lambda x, m: torch.repeat_interleave(x, m.sum().reshape(1), dim=0) * 2,
    "repeated, by a scalar": lambda x, m: x.repeat_interleave(m.sum(), 0) * 2,
    "routed": routed,
    "stored": stored,
    "sum": lambda x, m: x[m].sum() + 1,
    "suppressed": suppressed,
    "unique": lambda x, m: torch.unique((x * 2).long()) + 1,
    "unique, all": lambda x, m: torch.unique(m.sum(1), return_inverse=True, return_counts=True),
}


def iterated(x: Tensor, mask: Tensor) -> list[Tensor]:
    return [row * 2 for row in x[mask[:, 0]]]


def sliced(x: Tensor, mask: Tensor) -> Any:
    kept = x[mask[:, 0]]
    values, order = kept[:, 0].sort()
    return kept[order][:3], values, kept[1:], kept[-2:]


def aliases(x: Tensor, mask: Tensor) -> Any:
    kept = x[mask[:, 0]]
    turned = kept.t()
    lying = turned.contiguous()
    lying.add_(1)
    flat = kept.flatten()
    flat.mul_(2)
    return kept, turned, lying, flat, lying is turned, flat is kept


def sizes(x: Tensor, mask: Tensor) -> Any:
    kept = x[mask]
    count = kept.shape[0]
    return torch.zeros(kept.shape), kept.new_ones(count), torch.arange(count), count, count * 2 + 1


def branching(x: Tensor, mask: Tensor) -> Any:
    kept = x[mask]
    if kept.shape[0] == 0:
        return x.sum()
    if len(kept) > 3:
        return kept.max() + kept.numel()
    return f"{len(kept)} of {tuple(kept.shape)}", kept.size(), kept.stride(), kept.is_contiguous()


def resized(x: Tensor, mask: Tensor) -> Any:
    kept = x[mask]
    kept.unsqueeze_(0)
    before = kept.shape
    kept.t_()
    return kept + 1, before, kept.shape, (kept * x[mask][:, None]).sum()


def packed(x: Tensor, mask: Tensor) -> Any:
    lengths = mask.sum(1)
    rows = torch.repeat_interleave(x, lengths, dim=0)
    parts = rows.split(lengths.tolist())
    return [part.sum(0) for part in parts], torch.nn.utils.rnn.pad_sequence(parts)


def counted(x: Tensor, mask: Tensor) -> Any:
    """Functions that go over several tensors of one size."""
    values, counts = mask.sum(1).unique(return_counts=True)
    table = {int(value): int(count) for value, count in zip(values, counts, strict=True)}
    numbered = [(at, value * x) for at, value in enumerate(x[mask])]
    rows = x[mask[:, 0]]
    return (
        table,
        numbered,
        list(rows),
        tuple(zip(rows, rows + 1, range(2))),
        [*map(torch.sum, rows)],
    )


def reversed_rows(x: Tensor, mask: Tensor) -> Any:
    return list(reversed(x[mask[:, 0]])), list(mask[:, 0].nonzero())


def hit_experts(x: Tensor, mask: Tensor) -> Tensor:
    result = torch.zeros_like(x)
    for expert in mask.any(0).nonzero():
        rows = torch.where(mask[:, expert].squeeze(1))[0]
        result.index_add_(0, rows, x[rows] * expert)
    return result


def padded(x: Tensor, mask: Tensor) -> Any:
    kept = x[mask[:, 0]]
    return (
        functional.pad(kept, (0, 0, 0, 8 - kept.shape[0])),
        x[: kept.shape[0]],
        x.view(-1)[len(kept) :],
    )


def handled(x: Tensor, mask: Tensor) -> Any:
    told = []
    kept = x[mask]
    try:
        told.append(kept.max())
        told.append(kept.view(2, -1))
    except (RuntimeError, IndexError) as error:
        told.append(str(error))
    finally:
        told.append(kept.sum())
    return told


# Other counts may go other ways.
RIGHT: dict[str, Callable[..., Any]] = {
    "aliases": aliases,
    "branching": branching,
    "counted": counted,
    "handled": handled,
    "hit experts": hit_experts,
    "item": lambda x, m: x[m].item() if m.sum() == 1 else x.sum(),
    "iterated": iterated,
    "list": lambda x, m: x[m].tolist(),
    "method": lambda x, m: x.__getitem__(m),
    "packed": packed,
    "padded": padded,
    "resized": resized,
    "reversed": reversed_rows,
    "sizes": sizes,
    "sliced": sliced,
    "strides": lambda x, m: (m.nonzero().stride(), x[m[:, 0]].t().stride()),
    "unpacked": lambda x, m: [a + b for a, b, *_ in x[m[:, 0]].t().split(1)],
    "weighted": weighted,
}
COUNTS = ([3, 5, 0, 1, 8, 2, 3, 7], [0, 3, 1, 2, 5, 0], [1, 4, 0, 6, 2, 1])


def arguments(seed: int, count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.zeros(8, 4, dtype=torch.bool)
    mask[torch.randperm(8, generator=generator)[:count]] = True
    return torch.randn(8, 4, generator=generator), mask


def outcome(function: Callable[..., Any], x: Tensor, mask: Tensor) -> Any:
    try:
        return copied(function(x, mask)), copied(x)
    except Exception as error:
        return type(error).__name__, str(error), copied(x)


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("name", [*FOLLOWED, *RIGHT])
def test_other_counts_give_what_plain_python_gives(name: str, counts: list[int]) -> None:
    function = FOLLOWED.get(name) or RIGHT[name]
    compiled = api.compile(function)
    for seed, count in enumerate(counts):
        expected = outcome(function, *arguments(seed, count))
        found = outcome(compiled, *arguments(seed, count))
        assert same(expected, found), (count, expected, found)
    if not api.PLAIN and name in FOLLOWED:
        assert (api.traces(compiled), api.breaks(compiled)) == (1, 0)


def test_a_list_is_as_long_as_the_tensor_of_this_call() -> None:
    def step(x: Tensor) -> list[float]:
        return (x * 2).tolist()

    compiled = api.compile(step, dynamic=True)
    for length in (3, 5, 4, 3, 7):
        assert compiled(torch.ones(length)) == step(torch.ones(length))


def assigned(x: Tensor, kept: Tensor) -> Tensor:
    made = torch.zeros(3)
    made[:3] = kept
    return made


REFUSED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "assigned": assigned,
    "copied": lambda x, kept: torch.zeros(3).copy_(kept),
    "joined": lambda x, kept: torch.stack([kept, torch.ones(3)]),
    "read": lambda x, kept: x[: len(kept)].view(3),
    "turned": lambda x, kept: torch.stack([kept, kept], 1).t().view(-1),
    "viewed": lambda x, kept: kept.view(3),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("first", [1, 3])
def test_what_refuses_sizes_raises_behind_what_was_written(name: str, first: int) -> None:
    def step(x: Tensor, log: list[Any]) -> Any:
        log.append("begun")
        x += 1
        result = REFUSED[name](x, x[x > 1])
        log.append("done")
        return result

    def play(step: Callable[..., Any]) -> list[Any]:
        played = []
        for count in (first, first, first, first, 2, first, 5, 5, 3, 0, first, 1, 2):
            x, log = (torch.arange(5) < count).float(), list[Any]()
            try:
                result = step(x, log)
            except RuntimeError as raised:
                result = str(raised)
            played.append(copied([result, x, log]))
        return played

    assert same(play(api.compile(step, backend="eager")), play(step))
