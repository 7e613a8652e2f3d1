"""Clients with different numbers of rows run at once: results are those of one after the other."""

from __future__ import annotations

import copy
import logging
import math
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F

import stator.federated as fl
from stator._program_tracing import padding
from stator.federated.execution import LocalContext
from stator.programs import TensorProgram

MODEL = fl.TensorType(np.float32, [3])
ROWS = OrderedDict(
    x=fl.TensorType(np.float32, [None, 3]),
    y=fl.TensorType(np.float32, [None]),
    k=fl.TensorType(np.int64, [None]),
)
SIZES = [1, 5, 3, 7, 2, 5, 4, 6, 3, 13]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """How many clients ran at once each time, and whether they had different numbers of rows."""
    found: list[tuple[int, bool]] = []
    together = TensorProgram._run_together

    def noted(self: Any, count: int, columns: Any, states: Any = None, lengths: Any = None) -> Any:
        made = together(self, count, columns, states, lengths)
        found.append((count, lengths is not None))
        return made

    monkeypatch.setattr(TensorProgram, "_run_together", noted)
    return found


def clients(sizes: list[int] = SIZES) -> list[Any]:
    drawn = np.random.default_rng(0)
    return [
        OrderedDict(
            x=drawn.normal(size=(size, 3)).astype(np.float32),
            y=drawn.uniform(0.1, 0.9, size).astype(np.float32),
            k=drawn.integers(0, 3, size),
        )
        for size in sizes
    ]


def both(fn: Any, sizes: list[int] = SIZES, arrays: str | None = None) -> tuple[Any, Any]:
    """What clients get at once, and one after the other."""
    local = fl.local_computation(MODEL, ROWS, **({"arrays": arrays} if arrays else {}))(fn)

    @fl.federated_computation(
        fl.FederatedType(MODEL, fl.SERVER), fl.FederatedType(ROWS, fl.CLIENTS)
    )
    def comp(w: Any, rows: Any) -> Any:
        return fl.federated_collect(fl.federated_map(local, (fl.federated_broadcast(w), rows)))

    found = []
    for exact in (False, True):
        with fl.framework.get_context_stack().install(LocalContext(threads=1, exact=exact)):
            torch.manual_seed(0)
            found.append(comp(np.array([0.3, -0.2, 0.5], np.float32), clients(sizes)))
    return found[0], found[1]


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in leaves(part)]
    return [np.asarray(value)]


def same(found: Any, expected: Any) -> None:
    for a, b in zip(leaves(found), leaves(expected), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def gradient(loss: Any) -> Any:
    """What a loss of the weights and rows gives, with its gradient."""

    def fn(w, rows):
        slope, value = torch.func.grad_and_value(lambda w: loss(w, rows))(w)
        return slope, value

    return fn


def attended(w, r):
    return torch.stack([r["x"] * w, r["x"].exp(), r["x"].sin() * w, r["x"] * r["y"][:, None]], 2)


torch.manual_seed(0)
LAYER = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 3))
IMAGES = nn.Sequential(
    nn.Conv2d(1, 2, 3, padding=1), nn.GroupNorm(1, 2), nn.ReLU(), nn.MaxPool2d(2)
)
TABLE = nn.Embedding(3, 3)
ATTENTION = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5, batch_first=True).eval()
GRU = nn.GRU(1, 2, batch_first=True)
LSTM = nn.LSTM(1, 2)

EVERY = {
    # Numbers computed of that of rows.
    "roots and logarithms": gradient(
        lambda w, r: (
            (r["x"] * w).sum() / len(r["x"]) ** 0.5
            + math.log(len(r["x"]) + 1) * w.sum()
            + (r["y"] ** 2).sum() / (len(r["y"]) + 1) ** -1
            + (r["x"] @ w)[: int(len(r["y"]) ** 0.5)].amax() * math.exp(-len(r["y"]))
        )
    ),
    "unit columns": gradient(
        lambda w, r: (
            (F.normalize(r["x"] * w, dim=0) * r["y"][:, None]).sum()
            + F.normalize(r["y"] * w[0], p=1.0, dim=-1).amax()
        )
    ),
    "other element types": lambda w, r: (
        r["x"].bfloat16().float().sum(0),
        r["x"].half().mean(0),
        torch.complex(r["x"], r["x"].exp()).mean(0),
        torch.polar(r["y"], r["y"]).angle().sum(),
    ),
    # Reductions, of all rows and beside them.
    "sum": gradient(lambda w, r: (r["x"] * w).sum()),
    "sums of columns": gradient(lambda w, r: ((r["x"] * w).sum(0) ** 2).sum()),
    "sums kept": gradient(lambda w, r: (r["x"] - (r["x"] * w).sum(0, keepdim=True)).sum()),
    "sums of rows": gradient(lambda w, r: (r["x"] * w).sum(1).exp().mean()),
    "mean": gradient(lambda w, r: (r["x"] * w).mean()),
    "means of columns": gradient(lambda w, r: ((r["x"] * w).mean(0) ** 3).sum()),
    "means of rows": gradient(lambda w, r: ((r["x"] * w).mean(-1) ** 2).mean()),
    "greatest": gradient(lambda w, r: (r["x"] * w).amax(0).sum() + (r["x"] * w).max()),
    "least": gradient(lambda w, r: (r["x"] * w).amin((0, 1)) + (r["x"] * w).min(0).values.sum()),
    "greatest of rows": gradient(lambda w, r: (r["x"] * w).max(1).values.sum()),
    "product": gradient(lambda w, r: (r["x"] * w).prod(0).sum()),
    "variances": gradient(lambda w, r: (r["x"] * w + 1).var(0, unbiased=False).sum()),
    "deviations": gradient(lambda w, r: (r["x"] * w).std(0, correction=0).sum()),
    "variance of rows": gradient(lambda w, r: (r["x"] * w).var(1).mean()),
    "logarithm of sums": gradient(lambda w, r: torch.logsumexp(r["x"] @ w, 0)),
    "any and all": lambda w, r: ((r["x"] > 1).any(0), (r["x"] > -1).all(), (r["x"] > 0).sum()),
    "integers": lambda w, r: (r["k"].sum(), r["k"].max(), r["k"].min(), (r["k"] == 1).sum(0)),
    # Products.
    "products": gradient(lambda w, r: (r["x"] @ torch.outer(w, w) @ w).square().mean()),
    "products over rows": gradient(lambda w, r: (r["x"].T @ (r["x"] @ w - r["y"])).square().sum()),
    "products with rows behind": gradient(lambda w, r: (w @ r["x"].T).square().mean()),
    "squares of rows": lambda w, r: (r["x"].T @ r["x"], r["y"] @ r["y"], r["y"] @ r["x"]),
    # Losses.
    "squared": gradient(lambda w, r: F.mse_loss(r["x"] @ w, r["y"])),
    "summed": gradient(lambda w, r: F.mse_loss(r["x"] @ w, r["y"], reduction="sum")),
    "left apart": gradient(lambda w, r: F.l1_loss(r["x"] @ w, r["y"], reduction="none").mean()),
    "huber": gradient(lambda w, r: F.huber_loss(r["x"] @ w, r["y"], delta=0.3)),
    "logistic": gradient(lambda w, r: F.binary_cross_entropy_with_logits(r["x"] @ w, r["y"])),
    "classes": gradient(lambda w, r: F.cross_entropy(r["x"] * w, r["k"])),
    "smoothed": gradient(lambda w, r: F.cross_entropy(r["x"] * w, r["k"], label_smoothing=0.1)),
    "summed classes": gradient(lambda w, r: F.cross_entropy(r["x"] * w, r["k"], reduction="sum")),
    "ignored classes": gradient(
        lambda w, r: (
            F.nll_loss(F.log_softmax(r["x"] * w, -1), r["k"], ignore_index=1)
            + F.cross_entropy(r["x"] * w, torch.softmax(r["x"], 1))
        )
    ),
    # Modules.
    "layers": gradient(lambda w, r: F.cross_entropy(LAYER(r["x"] * w), r["k"])),
    "images": gradient(
        lambda w, r: IMAGES(torch.stack([r["x"] * w] * 3, 1).unsqueeze(1)).flatten(1).std()
    ),
    "embeddings": gradient(lambda w, r: (TABLE(r["k"]) * w).square().mean()),
    "recurrent": gradient(lambda w, r: GRU((r["x"] * w).unsqueeze(-1))[1][-1].square().mean()),
    "recurrent, steps first": gradient(
        lambda w, r: LSTM((r["x"] * w).T.unsqueeze(-1))[0][-1].square().mean()
    ),
    "attention": gradient(lambda w, r: ATTENTION(attended(w, r)).square().mean()),
    "attention as a function": gradient(
        lambda w, r: F.scaled_dot_product_attention(*[attended(w, r)] * 3).std()
    ),
    "the first row": gradient(lambda w, r: F.dropout(r["x"], 0.5, False)[0] @ w),
    "sums of the first": gradient(lambda w, r: (r["x"] * w).cumsum(1).flip(1).softmax(-1).std()),
    "an optimizer": lambda w, r: stepped(w, r),
    # Numbers and shapes.
    "the number of rows": lambda w, r: (len(r["y"]), float(len(r["y"])), r["x"].shape[0]),
    "computed with": gradient(lambda w, r: (r["x"] @ w).sum() / len(r["y"]) + len(r["y"])),
    "made of that size": gradient(
        lambda w, r: ((r["x"] * w + torch.ones(len(r["x"]), 3)).cumsum(1)[:, 1]).sum()
    ),
    "places as numbers": lambda w, r: (torch.arange(len(r["y"])) * r["y"]).sum(),
    "like rows": lambda w, r: (torch.zeros_like(r["x"]) + w).sum(0),
    "shapes": lambda w, r: (
        r["x"].reshape(len(r["x"]), 3, 1).permute(2, 0, 1).squeeze(0).transpose(0, 1).sum(1),
        r["x"].view(-1, 1, 3)[:, 0, 1:].sum(0),
        torch.cat([r["x"], r["y"][:, None]], 1).mean(0),
        torch.stack([r["y"], r["y"] * 2]).sum(1),
        r["x"][..., None].unsqueeze(0).sum((0, 1, 3)),
    ),
    "added by place": lambda w, r: (
        torch.zeros(3, 3).index_add(0, r["k"], r["x"]),
        torch.zeros(3).index_add_(0, r["k"], r["y"]),
        torch.zeros(3).scatter_add(0, r["k"], r["y"]),
        F.one_hot(r["k"], 3).sum(0),
    ),
    "elements": lambda w, r: (
        torch.where(r["x"] > w, r["x"].abs().sqrt(), r["x"].clamp(-1, 1)).sum(0),
        (w - r["x"]).tanh().log1p().mean(0),
        (r["x"] > 0).float().mean(),
    ),
    "order": gradient(
        lambda w, r: (
            ((r["x"] @ w).sort(descending=True).values * r["y"]).mean()
            + ((r["x"] * w).sort(0)[0] * r["y"][:, None]).mean()
            + ((r["x"] * w).sort(dim=1).values[:, 1] * r["y"]).sum()
            + (r["y"].sort().values * w[1]).exp().max()
        )
    ),
    "places": lambda w, r: (
        *((r["x"] @ w).argmax(), r["x"].argmin(0), r["x"].argmax(), r["x"].argmin(0, True)),
        *((r["y"].argsort() * r["y"]).sum(), (r["k"].argsort() * torch.arange(len(r["k"]))).sum()),
        *(r["k"].argmax(), (r["k"] * 0 - (1 << 62) * 2).argmax(), (r["y"] * -math.inf).argmax()),
    ),
    "searched": lambda w, r: (
        torch.searchsorted(w.sort().values, r["y"]).sum(),
        torch.searchsorted(w.sort().values, r["x"], right=True).sum(0),
        torch.searchsorted(r["y"].sort().values, torch.tensor([0.1, 0.5, math.inf]), right=True),
    ),
    "the greatest of each row": gradient(
        lambda w, r: (r["x"] * w).topk(2, 1).values.square().sum()
    ),
    "lengths": gradient(
        lambda w, r: (
            (r["x"] * w).norm(dim=1).mean()
            + (r["x"] * w).norm(dim=0).sum()
            + (r["x"] * w).norm()
            + (r["x"] * w).norm(1)
            + torch.linalg.norm(r["x"] * w, dim=1).std(correction=0)
            + torch.linalg.norm(r["x"] * w)
            + torch.linalg.vector_norm(r["x"] * w, math.inf, dim=(0, 1))
            + (F.normalize(r["x"] * w, dim=1) * r["x"]).sum()
            + F.cosine_similarity(r["x"], w[None], dim=1).mean()
            + (torch.cdist(r["x"] * w, torch.eye(3)) ** 2).amin(1).mean()
        )
    ),
    "broadcasts": gradient(
        lambda w, r: (
            (w.expand(len(r["x"]), 3) * r["x"]).square().mean()
            + (r["y"][:, None].expand(-1, 3) * r["x"] * w).sum()
            + (w.expand_as(r["x"]) * r["x"]).std(correction=0)
            + w.broadcast_to(len(r["x"]), 3).sum() / r["y"].numel()
        )
    ),
    "chosen by rows": gradient(lambda w, r: (w[r["k"]] * r["y"]).mean()),
    "means of others": lambda w, r: (
        (r["x"] > 0).mean(dtype=torch.float32),
        (r["k"] * 2).mean(0, dtype=torch.float64),
    ),
    # Along rows.
    "sums up to each row": gradient(
        lambda w, r: (
            ((r["x"] * w).cumsum(0) * r["y"][:, None]).mean()
            + (r["x"] * w).abs().cumprod(0).sum()
            + (torch.logcumsumexp(r["x"] @ w, 0) * r["y"]).sum()
            + (r["x"] * w).cummax(0).values.mean()
        )
    ),
    "turned and rolled": gradient(
        lambda w, r: (
            (r["y"].flip(0).cumsum(0).flip(0) * (r["x"] @ w)).sum()
            + (r["x"].flip([0, 1]) * w * r["y"][:, None]).sum()
            + (r["x"].roll(1, 0) * w * r["x"]).sum()
            + (r["x"].roll(-2, dims=0) * w * r["x"]).sum()
        )
    ),
    "shares of rows": gradient(
        lambda w, r: (
            (torch.softmax(r["x"] @ w, 0) * r["y"]).sum()
            - (torch.log_softmax(r["x"] @ w, 0) * r["y"]).mean()
            + (torch.softmax(r["x"] * w, 0) ** 2).sum()
        )
    ),
    # Some rows.
    "all but the last": gradient(lambda w, r: (r["x"] * w)[:-1].sum(0).square().sum()),
    "all but the first": gradient(lambda w, r: ((r["x"] @ w)[1:] * r["y"][1:]).sum()),
    "neighbours": gradient(
        lambda w, r: (
            ((r["x"] * w)[1:] - (r["x"] * w)[:-1]).square().sum()
            + torch.diff(r["y"] * w[0]).abs().sum()
            + (r["x"] @ w).diff(dim=0).exp().sum()
        )
    ),
    "pairs": lambda w, r: (
        torch.bincount(r["k"][:-1] * 3 + r["k"][1:], minlength=9),
        len(r["k"][:-1]),
        len(r["k"]) - 1,
        torch.log(torch.eye(3)[r["k"][:-1], r["k"][1:]] + 1).sum(),
    ),
    "half of the rows": gradient(
        lambda w, r: (
            ((r["x"] * w)[len(r["x"]) // 2 :]).mean(0).sum()
            + (r["x"] * w)[: (len(r["x"]) + 1) // 2].sum()
        )
    ),
    "shares": gradient(lambda w, r: split(w, r)),
    "the first and the last": gradient(
        lambda w, r: (
            (r["x"] * w)[0].sum() + (r["x"] * w)[-1].square().sum() + (r["x"] @ w)[len(r["y"]) - 1]
        )
    ),
    "the first and last ones": gradient(
        lambda w, r: (r["x"] * w)[:1].sum() + (r["x"] * w)[-1:, 1:].square().sum()
    ),
    "in another order": gradient(
        lambda w, r: (
            ((r["x"] * w)[r["y"].argsort()].cumsum(0) * r["y"].sort().values[:, None]).sum()
            + ((r["x"] * w).index_select(0, r["y"].argsort()) * r["x"]).sum()
            + ((r["x"] @ w).gather(0, r["y"].argsort()) * r["y"]).sum()
            + (r["x"] @ w)[r["y"].argmax()].square()
        )
    ),
    "one of each row": gradient(
        lambda w, r: (
            (r["x"] * w).gather(1, r["k"][:, None]).mean()
            + (r["x"] * w)[torch.arange(len(r["k"])), r["k"]].exp().mean()
            + torch.take_along_dim(r["x"] * w, r["k"][:, None], 1).sum()
        )
    ),
    "joined": gradient(
        lambda w, r: (
            (torch.cat([r["y"][:-1] * w[0], w[1:2]]).cumsum(0) ** 2).mean()
            + torch.cat([torch.zeros(1, 3), (r["x"] * w)[1:]]).mul(r["x"]).sum()
        )
    ),
    "parts of rows": gradient(
        lambda w, r: (
            sum(part.exp().mean() for part in (r["x"] * w).split([1, 2], 1))
            + (r["x"] * w).unbind(1)[1].std(correction=0)
            + (r["x"] * w).chunk(3, -1)[2].mean()
            + (r["x"] * w).repeat(1, 2).movedim(1, 0).square().mean()
        )
    ),
    # In the middle.
    "medians": gradient(
        lambda w, r: (
            (r["x"] @ w).median()
            + (r["x"] * w).median()
            + (r["x"] * w).median(0).values.sum()
            + (r["x"] * w).median(1).values.mean()
            + ((r["x"] * w).nanmedian(0, keepdim=True).values * w).sum()
        )
    ),
    "quantiles": gradient(
        lambda w, r: (
            (r["x"] @ w).quantile(0.3)
            + (r["x"] * w).quantile(torch.tensor([0.1, 0.5]), dim=0).sum()
            + (r["x"] @ w).quantile(0.9, interpolation="lower")
        )
    ),
    "medians of integers": lambda w, r: (r["k"].median(), r["k"].median(0), r["k"].sort()[0][0]),
    # Products.
    "products by letters": gradient(
        lambda w, r: (
            torch.einsum("nd,n->d", r["x"] * w, r["y"]).square().sum()
            + torch.einsum("nd,ne,n->de", r["x"] * w, r["x"], r["y"]).sum()
            + torch.einsum("nd,d->n", r["x"], w).exp().mean()
            + torch.einsum("nd,nd", r["x"] * w, r["x"])
        )
    ),
    "products that are added": gradient(
        lambda w, r: (
            torch.addmv(w, r["x"].T, r["y"] * w[0], alpha=0.5).square().sum()
            + torch.addmv(r["y"], r["x"], w, beta=2).square().mean()
            + torch.addmm(w, r["x"], torch.outer(w, w)).square().mean()
            + torch.outer(w, r["y"]).square().mean()
        )
    ),
    "solved": gradient(
        lambda w, r: (
            torch.linalg.solve(torch.eye(3) + torch.outer(w, w), r["x"].T).square().mean()
            + torch.linalg.solve_triangular(torch.eye(3) * 2 + w, r["x"].T, upper=False).mean()
            + torch.cholesky_solve(r["x"].T, torch.eye(3) * w).square().mean()
        )
    ),
    "covariances": gradient(
        lambda w, r: torch.cov((r["x"] * w).T, correction=0).sum() + len(r["y"]) * w[0]
    ),
    "counts in bins": lambda w, r: (
        torch.histc(r["y"], 4, 0, 1),
        torch.histc(r["x"] @ w, bins=5, min=-1, max=1),
        torch.full((2,), len(r["y"])),
        r["x"].new_zeros(len(r["x"])).add(r["y"]).sum(),
    ),
    # Weighted.
    "weighted losses": gradient(
        lambda w, r: (
            F.cross_entropy(r["x"] * w, r["k"], weight=torch.tensor([1.0, 2.0, 0.5]))
            + F.nll_loss(
                F.log_softmax(r["x"] * w, 1),
                r["k"],
                weight=torch.tensor([1.0, 3.0, 2.0]),
                ignore_index=0,
            ).nan_to_num(0)
            + F.binary_cross_entropy_with_logits(r["x"] @ w, r["y"], pos_weight=torch.tensor(2.0))
            + F.binary_cross_entropy(torch.sigmoid(r["x"] @ w), r["y"], weight=r["y"])
            + F.kl_div(
                F.log_softmax(r["x"] * w, 1), torch.softmax(r["x"], 1), reduction="batchmean"
            )
        )
    ),
    # Numbers.
    "computed with as a number": gradient(
        lambda w, r: (
            (r["x"] @ w).sum() / (len(r["x"]) + 1)
            + (r["x"] @ w).sum() * (1 / len(r["x"]))
            + (r["y"] * w[0]).sum() / float(len(r["y"]))
            + w.sum() * math.sqrt(len(r["y"])) * max(len(r["y"]), 3) * min(2, len(r["y"]))
            + w[0] * (len(r["y"]) * 2 - 1) / (len(r["y"]) % 4 + 1)
        )
    ),
    "numbers as results": lambda w, r: (
        *(len(r["x"]) * 2, 1 / len(r["x"]), float(len(r["y"])), r["x"].numel(), -len(r["y"])),
        *(int(0.8 * len(r["y"])), round(len(r["y"]) / 2), math.ceil(len(r["y"]) / 3)),
        (r["k"] == 1).sum() / len(r["k"]),
    ),
    # What is infinite for rows of zeros is finite for a client's own.
    "finite for the client's own": gradient(lambda w, r: (r["x"].abs() * w.abs()).log().mean()),
}


def split(w, r):
    many = int(0.8 * len(r["x"]))
    fitted, kept = (r["x"] * w)[:many], (r["x"] @ w)[many:]
    return (fitted.sum(0) ** 2).sum() / (len(fitted) + 1) + (kept - r["y"][many:]).abs().sum()


NORMS = {
    "all rows": gradient(
        lambda w, r: (
            (F.batch_norm(r["x"] * w, None, None, w, w, training=True) * r["y"][:, None]).mean()
            + F.batch_norm(r["x"] * w, torch.ones(3), torch.ones(3) * 2, training=False)
            .square()
            .mean()
        )
    ),
    "statistics": lambda w, r: statistics(r["x"]),
    "images": gradient(
        lambda w, r: (
            F.batch_norm(torch.stack([r["x"] * w] * 2, 1), None, None, training=True)[:, 1]
            .square()
            .mean(1)
            .cumsum(0)
            .mean()
        )
    ),
}
NORM = nn.BatchNorm1d(3)


def statistics(x):
    norm = copy.deepcopy(NORM)
    found = [norm(x), norm(x * 2)]
    return norm.running_mean, norm.running_var, found[1].square().mean(0)


@pytest.mark.parametrize("name", NORMS)
def test_rows_that_are_normalised_together(name: str, run: list[tuple[int, bool]]) -> None:
    fn = NORMS[name]
    same(*both(fn, [5, 3, 7, 6, 4, 5]))
    assert sorted(run) == [(2, True), (4, True)]
    if name == "images":
        return
    # PyTorch wants more than one number for each channel.
    with pytest.raises(ValueError, match="more than 1 value") as raised:
        both(fn, [3, 1, 4])
    assert "at client 1" in raised.value.__notes__


def stepped(w, r):
    w = w.clone().requires_grad_()
    optimizer = torch.optim.Adam([w], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        F.mse_loss(r["x"] @ w, r["y"]).backward()
        optimizer.step()
    return w.detach()


@pytest.mark.parametrize("fn", EVERY.values(), ids=EVERY)
def test_results_are_those_of_one_after_the_other(fn: Any, run: list[tuple[int, bool]]) -> None:
    same(*both(fn))
    assert sorted(run) == [(3, True), (4, True)]


APART = {
    "a row for each": (lambda w, r: r["x"] * w, None),
    "decided by": (lambda w, r: r["x"].sum() * (1.001 ** len(r["x"])), "number of rows"),
    "rows as one": (lambda w, r: r["x"].T.flatten().square().sum(), "reshaped"),
    "no rule": (lambda w, r: torch.linalg.matrix_norm(r["x"]), "no rule for"),
    "a place among columns and rows": (lambda w, r: r["x"].T.argmax(), "a place among rows"),
    "matrices' norms": (lambda w, r: torch.linalg.norm(r["x"], 1), "norm of another kind"),
}
"""What runs for clients with as many rows alone, and what is said of it: `None` where that is known
beforehand."""


@pytest.mark.parametrize(("fn", "why"), APART.values(), ids=APART)
def test_others_run_in_groups(
    fn: Any, why: str | None, run: list[tuple[int, bool]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stator.federated")
    same(*both(fn, [5, 5, 3, 3, 7, 9]))
    assert not any(is_padded for _, is_padded in run)
    said = [text for text in caplog.messages if "as many rows" in text]
    assert bool(said) == (why is not None)
    assert all(str(why) in text for text in said)


LACKING = {
    "the seventh": lambda w, r: r["x"][6] * w,
    "the last seven": lambda w, r: r["x"][-7:].sum(0) * w,
    "the first seven": lambda w, r: r["x"][:7].sum(0) * w,
    "behind the sixth": lambda w, r: r["x"][6:].sum(0) * w,
    "by places": lambda w, r: r["x"][torch.tensor([6, 0])].sum(0) * w,
    "the greatest behind": lambda w, r: r["y"][6:].amax() * w,
    "but for six": lambda w, r: r["y"][: len(r["y"]) - 6].sum() * w,
}


@pytest.mark.parametrize("fn", LACKING.values(), ids=LACKING)
def test_clients_that_lack_rows_fail_or_give_what_they_do_alone(
    fn: Any, run: list[tuple[int, bool]]
) -> None:
    same(*both(fn, [7, 8, 8, 7]))
    assert run == [(4, True)]
    comp = mapped(fn, fl.federated_collect)
    told = []
    for exact in (False, True):
        for _ in range(5):
            with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
                try:
                    told.append(str(np.round(comp(np.ones(3, np.float32), rows_that_lack()), 4)))
                except (IndexError, RuntimeError, ValueError) as error:
                    assert "at client 2" in error.__notes__
                    told.append(type(error).__name__)
    assert len(set(told)) == 1


@pytest.mark.parametrize("name", ["all but the first", "all but the last", "half of the rows"])
def test_what_is_not_finite_in_a_row_that_is_not_taken_stays_there(name: str) -> None:
    taken = {
        "all but the first": lambda w, r: ((r["x"] @ w)[1:] * r["y"][1:]).sum(),
        "all but the last": lambda w, r: ((r["x"][:-1] @ w) * r["y"][:-1]).sum(),
        "half of the rows": lambda w, r: (r["x"][(len(r["x"]) + 1) // 2 :] * w).square().sum(),
    }
    rows = clients([5, 7, 6, 8])
    for of in rows[:3]:
        of["x"][0 if name != "all but the last" else -1] = np.nan
    comp = mapped(gradient(taken[name]), fl.federated_collect)
    found = []
    for exact in (False, True):
        with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
            found.append(comp(np.ones(3, np.float32), rows))
    same(*found)
    assert all(np.isfinite(value) for _, value in found[0])


def rows_that_lack() -> list[Any]:
    return clients([8, 7, 5, 6, 8])


def test_what_is_no_number_is_put_in_order_as_alone() -> None:
    rows = clients([3, 4, 5, 3])
    for at, odd in enumerate((math.nan, math.inf, -math.inf)):
        rows[at]["y"][at] = odd

    def fn(w, r):
        ascending, descending = r["y"].sort(), r["y"].sort(descending=True)
        return (
            *((ascending[1] * r["k"]).sum(), (descending[1] * r["k"]).sum()),
            *(ascending[0].nan_to_num(9.0, 8.0, -8.0) * torch.arange(len(r["y"]))).sum(0, True),
            *(
                (descending[0] == math.inf).sum(),
                descending[0][0],
                r["y"].argmax(),
                r["y"].argmin(),
            ),
            torch.func.grad(lambda w: (r["y"].sort()[0] * w[0]).nan_to_num(9.0, 8.0, -8.0).sum())(
                w
            ),
        )

    comp = mapped(fn, fl.federated_collect)
    found = []
    for exact in (False, True):
        with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
            found.append(comp(np.ones(3, np.float32), rows))
    same(*found)


def test_clients_without_rows_are_never_padded(run: list[tuple[int, bool]]) -> None:
    same(*both(lambda w, r: (r["x"] * w).sum(0), [0, 3, 4, 0, 3]))
    assert sorted(run) == [(2, False), (3, True)]


def test_many_clients_of_a_size_run_by_themselves(run: list[tuple[int, bool]]) -> None:
    same(*both(lambda w, r: (r["x"] * w).mean(0), [5] * 32 + [6, 7]))
    assert sorted(run) == [(2, True), (32, False)]


def test_a_program_that_gives_something_else_is_run_in_groups(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stator.federated")
    rule = padding._RULES["mean"]
    monkeypatch.setitem(padding._RULES, "mean", lambda *args, **how: rule(*args, **how) * 1.01)
    same(*both(lambda w, r: (r["x"] * w).mean(0)))
    assert "at once they give something else" in caplog.text


def mapped(fn: Any, aggregate: Any) -> Any:
    local = fl.local_computation(MODEL, ROWS)(fn)

    def body(w: Any, rows: Any) -> Any:
        return aggregate(fl.federated_map(local, (fl.federated_broadcast(w), rows)))

    return fl.federated_computation(
        body, fl.FederatedType(MODEL, fl.SERVER), fl.FederatedType(ROWS, fl.CLIENTS)
    )


def test_what_is_wrong_with_a_client_is_said_of_that_client() -> None:
    rows = clients([3, 4, 5, 6])
    rows[2]["k"][1] = 7
    comp = mapped(lambda w, r: F.cross_entropy(r["x"] * w, r["k"]), fl.federated_mean)
    for _ in range(2):
        with pytest.raises(IndexError) as raised:
            comp(np.ones(3, np.float32), rows)
        assert "at client 2" in raised.value.__notes__
    rows[2]["k"][1] = 0
    assert np.isfinite(comp(np.ones(3, np.float32), rows))


def test_a_client_that_is_not_finite_is_alone_in_that(run: list[tuple[int, bool]]) -> None:
    rows = clients([3, 4, 4, 3])
    rows[1]["x"][0, 1] = np.nan
    rows[2]["x"][:] = np.inf
    comp = mapped(gradient(lambda w, r: F.mse_loss(r["x"] @ w, r["y"])), fl.federated_collect)
    found = []
    for exact in (False, True):
        with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
            found.append(comp(np.ones(3, np.float32), rows))
    same(*found)
    assert run == [(4, True)]
    assert [bool(np.isfinite(value)) for _, value in found[0]] == [True, False, False, True]
