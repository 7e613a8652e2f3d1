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


APART = {
    "rows beside each other": (lambda w, r: r["x"].cumsum(0).sum(), "along rows"),
    "rows with rows": (lambda w, r: (r["x"] @ r["x"].T).sum(), "rows with rows"),
    "half of the rows": (lambda w, r: r["x"][len(r["x"]) // 2 :].sum(0), "number of rows"),
    "some rows": (lambda w, r: r["x"][:-1].sum(0), None),
    "a row for each": (lambda w, r: r["x"] * w, None),
    "computed with as a number": (lambda w, r: (len(r["x"]) * 2, r["x"].sum()), "number of rows"),
    "the number as a float, twice": (
        lambda w, r: (float(len(r["y"])), r["x"].sum() / float(len(r["y"]))),
        None,
    ),
    "all rows normalised": (
        lambda w, r: F.batch_norm(r["x"] * w, None, None, training=True).square().sum(),
        "batch_norm",
    ),
    "rows as one": (lambda w, r: r["x"].flatten().square().sum(), "reshaped"),
    "the last row": (lambda w, r: r["x"][-1], None),
    "no rule": (lambda w, r: torch.linalg.matrix_norm(r["x"]), "no rule for"),
    "a place among columns and rows": (lambda w, r: r["x"].T.argmax(), "a place among rows"),
    "the greatest two": (lambda w, r: r["y"].topk(2).values.sum(), None),
    "matrices' norms": (lambda w, r: torch.linalg.norm(r["x"], 1), "norm of another kind"),
    "rows of equal length together": (lambda w, r: F.normalize(r["x"], dim=0).sum(), "together"),
    "rows by number": (lambda w, r: r["x"][torch.arange(len(r["k"])), r["k"]].sum(), "no rule"),
    "beside the columns": (lambda w, r: (r["y"] + r["x"][:, :1]).sum(), "rows"),
    "draws": (lambda w, r: (r["x"] + torch.randn(3)).sum(), None),
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
