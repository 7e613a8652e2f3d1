"""Clients with different numbers of rows run at once where rows are compared with each other, where
some are taken by their order, and where there are more of them than a client has."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F

import stator.federated as fl
from stator._program_tracing import padding
from stator.errors import ProgramInputError

from .test_clients_of_different_sizes import SIZES, both, clients, gradient, run, same

__all__ = ["run"]


def distances(x: Any) -> Any:
    squares = (x**2).sum(1)
    return squares[:, None] + squares[None] - 2 * x @ x.T


def contrasted(w: Any, r: Any) -> Any:
    z = F.normalize(r["x"] * w, dim=1)
    likeness = (z @ z.t() / 0.5).masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
    alike = (r["k"][:, None] == r["k"][None]) & ~torch.eye(len(z), dtype=torch.bool)
    shares = likeness - torch.logsumexp(likeness, dim=1, keepdim=True)
    return -(shares * alike).sum() / alike.sum().clamp(min=1)


def process(w: Any, r: Any) -> Any:
    kernel = torch.exp(-distances(r["x"] * w)) + 0.3 * torch.eye(len(r["y"]))
    factor = torch.linalg.cholesky(kernel)
    found = torch.cholesky_solve(r["y"][:, None], factor)[:, 0]
    return -0.5 * r["y"] @ found - factor.diagonal().log().sum()


def solved(w: Any, r: Any) -> Any:
    kernel = torch.exp(-torch.cdist(r["x"] * w, r["x"] * w)) + torch.eye(r["y"].shape[0])
    own = torch.linalg.solve(kernel, r["y"]) + torch.linalg.inv(kernel) @ r["y"]
    half = torch.linalg.solve_triangular(torch.tril(kernel), r["x"], upper=False)
    return own.sum() + half.square().sum() + torch.linalg.slogdet(kernel)[1] + kernel.trace()


def filled(x: Any) -> Any:
    product = x @ x.T
    return product.fill_diagonal_(0.5).softmax(1).amax(0).sum() + product.T.mean(1).max()


def flattened(w: Any, r: Any) -> Any:
    parts = (r["x"][:, :, None] * w).reshape(-1, 3)
    named = r["k"][:, None].expand(-1, 3).reshape(-1)
    back = parts.tanh().view(len(r["k"]), 3, 3).sum(1)
    loss = F.cross_entropy(parts, named) + back.square().mean()
    return loss + (r["x"] * w).flatten().std(unbiased=False) + parts[1:-1].cos().sum()


torch.manual_seed(1)
GRU = nn.GRU(3, 2, batch_first=True)
LSTM = nn.LSTM(3, 2, bidirectional=True)
CONVOLUTIONS = nn.Sequential(
    nn.Conv1d(3, 4, 3, padding=1), nn.Tanh(), nn.Conv1d(4, 2, 3, padding="same", dilation=2)
)

EVERY = {
    "products": gradient(lambda w, r: ((r["x"] * w) @ r["x"].T).square().mean()),
    "kernels": gradient(lambda w, r: torch.exp(-distances(r["x"] * w)).sum()),
    "differences": gradient(
        lambda w, r: ((r["x"] * w)[:, None] - r["x"][None]).abs().sum(-1).max(1).values.mean()
    ),
    "pairs in order": lambda w, r: (
        (r["y"][:, None] > r["y"]).sum(0).float().std(unbiased=False),
        torch.triu(torch.sign(r["y"][:, None] - r["y"]), diagonal=1).sum(),
        ((r["y"][:, None] > r["y"]) & (r["k"][:, None] == r["k"])).any(1).sum(),
        (r["y"] + r["x"][:, :1]).amin(),
    ),
    "attention among rows": gradient(
        lambda w, r: (torch.softmax((r["x"] * w) @ r["x"].T, 1) @ r["x"]).square().sum()
    ),
    "attention down the columns": gradient(
        lambda w, r: (
            (F.log_softmax((r["x"] * w) @ r["x"].T, 0).exp() * r["y"]).sum(1).var(unbiased=False)
        )
    ),
    "contrasts": gradient(contrasted),
    "each row's own name": gradient(
        lambda w, r: F.cross_entropy((r["x"] * w) @ r["x"].T, torch.arange(len(r["x"])))
    ),
    "a Gaussian process": gradient(process),
    "linear systems": gradient(solved),
    "distances": gradient(
        lambda w, r: torch.cdist(r["x"] * w + 1, r["x"]).topk(1, largest=False).values.sum()
    ),
    "einsum": gradient(
        lambda w, r: (
            torch.einsum("id,jd->ij", r["x"] * w, r["x"]).tanh().mean()
            + torch.einsum("i,j,i->j", r["y"], r["y"], r["x"] @ w).square().sum()
        )
    ),
    "outer": gradient(lambda w, r: torch.outer(r["x"] @ w, r["y"]).norm()),
    "a diagonal that is filled": lambda w, r: filled(r["x"]),
    "likeness": gradient(
        lambda w, r: F.cosine_similarity((r["x"] * w)[:, None], r["x"][None], 2).square().sum()
    ),
    "pairs by places": gradient(
        lambda w, r: (
            ((r["x"] * w) @ r["x"].T)[0].square().sum() + (r["x"] @ w).outer(r["y"])[:, -1].sum()
        )
    ),
    "sizes of both": lambda w, r: (
        (torch.zeros(len(r["x"]), len(r["x"])) + (r["x"] @ r["x"].T).shape[1]).sum(),
        (r["x"] @ r["x"].T).sum() / (r["x"] @ r["x"].T).numel(),
        torch.diag(r["y"]).sum() + torch.diag(r["x"] @ r["x"].T).amax(),
    ),
    # The greatest, and every other one.
    "topk": gradient(
        lambda w, r: (r["x"] @ w).topk(1).values.sum() + (r["x"] * w).topk(1, 0)[0].sum()
    ),
    "topk of a share": lambda w, r: r["y"].topk(max(1, len(r["y"]) // 2)).values.sum(),
    "kthvalue": lambda w, r: (r["y"].kthvalue(1)[0], r["x"].kthvalue(1, 0).values),
    "places of the greatest": lambda w, r: r["x"][r["y"].topk(1, largest=False).indices].sum(0),
    "every other": gradient(
        lambda w, r: ((r["x"] * w)[::2].sum(0) ** 2).sum() + ((r["x"] @ w)[::3] * r["y"][::3]).max()
    ),
    "windows": gradient(
        lambda w, r: (
            (r["x"] @ w).unfold(0, 1, 2).tanh().sum()
            + (r["x"] * w).unfold(1, 2, 1).var(2, unbiased=False).sum()
        )
    ),
    "put within rows": gradient(
        lambda w, r: (
            torch.zeros_like(r["x"]).scatter(1, r["k"][:, None], (r["x"] @ w)[:, None]).exp().mean()
            + (r["x"] * w).scatter(1, r["k"][:, None], 2.0).square().sum()
        )
    ),
    # Rows that are steps, or beside each other in a convolution.
    "steps": gradient(
        lambda w, r: (
            GRU((r["x"] * w)[None])[0].square().mean() + GRU((r["x"] * w)[None])[1].sum().exp()
        )
    ),
    "steps both ways": gradient(
        lambda w, r: (
            sum(part.square().sum() for part in LSTM((r["x"] * w)[:, None])[1])
            + LSTM((r["x"] * w)[:, None])[0].amax((0, 1)).sum()
        )
    ),
    "convolution": gradient(
        lambda w, r: CONVOLUTIONS((r["x"] * w).T[None])[0].exp().mean(1).square().sum()
    ),
    # More than a client has.
    "twice": gradient(lambda w, r: (torch.cat([r["x"] @ w, r["y"]]).softmax(0) ** 2).sum()),
    "one more": gradient(
        lambda w, r: torch.cat([torch.zeros(1), (r["x"] @ w).cumsum(0)])[1:].square().mean()
    ),
    "parts of rows": gradient(flattened),
    "columns": gradient(
        lambda w, r: (
            torch.hstack([torch.ones(len(r["x"]), 1), r["x"] * w]).sum(0).prod()
            + torch.column_stack([r["y"], r["x"] @ w]).square().mean()
            + torch.vstack([r["x"], r["x"] * w]).mean()
            + torch.hstack([r["y"], r["y"]]).sum()
        )
    ),
    "gradients of rows": lambda w, r: torch.autograd.grad(
        torch.tanh(r["x"] * w.requires_grad_()), w, r["x"]
    )[0],
}


@pytest.mark.parametrize("fn", EVERY.values(), ids=EVERY)
def test_results_are_those_of_one_after_the_other(fn: Any, run: list[tuple[int, bool]]) -> None:
    sizes = [size + 2 for size in SIZES] if fn is EVERY["parts of rows"] else SIZES
    same(*both(fn, sizes))
    assert run and all(is_padded for _, is_padded in run)


RAISING = ("a Gaussian process", "linear systems")
FINITE = {name: fn for name, fn in EVERY.items() if name not in RAISING}


@pytest.mark.parametrize("fn", FINITE.values(), ids=FINITE)
def test_what_is_no_number_stays_where_it_is(fn: Any) -> None:
    """A client whose rows aren't finite is alone in that."""
    local = fl.local_computation(*_types())(fn)

    @fl.federated_computation(*(fl.FederatedType(each, fl.CLIENTS) for each in _types()))
    def comp(w: Any, rows: Any) -> Any:
        return fl.federated_collect(fl.federated_map(local, (w, rows)))

    given = clients([5, 6, 7])
    given[1]["x"][:] = np.nan
    found = []
    for exact in (False, True):
        with fl.framework.get_context_stack().install(_context(exact)):
            made = comp([np.array([0.3, -0.2, 0.5], np.float32)] * 3, given)
            found.append([made[0], made[2]])
    same(*found)


def _context(exact: bool) -> Any:
    return fl.execution.LocalContext(threads=1, exact=exact)


def _types() -> tuple[Any, Any]:
    from .test_clients_of_different_sizes import MODEL, ROWS

    return MODEL, ROWS


@pytest.mark.parametrize(
    "fn", [lambda w, r: r["y"].topk(3)[0].sum(), lambda w, r: r["y"].kthvalue(3)[0]]
)
def test_who_has_too_few_is_told(fn: Any, run: list[tuple[int, bool]]) -> None:
    same(*both(fn, [4, 5, 3, 5]))
    assert any(is_padded for _, is_padded in run)
    with pytest.raises((RuntimeError, ProgramInputError)) as raised:
        both(fn, [3, 2, 4])
    assert "at client 1" in raised.value.__notes__


DIVIDED = {
    "in three": lambda x: x.reshape(3, -1).var(1, unbiased=False),
    "in six": lambda x: x.view(6, -1).abs().sqrt().amax(1),
    "a column in two": lambda x: x[:, 0].reshape(2, -1).logsumexp(1),
    "in rows of six": lambda x: (x.reshape(-1, 6).sum(1) ** 2).mean(),
    "in rows of nine": lambda x: x.view(-1, 9).tanh().mean(0),
}


@pytest.mark.parametrize("fn", DIVIDED.values(), ids=DIVIDED)
def test_numbers_that_are_divided_anew(fn: Any, run: list[tuple[int, bool]]) -> None:
    sizes = [6 * size for size in SIZES]
    same(*both(gradient(lambda w, r: fn(r["x"] * w).sum()), sizes))
    same(*both(lambda w, r: fn(r["x"]), sizes))
    assert run and all(is_padded for _, is_padded in run)


def test_numbers_that_can_not_be_divided_so_are_told() -> None:
    with pytest.raises((RuntimeError, ProgramInputError)) as raised:
        both(lambda w, r: r["y"].reshape(2, -1).sum(1), [4, 6, 5, 6])
    assert "at client 2" in raised.value.__notes__


def test_spectra_of_so_many_rows(run: list[tuple[int, bool]]) -> None:
    def fn(w: Any, r: Any) -> Any:
        found = torch.fft.rfft(r["x"] * w, n=8, dim=0).abs().sum()
        return found + torch.fft.fft(r["x"] * w).abs().square().mean()

    same(*both(gradient(fn)))
    assert all(is_padded for _, is_padded in run)


def test_convolutions_with_fewer_rows_than_they_are_given(run: list[tuple[int, bool]]) -> None:
    def fn(w: Any, r: Any) -> Any:
        kernel = torch.ones(2, 3, 3) * w[:, None]
        found = F.conv1d((r["x"] * w).T[None], kernel, dilation=2)
        return found.abs().sqrt().sum((0, 2)), found.shape[2], found[0, 0, -1]

    same(*both(gradient(lambda w, r: fn(w, r)[0].sum()), [size + 4 for size in SIZES]))
    same(*both(fn, [size + 4 for size in SIZES]))
    assert all(is_padded for _, is_padded in run)


def test_windows_of_several_rows(run: list[tuple[int, bool]]) -> None:
    fn = gradient(lambda w, r: (r["x"] * w).unfold(0, 3, 2).amax(2).cos().sum())
    same(*both(fn, [size + 2 for size in SIZES]))
    assert run and all(is_padded for _, is_padded in run)


@pytest.mark.parametrize("method", ["topk", "kthvalue"])
def test_which_of_equal_numbers_is_taken_is_what_it_is_alone(method: str) -> None:
    """PyTorch's choice among them depends on how many there are."""

    def fn(w, r):
        found = r["k"].topk(2) if method == "topk" else r["k"].kthvalue(2)
        return found.values, found.indices * 1

    same(*both(fn, [40, 50, 33, 47, 60]))


def test_a_row_that_a_program_sees_to_by_itself_has_no_other_beside_it(
    run: list[tuple[int, bool]],
) -> None:
    """A root of zero has no gradient: a program may leave the diagonal out, and padding is a copy."""

    def loss(w, r):
        x = r["x"] * w
        squares = ((x[:, None] - x[None]) ** 2).sum(-1) + torch.eye(len(x))
        return (squares.sqrt() * (1 - torch.eye(len(x)))).sum()

    same(*both(gradient(loss), [5, 3, 4, 5]))
    assert any(is_padded for _, is_padded in run)


REFUSED = {
    "other matrices": (lambda w, r: torch.linalg.eigvalsh(r["x"] @ r["x"].T).sum(), "no rule for"),
    "windows of pairs": (
        lambda w, r: (r["x"] @ r["x"].T).unfold(0, 2, 1).sum(),
        "compared with each other",
    ),
    "not in order": (lambda w, r: r["y"].topk(2, sorted=False)[0].sum(), "another form"),
    "a diagonal beside": (lambda w, r: (r["x"] @ r["x"].T).diagonal(1).sum(), "a diagonal"),
}


@pytest.mark.parametrize(("fn", "why"), REFUSED.values(), ids=REFUSED)
def test_others_run_in_groups(
    fn: Any, why: str, run: list[tuple[int, bool]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stator.federated")
    same(*both(fn, [5, 5, 4, 4, 7, 9]))
    assert not any(is_padded for _, is_padded in run)
    said = [text for text in caplog.messages if "as many rows" in text]
    assert said and all(why in text for text in said), said


def test_many_pairs_run_in_groups(
    run: list[tuple[int, bool]], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(padding, "_MOST", 4 * 7 * 7)
    caplog.set_level(logging.INFO, "stator.federated")
    fn = lambda w, r: (r["x"] @ r["x"].T).sum()  # noqa: E731
    same(*both(fn, [7, 6, 7, 6]))
    assert (4, True) in run and not caplog.messages
    same(*both(fn, [8, 7, 8, 7]))
    assert all("take much memory" in text for text in caplog.messages) and caplog.messages


EMB = nn.EmbeddingBag(3, 2)


def test_bags_of_words(run: list[tuple[int, bool]]) -> None:
    same(*both(lambda w, r: EMB((r["x"] > 0).long()).mean(0).detach() * math.pi))
    assert all(is_padded for _, is_padded in run)
