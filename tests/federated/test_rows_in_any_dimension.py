"""Clients of different sizes run at once where rows are another dimension than the first: of inputs,
of what is looked up, of columns that are compared, of windows over pairs; and where some are written."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional as F

import stator.federated as fl
from stator.federated.execution import LocalContext

from .test_clients_of_different_sizes import MODEL, SIZES, both, gradient, run, same

__all__ = ["run"]

GRAPHS = OrderedDict(
    x=fl.TensorType(np.float32, [None, 3]),
    edges=fl.TensorType(np.int64, [2, None]),
    weights=fl.TensorType(np.float32, [1, 2, None]),
)


def graphs(lengths: list[tuple[int, int]]) -> list[Any]:
    drawn = np.random.default_rng(0)
    return [
        OrderedDict(
            x=drawn.normal(size=(nodes, 3)).astype(np.float32),
            edges=drawn.integers(0, nodes, (2, edges)),
            weights=drawn.uniform(0.1, 0.9, (1, 2, edges)).astype(np.float32),
        )
        for nodes, edges in lengths
    ]


def on_graphs(fn: Any, rows: list[Any]) -> tuple[Any, Any]:
    """What clients get at once, and one after the other."""
    local = fl.local_computation(MODEL, GRAPHS)(fn)

    @fl.federated_computation(
        fl.FederatedType(MODEL, fl.SERVER), fl.FederatedType(GRAPHS, fl.CLIENTS)
    )
    def comp(w: Any, rows: Any) -> Any:
        return fl.federated_collect(fl.federated_map(local, (fl.federated_broadcast(w), rows)))

    found = []
    for exact in (False, True):
        with fl.framework.get_context_stack().install(LocalContext(threads=1, exact=exact)):
            found.append(comp(np.array([0.3, -0.2, 0.5], np.float32), rows))
    return found[0], found[1]


def greatest_along_edges(w: Any, r: Any) -> Any:
    source, target = r["edges"]
    h = torch.tanh(r["x"] * w)
    places = target[:, None].expand(-1, 3)
    came = torch.zeros_like(h).scatter_reduce(0, places, h[source], "amax", include_self=False)
    return (h + came).square().mean() + (r["weights"][0, 1] * h[source].sum(1)).sum()


def others_instead(how: str) -> Any:
    def fn(w: Any, r: Any) -> Any:
        h = r["x"] * w + 2
        found = h.scatter_reduce(
            0, r["edges"][1][:, None].expand(-1, 3), h[r["edges"][0]], how, include_self=False
        )
        found = found.scatter_reduce(0, r["edges"][:1].T.expand(-1, 3), h[r["edges"][1]] + 1, how)
        return found.sin().sum()

    return fn


ON_GRAPHS = {
    "greatest along edges": gradient(greatest_along_edges),
    "means along edges": gradient(others_instead("mean")),
    "sums along edges": gradient(others_instead("sum")),
    "products along edges": gradient(others_instead("prod")),
    "edges turned": lambda w, r: (
        r["edges"].T.float().mean(0),
        r["edges"].max(),
        r["edges"].shape[1],
        r["weights"].sum((0, 2)),
        r["weights"][..., -1],
        r["x"].T[:, r["edges"][0]].sum(1) * w,
        r["edges"].unbind(0)[1].sum(),
    ),
}
LENGTHS = [(5, 3), (4, 7), (5, 7), (2, 2), (6, 4), (3, 3), (7, 1), (5, 3), (1, 4), (6, 8)]


@pytest.mark.parametrize("fn", ON_GRAPHS.values(), ids=ON_GRAPHS)
def test_inputs_whose_rows_are_another_dimension(
    fn: Any, run: list[tuple[int, bool]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stator.federated")
    same(*on_graphs(fn, graphs(LENGTHS * 2)))
    if fn is ON_GRAPHS["means along edges"]:
        # What a mean has of what was there has no rule.
        assert "put into something else" in caplog.text
        return
    assert sum(count for count, is_padded in run if is_padded) == 10 and not caplog.messages


def test_edges_to_nodes_that_arent_there_are_told() -> None:
    rows = graphs(LENGTHS)
    rows[3]["edges"][1, 0] = 2
    with pytest.raises((IndexError, RuntimeError)) as raised:
        on_graphs(ON_GRAPHS["greatest along edges"], rows)
    assert "at client 3" in raised.value.__notes__


TABLE = torch.arange(24.0).reshape(4, 6).sin()
KERNEL = torch.arange(18.0).reshape(2, 1, 3, 3) / 18


def pairs(w: Any, r: Any) -> Any:
    x = r["x"] * w
    return (x @ x.T).sigmoid()[None, None]


ALONG = {
    "words along columns": gradient(
        lambda w, r: (TABLE[:, r["k"]].T @ w.new_ones(4) * r["y"] * w[0]).sum()
    ),
    "some columns": lambda w, r: (
        r["x"][:, [0, 2]].sum(0),
        r["x"][:, torch.tensor([2, 0, 2])].mean(0),
        r["x"][[0, -1]].sum(0),
        r["x"].T[:, r["k"] * 0].sum(1),
        r["x"][:, torch.tensor([[0, 1], [2, 2]])].sum(0),
        r["x"].T[..., torch.tensor([0, -1])],
    ),
    "distances of columns": gradient(
        lambda w, r: (
            torch.cdist((r["x"] * w).T, r["x"].T).sum()
            + torch.cdist((r["x"] * w).T, r["x"].T + 1, p=1.0).amax()
        )
    ),
    "likeness of columns": gradient(
        lambda w, r: (
            F.cosine_similarity((r["x"] * w).T[:, None], r["x"].T[None], dim=-1).sum()
            + F.cosine_similarity(r["x"] * w + 1, r["x"], dim=0)[0]
        )
    ),
    "greatest around pairs": gradient(
        lambda w, r: (
            F.max_pool2d(pairs(w, r), 3, 1, 1).square().mean()
            + F.max_pool2d(pairs(w, r), 2, 2, 1).sum()
        )
    ),
    "means around pairs": gradient(
        lambda w, r: F.avg_pool2d(pairs(w, r), 3, stride=(1, 2), padding=1).square().sum()
    ),
    "filters over pairs": gradient(
        lambda w, r: (
            F.conv2d(pairs(w, r), KERNEL, padding=1).tanh().square().mean()
            + F.conv2d(pairs(w, r), KERNEL, padding="same", dilation=2).amax()
        )
    ),
    "parts of windows": gradient(
        lambda w, r: F.max_pool2d((r["x"] * w)[None, None], (2, 1)).flatten(2).logsumexp(2).sum()
    ),
    "filters over rows and columns": gradient(
        lambda w, r: (
            F.conv2d((r["x"] * w)[None, None], KERNEL, stride=(2, 1), padding=1).sin().sum()
            + F.max_pool2d((r["x"] * w)[None], (2, 3), (1, 3), (1, 1)).mean()
        )
    ),
}


@pytest.mark.parametrize("fn", ALONG.values(), ids=ALONG)
def test_rows_along_other_dimensions(
    fn: Any, run: list[tuple[int, bool]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stator.federated")
    same(*both(fn, [size + 1 for size in SIZES]))
    assert not caplog.messages and run and all(is_padded for _, is_padded in run)


def differences(w: Any, r: Any) -> Any:
    x = r["x"] * w
    x[1:] = x[1:] - 0.5 * x[:-1]
    x[0] = 0
    x[-1, 1:] = r["y"][-1]
    return x.sin().sum() + x.square().mean()


def some_set(w: Any, r: Any) -> Any:
    x = r["x"].clone()
    x[:2] = torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    x[-2:, 0] = 7
    x[1:, 1] = r["y"][: len(r["y"]) - 1]
    x[len(x) - 1] = w
    x[0] = w * 2
    mask = torch.zeros(len(x), dtype=torch.bool)
    mask[: len(x) // 2] = True
    return x.sum(0), x.amax(), torch.where(mask, r["y"], 0.5).mean(), mask.sum()


def padded_by_hand(w: Any, r: Any) -> Any:
    found = torch.zeros(len(r["x"]) + 2, 3)
    found[1:-1] = r["x"] * w
    found[0], found[-1] = r["x"][0], r["x"][-1]
    return ((found[:-2] + found[1:-1] + found[2:]) / 3).square().sum()


def before_it_was_written(w: Any, r: Any) -> Any:
    x = r["x"].clone()
    rest = x[1:]
    found = rest.sum(0)
    x += 1
    return found * w, x.sum(0)


def added_to_some(w: Any, r: Any) -> Any:
    x = r["x"] * w
    x[1:] += 0.5
    x[:-1, 1] *= w[0]
    x[-1] -= r["y"][-1]
    x[len(x) // 2 :] /= 2.0
    return x.sin().sum()


def in_columns(w: Any, r: Any) -> Any:
    x = r["x"].T * w[:, None]
    found = torch.zeros(3, x.shape[1] + 2)
    found[:, 1:-1] = x
    found[:, 0], found[:, -1] = x[:, 0], x[:, -1]
    found[0, 1:3] = torch.tensor([1.0, 2.0])
    found[1:, -1] = r["y"][-1]
    return (found[:, 2:] - 2 * found[:, 1:-1] + found[:, :-2]).square().sum()


def roots_of_what_was_written(w: Any, r: Any) -> Any:
    """What stands for padding is as the first row is now, not as it was."""
    x = r["y"][:, None] - 2 + r["x"] * 0
    x[0] = 1.0
    x[1:] = r["y"][1:, None]
    y = -r["y"]
    y[torch.arange(len(y))] = 0.5
    return ((x * w**2).sqrt().sum() + (y * w[0] ** 2).sqrt().sum()) / 3


WRITTEN = {
    "roots of what was written": gradient(roots_of_what_was_written),
    "added to some": gradient(added_to_some),
    "in columns": gradient(in_columns),
    "differences": gradient(differences),
    "some set": some_set,
    "padded by hand": gradient(padded_by_hand),
    "before it was written": before_it_was_written,
}


@pytest.mark.parametrize("fn", WRITTEN.values(), ids=WRITTEN)
def test_some_rows_are_written(
    fn: Any, run: list[tuple[int, bool]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stator.federated")
    same(*both(fn, [size + 2 for size in SIZES]))
    assert not caplog.messages and run and all(is_padded for _, is_padded in run)


def elsewhere(w: Any, r: Any) -> Any:
    x = r["x"].clone()
    rest = x[1:]
    rest += 1
    x[:-1] = rest.clone()
    return x.sum(0)


def kept_before(w: Any, r: Any) -> Any:
    x = r["x"].clone()
    rest = x[1:]
    x[1:] += 1
    return rest.sum(0)


@pytest.mark.parametrize("fn", [elsewhere, kept_before])
def test_what_isnt_seen_in_all_runs_in_groups(
    fn: Any, run: list[tuple[int, bool]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stator.federated")
    same(*both(fn, [size + 1 for size in SIZES]))
    assert "writes to some rows" in caplog.text and not any(is_padded for _, is_padded in run)


def test_who_has_too_few_rows_to_write_is_as_alone() -> None:
    def fn(w: Any, r: Any) -> Any:
        x = r["x"].clone()
        x[1:3] = w
        x[4:] = 2 * w
        return x.sum(0)

    same(*both(fn, [1, 5, 2, 3, 6, 4, 5, 7]))

    def one(w: Any, r: Any) -> Any:
        x = r["x"].clone()
        x[3] = w
        return x.sum(0)

    with pytest.raises((IndexError, RuntimeError)) as raised:
        both(one, [5, 6, 3, 5])
    assert "at client 2" in raised.value.__notes__
