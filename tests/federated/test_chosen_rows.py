"""Clients run at once where their data choose rows (`x[mask]`), or say where a slice ends."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional as F

import stator.federated as fl
from stator.federated.execution import LocalContext

from .test_clients_of_different_sizes import SIZES, both, gradient, run, same

__all__ = ["run"]


def means_of_classes(w: Any, r: Any) -> Any:
    means = []
    for kind in range(3):
        mask = r["k"] == kind
        means.append((r["x"] * w)[mask].sum(0) / mask.sum().clamp(min=1))
    return torch.stack(means).square().sum()


def two_parts(w: Any, r: Any) -> Any:
    mask = r["x"][:, 0] > 0
    a, b = r["x"][mask], r["x"][~mask]
    both = torch.cat([a, b])
    return (
        both.sum(0) * w,
        a.sum(0) - b.sum(0),
        len(a),
        torch.tensor(float(len(b))),
        a[:, 1].sort().values.cumsum(0).sum(),
        both[:, 0].sort(stable=True).values.square().sum(),
        (a @ b.T).sum(),
    )


def without_what_is_no_number(w: Any, r: Any) -> Any:
    x = torch.where(r["x"] > 1, torch.nan, r["x"])
    x = x[~torch.isnan(x).any(1)]
    return x.sum(0) / max(len(x), 1), x.shape[0], (x * w).square().sum()


def changed_between(w: Any, r: Any) -> Any:
    mask = r["y"] > 0.5
    one = r["x"][mask].sum(0)
    mask &= r["x"][:, 0] > 0
    return one, r["x"][mask].sum(0), mask.sum(), r["y"][mask].sum() * w


CHOSEN = {
    "means of classes": gradient(means_of_classes),
    "a loss of some": gradient(
        lambda w, r: F.mse_loss((r["x"] @ w)[r["k"] < 2], r["y"][r["k"] < 2], reduction="sum")
    ),
    "two parts": two_parts,
    "no number": without_what_is_no_number,
    "changed between": changed_between,
    "elements": lambda w, r: (
        r["y"][r["y"] > 0.5].sum() * w,
        torch.masked_select(r["y"], r["y"] < 0.5).square().sum(),
        r["x"][r["k"] > 0, 1].sum(),
        r["x"][r["k"] > 0][:, :2].exp().sum(0),
        r["k"][r["x"][:, 1] > 0].sum(),
        torch.zeros(3).index_add(0, r["k"][r["y"] > 0.5], r["y"][r["y"] > 0.5]),
    ),
    "up to a number": gradient(
        lambda w, r: (
            (r["x"] @ w)[: int((r["k"] == 1).sum())].square().sum()
            + (r["x"] @ w).sort().values[int((r["k"] == 1).sum()) :].tanh().sum()
            + (r["x"] @ w)[: (r["y"] < 0.7).sum().item()].sum()
            + (r["x"] @ w)[-int((r["k"] == 0).sum()) - 1 :].sum()
        )
    ),
}


@pytest.mark.parametrize("sizes", [SIZES, [4, 4, 4, 4, 5, 5, 5, 5]])
@pytest.mark.parametrize("fn", CHOSEN.values(), ids=CHOSEN)
def test_results_are_those_of_one_after_the_other(
    fn: Any, sizes: list[int], run: list[tuple[int, bool]], caplog: pytest.LogCaptureFixture
) -> None:
    """Also where all have as many rows: what is chosen is padded."""
    caplog.set_level(logging.INFO, "stator.federated")
    for _ in range(2):
        same(*both(fn, sizes))
    assert not caplog.messages and run and all(is_padded for _, is_padded in run)


def test_gradients_of_none_are_as_alone() -> None:
    """Nothing comes of what stands for rows that a client hasn't chosen, be it finite or not."""

    def root(w: Any, r: Any) -> Any:
        x = torch.where(r["k"] == 1, r["y"], -r["y"])
        return (x[x > 0] * w[0]).abs().sqrt().sum() + w.sum()

    def beside_one(w: Any, r: Any) -> Any:
        x = (r["y"] * w[0])[r["k"] == 1]
        return torch.log((1 - x / w[0].detach()).abs()).sum() + w.sum()

    for fn in (root, beside_one):
        for sizes in ([1, 2, 1, 3, 2, 1, 1, 2], [1] * 9):
            found, expected = both(gradient(fn), sizes)
            assert all(np.isfinite(part).all() for each in found for part in each)
            same(found, expected)


def test_what_stands_for_no_place_is_one_that_is_there() -> None:
    fn = lambda w, r: torch.ones(2)[r["k"][r["k"] != 2]].sum() * w  # noqa: E731
    same(*both(fn, [1, 2, 1, 3, 2, 1, 1, 2, 0, 0]))


def test_windows_over_none_are_refused() -> None:
    def fn(w: Any, r: Any) -> Any:
        chosen = r["x"][r["k"] == 1] * w
        return torch.nn.functional.max_pool2d(chosen[None, None], 3, 1, 1).sum()

    with pytest.raises((IndexError, RuntimeError)) as raised:
        both(fn, [1, 2, 1, 3, 2, 1, 1, 2])
    assert any(note.startswith("at client") for note in raised.value.__notes__)


def test_who_chooses_none_is_as_alone() -> None:
    fn = lambda w, r: r["y"][r["k"] == 1].amax() * w  # noqa: E731
    with pytest.raises((IndexError, RuntimeError)) as raised:
        both(fn, [4] * 9)
    assert any(note.startswith("at client") for note in raised.value.__notes__)
    same(*both(lambda w, r: r["y"][r["k"] == 1].mean() * w, [1, 2, 1, 3, 2, 1]))


@pytest.mark.parametrize("exact", [False, True])
def test_rows_whose_number_is_known(run: list[tuple[int, bool]], exact: bool) -> None:
    kind = fl.TensorType(np.float32, [6, 3])

    def fn(x: Any) -> Any:
        chosen = x[~torch.isnan(x).any(1)]
        return chosen.sum(0), chosen.shape[0], chosen.std(0, unbiased=False)

    local = fl.local_computation(kind)(fn)

    @fl.federated_computation(fl.FederatedType(kind, fl.CLIENTS))
    def comp(rows: Any) -> Any:
        return fl.federated_collect(fl.federated_map(local, rows))

    drawn = np.random.default_rng(0)
    rows = [drawn.normal(size=(6, 3)).astype(np.float32) for _ in range(9)]
    for each in rows:
        each[drawn.random((6, 3)) < 0.1] = np.nan
    with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
        for found, each in zip(comp(rows), rows, strict=True):
            same(found, [np.asarray(part) for part in fn(torch.tensor(each))])
    assert bool(run) is not exact


def test_what_gives_the_chosen_rows_runs_for_one_after_the_other() -> None:
    same(*both(lambda w, r: r["x"][r["k"] == 1] * w, [4] * 9))
