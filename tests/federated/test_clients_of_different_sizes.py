"""Clients with different numbers of rows run at once: results are those of one after the other."""

from __future__ import annotations

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
from stator.federated.execution import LocalContext
from stator.programs import TensorProgram, TensorSpec

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


LAYER = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 3))
IMAGES = nn.Sequential(
    nn.Conv2d(1, 2, 3, padding=1), nn.GroupNorm(1, 2), nn.ReLU(), nn.MaxPool2d(2)
)
TABLE = nn.Embedding(3, 3)
GRU = nn.GRU(1, 2, batch_first=True)
LSTM = nn.LSTM(1, 2)

EVERY = {
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
    "an optimizer": lambda w, r: stepped(w, r),
    # Numbers and shapes.
    "the number of rows": lambda w, r: (len(r["y"]), float(len(r["y"])), r["x"].shape[0]),
    "computed with": gradient(lambda w, r: (r["x"] @ w).sum() / len(r["y"]) + len(r["y"])),
    "made of that size": gradient(
        lambda w, r: ((r["x"] * w + torch.ones(len(r["x"]), 3)).cumsum(1)[:, 1]).sum()
    ),
    "places": lambda w, r: (torch.arange(len(r["y"])) * r["y"]).sum(),
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
    # What is infinite for rows of zeros is finite for a client's own.
    "finite for the client's own": gradient(lambda w, r: (r["x"].abs() * w.abs()).log().mean()),
}


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
