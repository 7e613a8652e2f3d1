"""Clients that have two kinds of rows, such as the nodes and the edges of a graph, run at once; and so
do programs with each pair of rows once, and with windows that go along rows by steps."""

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
from stator._program_tracing import padding
from stator.federated.execution import LocalContext

from .test_clients_of_different_sizes import MODEL, SIZES, both, gradient, run, same

__all__ = ["run"]

TWO = OrderedDict(
    x=fl.TensorType(np.float32, [None, 3]),
    y=fl.TensorType(np.float32, [None]),
    z=fl.TensorType(np.float32, [None, 3]),
    source=fl.TensorType(np.int64, [None]),
    target=fl.TensorType(np.int64, [None]),
)
LENGTHS = [(5, 3), (4, 7), (5, 7), (2, 2), (6, 4), (3, 3), (7, 1), (5, 3), (1, 4), (6, 8)]


def graphs(lengths: list[tuple[int, int]]) -> list[Any]:
    """`x` and `y` have as many rows as each other, the others as many others."""
    drawn = np.random.default_rng(0)
    return [
        OrderedDict(
            x=drawn.normal(size=(nodes, 3)).astype(np.float32),
            y=drawn.uniform(0.1, 0.9, nodes).astype(np.float32),
            z=drawn.normal(size=(edges, 3)).astype(np.float32),
            source=drawn.integers(0, nodes, edges),
            target=drawn.integers(0, nodes, edges),
        )
        for nodes, edges in lengths
    ]


def on_graphs(fn: Any, rows: list[Any]) -> tuple[Any, Any]:
    """What clients get at once, and one after the other."""
    local = fl.local_computation(MODEL, TWO)(fn)

    @fl.federated_computation(fl.FederatedType(MODEL, fl.SERVER), fl.FederatedType(TWO, fl.CLIENTS))
    def comp(w: Any, rows: Any) -> Any:
        return fl.federated_collect(fl.federated_map(local, (fl.federated_broadcast(w), rows)))

    found = []
    for exact in (False, True):
        with fl.framework.get_context_stack().install(LocalContext(threads=1, exact=exact)):
            found.append(comp(np.array([0.3, -0.2, 0.5], np.float32), rows))
    return found[0], found[1]


def passed_on(w: Any, r: Any) -> Any:
    """Each node gets the mean of what comes along its edges."""
    h = torch.tanh(r["x"] * w)
    many = torch.ones(len(h)).index_add(0, r["target"], torch.ones_like(r["y"][r["source"]]))
    return h.index_add(0, r["target"], h[r["source"]] * r["z"]) / many[:, None]


def unlike(w: Any, r: Any) -> Any:
    def kernel(a: Any, b: Any) -> Any:
        return torch.exp(-torch.cdist(a, b).square()).mean()

    x, z = r["x"] * w, r["z"]
    return kernel(x, x) + kernel(z, z) - 2 * kernel(x, z)


def attended(w: Any, r: Any) -> Any:
    shares = torch.softmax((r["z"] * w) @ r["x"].T, 1)
    return (shares @ r["x"]).square().sum() + (shares.T @ r["z"]).amax(0).sum()


def predicted(w: Any, r: Any) -> Any:
    """A Gaussian process: what is known of some rows, told for others."""

    def kernel(a: Any, b: Any) -> Any:
        return torch.exp(-((a[:, None] - b[None]) ** 2).sum(-1))

    x, z = r["x"] * w, r["z"]
    found = kernel(z, x) @ torch.linalg.solve(kernel(x, x) + torch.eye(len(x)), r["y"])
    return found.mean() + found.square().sum()


def along_edges(w: Any, r: Any) -> Any:
    loud = ((r["x"] * w)[r["source"]] - (r["x"] * w)[r["target"]]).square().sum(1)
    return loud.amax() + (loud * r["z"].mean(1)).sum() / len(r["source"]) + len(r["y"])


EVERY = {
    "each by itself": lambda w, r: (r["x"].mean(0), r["z"].amax(0), len(r["y"]), len(r["z"])),
    "nodes and edges": gradient(lambda w, r: passed_on(w, r).square().mean()),
    "a layer after the other": gradient(
        lambda w, r: passed_on(w, {**r, "x": passed_on(w, r)}).amax(0).sum()
    ),
    "along edges": gradient(along_edges),
    "products": gradient(lambda w, r: ((r["x"] * w) @ r["z"].T).square().mean()),
    "turned": gradient(lambda w, r: ((r["x"] * w) @ r["z"].T).T.tanh().sum(0).amax()),
    "two samples": gradient(unlike),
    "attention to others": gradient(attended),
    "told for others": gradient(predicted),
    "nearest": gradient(lambda w, r: torch.cdist(r["z"] * w, r["x"]).min(1).values.sum()),
    "nearest of all": lambda w, r: (
        (r["x"] @ r["z"].T).argmax(1).float().mean(),
        ((r["x"] @ r["z"].T).sort(0)[0] * r["y"][:, None]).sum(),
        (r["x"] @ r["z"].T).std(1, unbiased=False).sum(),
    ),
    "shares of pairs": lambda w, r: (
        (r["y"][:, None] > r["z"][:, 0]).float().mean(),
        (r["y"][:, None] > r["z"][None, :, 0]).any(0).sum(),
        (r["y"][:, None] + r["z"][:, 0]).logsumexp((0, 1)),
    ),
    "einsum": gradient(
        lambda w, r: torch.einsum("id,jd,i->j", r["x"] * w, r["z"], r["y"]).square().sum()
    ),
    "outer": gradient(lambda w, r: torch.outer(r["x"] @ w, r["z"].sum(1)).norm()),
    "one behind the other": gradient(
        lambda w, r: (torch.cat([r["x"] @ w, r["z"][:, 1]]).softmax(0) ** 2).sum()
    ),
    "numbers of both": lambda w, r: (
        r["x"].sum() / (len(r["x"]) + len(r["z"])),
        r["z"].sum() / (2 * len(r["x"]) - len(r["x"])),
        (r["x"] @ r["z"].T).numel(),
        torch.zeros(len(r["x"]), len(r["z"])).exp().sum(),
    ),
    "places among others": lambda w, r: torch.searchsorted(r["y"].sort()[0], r["z"][:, 0]).sum(),
    "counts": lambda w, r: torch.bincount(r["target"], minlength=8).max(),
}


@pytest.mark.parametrize("fn", EVERY.values(), ids=EVERY)
def test_results_are_those_of_one_after_the_other(
    fn: Any, run: list[tuple[int, bool]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stator.federated")
    same(*on_graphs(fn, graphs(LENGTHS * 2)))
    assert sum(count for count, is_padded in run if is_padded) == 10 and not caplog.messages


FEWER = {
    "each with fewer": gradient(
        lambda w, r: ((r["x"] @ w)[:-1] * (r["x"] @ w)[2:, None]).square().mean()
    ),
    "all but the first with all": gradient(
        lambda w, r: torch.cdist(r["x"][1:] * w, r["x"]).sum(1).amax()
    ),
    "half beside half": gradient(
        lambda w, r: (
            ((r["x"] * w)[: len(r["x"]) // 2] @ r["x"][len(r["x"]) // 2 :].T).softmax(1).amax()
        )
    ),
}


@pytest.mark.parametrize("fn", FEWER.values(), ids=FEWER)
def test_rows_beside_fewer_of_them(fn: Any, run: list[tuple[int, bool]]) -> None:
    same(*both(fn, [size + 3 for size in SIZES]))
    assert run and all(is_padded for _, is_padded in run)


def test_clients_that_have_as_many_of_both_run_as_those_with_others(
    run: list[tuple[int, bool]], caplog: pytest.LogCaptureFixture
) -> None:
    """Where the lengths happen to be the same they're one: the results are the same."""
    caplog.set_level(logging.INFO, "stator.federated")
    for fn in (EVERY["nodes and edges"], EVERY["two samples"]):
        same(*on_graphs(fn, graphs([(4, 4), (3, 3), (4, 4), (3, 3)])))
        same(*on_graphs(fn, graphs([(4, 3), (3, 4), (4, 4), (3, 3)])))
    assert run == [(4, True)] * 4 and not caplog.messages


def test_rows_of_one_length_beside_those_of_another_are_told() -> None:
    """What only clients with as many of both can do."""
    fn = lambda w, r: ((r["x"] + r["z"]) * w).sum()  # noqa: E731
    same(*on_graphs(fn, graphs([(4, 4), (3, 3), (5, 5), (3, 3)])))
    with pytest.raises(Exception) as raised:
        on_graphs(fn, graphs([(4, 4), (3, 3), (5, 4), (3, 3)]))
    assert "at client 2" in raised.value.__notes__


def test_what_is_no_number_stays_where_it_is() -> None:
    for name in ("nodes and edges", "two samples", "attention to others", "along edges"):
        rows = graphs([(5, 3), (6, 4), (7, 3)])
        rows[1]["x"][:] = np.nan
        found, expected = on_graphs(EVERY[name], rows)
        same([found[0], found[2]], [expected[0], expected[2]])


def test_an_edge_to_a_node_that_is_not_there_is_told() -> None:
    rows = graphs([(5, 3), (6, 4), (7, 3)])
    rows[1]["source"][2] = 6
    for name in ("nodes and edges", "along edges"):
        with pytest.raises(IndexError) as raised:
            on_graphs(EVERY[name], rows)
        assert "at client 1" in raised.value.__notes__
    rows = graphs([(5, 3), (6, 4), (7, 3)])
    rows[0]["target"][1] = 5
    with pytest.raises((IndexError, RuntimeError)) as raised:
        on_graphs(EVERY["nodes and edges"], rows)
    assert "at client 0" in raised.value.__notes__


PAIRS = {
    "distances": gradient(lambda w, r: torch.pdist(r["x"] * w + 1).square().sum()),
    "the mean of distances": lambda w, r: (
        torch.pdist(r["x"]).mean(),
        torch.pdist(r["x"], 1.0).amax(),
        len(torch.pdist(r["x"])),
        torch.pdist(r["x"])[0],
    ),
    "the nearest pair": gradient(lambda w, r: torch.pdist(r["x"] * w).min()),
    "places of pairs": gradient(
        lambda w, r: (
            (
                (r["x"] * w)[torch.triu_indices(len(r["x"]), len(r["x"]), 1)[0]]
                - (r["x"] * w)[torch.triu_indices(len(r["x"]), len(r["x"]), 1)[1]]
            )
            .abs()
            .sum(1)
            .amax()
        )
    ),
}


@pytest.mark.parametrize("fn", PAIRS.values(), ids=PAIRS)
def test_each_pair_of_rows_once(
    fn: Any, run: list[tuple[int, bool]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stator.federated")
    same(*both(fn, [size + 1 for size in SIZES]))
    assert not caplog.messages and run and all(is_padded for _, is_padded in run)


def test_distances_of_what_isnt_finite_have_their_own_gradient() -> None:
    fn = gradient(
        lambda w, r: torch.pdist(torch.where(r["x"] > 1.2, torch.inf, r["x"]) * w).tanh().sum()
    )
    same(*both(fn, [size + 1 for size in SIZES]))


def test_who_has_no_pair_is_told_or_is_as_alone(run: list[tuple[int, bool]]) -> None:
    same(*both(lambda w, r: torch.pdist(r["x"]).sum(), [1, 2, 1, 3]))
    with pytest.raises((IndexError, RuntimeError)) as raised:
        both(lambda w, r: torch.pdist(r["x"]).amax(), [2, 3, 1, 3])
    assert "at client 2" in raised.value.__notes__


def turned(w: Any, r: Any) -> Any:
    return (r["x"] * w).T[None]


KERNEL = torch.arange(18.0).reshape(2, 3, 3) / 18
WINDOWS = {
    "steps": lambda x: F.conv1d(x, KERNEL, stride=2),
    "steps and zeros": lambda x: F.conv1d(x, KERNEL, stride=2, padding=1),
    "far apart": lambda x: F.conv1d(x, KERNEL, stride=3, padding=2, dilation=2),
    "more zeros": lambda x: F.conv1d(x, KERNEL, padding=3),
    "greatest": lambda x: F.max_pool1d(x, 2),
    "greatest of three": lambda x: F.max_pool1d(x, 3, stride=2, padding=1),
    "greatest side by side": lambda x: F.max_pool1d(x, 3, stride=1),
    "means": lambda x: F.avg_pool1d(x, 2),
    "means with zeros": lambda x: F.avg_pool1d(x, 3, stride=2, padding=1),
    "two after another": lambda x: F.max_pool1d(F.conv1d(x, KERNEL, padding=1).relu(), 2),
    "all of them": lambda x: F.adaptive_avg_pool1d(x, 1),
    "in three": lambda x: F.adaptive_avg_pool1d(x, 3),
    "greatest in four": lambda x: F.adaptive_max_pool1d(x, 4),
}


@pytest.mark.parametrize("fn", WINDOWS.values(), ids=WINDOWS)
def test_windows_along_rows(fn: Any, run: list[tuple[int, bool]]) -> None:
    sizes = [size + 4 for size in SIZES]
    same(*both(gradient(lambda w, r: fn(turned(w, r)).tanh().square().sum()), sizes))
    same(*both(lambda w, r: (fn(turned(w, r)).amax((0, 2)), fn(turned(w, r))[0, :, -1]), sizes))
    same(*both(lambda w, r: fn(turned(w, r)).shape[2] + fn(turned(w, r)[0]).mean(), sizes))
    assert run and all(is_padded for _, is_padded in run)


def test_what_has_too_few_rows_for_a_window_is_told() -> None:
    fn = lambda w, r: F.conv1d(turned(w, r), KERNEL, stride=2).sum()  # noqa: E731
    with pytest.raises(RuntimeError) as raised:
        both(fn, [3, 4, 2, 4])
    assert "at client 2" in raised.value.__notes__


@pytest.mark.parametrize("name", ["steps", "greatest", "means", "in three", "greatest in four"])
def test_windows_of_what_is_no_number(name: str) -> None:
    fn = lambda w, r: WINDOWS[name](turned(w, r)).nan_to_num(7.0, 8.0, 9.0).sum((0, 2))  # noqa: E731
    local = fl.local_computation(MODEL, fl.TensorType(np.float32, [None, 3]))(
        lambda w, x: fn(w, {"x": x})
    )

    @fl.federated_computation(
        fl.FederatedType(MODEL, fl.SERVER),
        fl.FederatedType(fl.TensorType(np.float32, [None, 3]), fl.CLIENTS),
    )
    def comp(w: Any, x: Any) -> Any:
        return fl.federated_collect(fl.federated_map(local, (fl.federated_broadcast(w), x)))

    drawn = np.random.default_rng(0)
    rows = [drawn.normal(size=(size, 3)).astype(np.float32) for size in (6, 7, 8, 5, 6)]
    for at, odd in enumerate((np.nan, np.inf, -np.inf)):
        rows[at][at * 2, at] = odd
    found = []
    for exact in (False, True):
        with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
            found.append(comp(np.ones(3, np.float32), rows))
    same(*found)


def test_numbers_that_are_put_where_rows_say(run: list[tuple[int, bool]]) -> None:
    def fn(w: Any, r: Any) -> Any:
        seen = torch.zeros(5, dtype=torch.bool)
        seen[r["k"]] = True
        seen[(r["k"] * 2) % 5] = True
        return seen.sum(), (torch.zeros(3).index_fill(0, r["k"][:1], 2.0) * w).sum()

    same(*both(lambda w, r: fn(w, r)[0]))
    assert run and all(is_padded for _, is_padded in run)


def test_means_of_what_is_a_number(run: list[tuple[int, bool]]) -> None:
    def fn(w: Any, r: Any) -> Any:
        x = torch.where(r["x"] > 1, torch.nan, r["x"]) * w
        return x.nanmean(), x.nanmean(0), x.nanmean(1, keepdim=True).nansum(), x.nanmedian()

    same(*both(fn))
    assert run and all(is_padded for _, is_padded in run)


def test_clients_with_many_pairs_run_in_groups_and_others_do_not(
    run: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("stator._local_computations._FEW_BYTES", 8 << 10)
    monkeypatch.setattr(padding, "_MOST", 4 * 10 * 10 * 16)
    caplog.set_level(logging.INFO, "stator.federated")
    local = fl.local_computation(TWO["x"])(lambda x: torch.pdist(x).sum() + (x @ x.T).amax())

    @fl.federated_computation(fl.FederatedType(TWO["x"], fl.CLIENTS))
    def comp(rows: Any) -> Any:
        return fl.federated_collect(fl.federated_map(local, rows))

    drawn = np.random.default_rng(0)
    sizes = (7, 6, 7, 6, 30, 29, 30, 29)
    rows = [drawn.normal(size=(size, 3)).astype(np.float32) for size in sizes]
    for _ in range(2):
        run.clear()
        found = []
        for exact in (False, True):
            with fl.framework.get_context_stack().install(LocalContext(threads=1, exact=exact)):
                found.append(comp(rows))
        same(*found)
        assert sorted(run) == [(2, False), (2, False), (4, True)]
    said = [text for text in caplog.messages if "take much memory" in text]
    assert len(said) == 1 and "30 rows" in said[0] and caplog.messages == said


def adjacent(w: Any, r: Any) -> Any:
    """A graph convolution whose matrix says who is beside whom."""
    count = len(r["x"])
    edges = torch.zeros(count, count)
    ones = torch.ones(len(r["source"]))
    edges = edges.index_put((r["target"], r["source"]), ones, accumulate=True) + torch.eye(count)
    scale = edges.sum(1).rsqrt()
    return ((scale[:, None] * edges * scale) @ (r["x"] * w)).relu().sum()


PUT = {
    "a matrix of edges": gradient(adjacent),
    "sums and greatest of nodes": gradient(
        lambda w, r: (
            torch.zeros(len(r["y"]))
            .scatter_reduce(0, r["target"], r["z"] @ w, "sum")
            .square()
            .sum()
            + torch.zeros(len(r["y"])).scatter_reduce(0, r["source"], r["z"] @ w, "amax").sum()
        )
    ),
    "sums that are written": gradient(
        lambda w, r: (
            (
                torch.zeros(len(r["y"]), 3).index_add_(0, r["target"], r["z"] * w)
                / torch.ones(len(r["y"])).scatter_add_(0, r["target"], torch.ones(len(r["z"])))[
                    :, None
                ]
            )
            .square()
            .mean()
        )
    ),
    "a share of what comes": gradient(
        lambda w, r: (
            torch.zeros(len(r["y"])).index_add_(0, torch.arange(len(r["y"])), r["x"] @ w)
            / torch.zeros(len(r["y"])).index_add(0, torch.arange(len(r["y"])), r["y"])
        ).mean()
    ),
    "each beside its own": gradient(
        lambda w, r: F.cross_entropy((r["z"] * w) @ r["x"].T, r["target"])
    ),
    "likeness of each to each": gradient(
        lambda w, r: F.cosine_similarity((r["x"] * w)[:, None], r["z"][None], dim=2).max(1)[0].sum()
    ),
    "who is among others": lambda w, r: (
        torch.isin(torch.arange(len(r["x"])), r["target"]).sum(),
        torch.isin(r["source"], r["target"], invert=True).sum(),
        torch.isin(r["source"], torch.tensor([0, 2])).sum(),
    ),
    "parts of pairs": gradient(
        lambda w, r: (
            ((r["x"] * w) @ r["z"].T)[0].square().sum()
            + ((r["x"] * w) @ r["z"].T)[:, -1].mean()
            + ((r["x"] * w) @ r["z"].T)[-1:].tanh().sum()
        )
    ),
    "pairs in a line": gradient(
        lambda w, r: (
            ((r["x"] * w) @ r["z"].T).flatten().softmax(0).square().sum()
            + torch.outer(r["y"] * w[0], r["z"][:, 0]).reshape(-1).std(unbiased=False)
            + ((r["x"] * w)[:, None] - r["z"]).abs().sum(2).view(-1).sort()[0][0]
        )
    ),
    "the greatest of each": gradient(
        lambda w, r: (
            ((r["x"] * w) @ r["z"].T).topk(1, dim=1)[0].tanh().sum()
            + ((r["x"] * w) @ r["z"].T).kthvalue(1, dim=0)[0].mean()
        )
    ),
    "along pairs": gradient(
        lambda w, r: (
            ((r["x"] * w) @ r["z"].T).cumsum(0).tanh().sum(1).amax()
            + ((r["x"] * w) @ r["z"].T).flip(1).cumsum(1).sum(0).sin().mean()
            + ((r["x"] * w) @ r["z"].T).roll(1, 0).mul(r["y"][:, None]).sum()
        )
    ),
}


@pytest.mark.parametrize("fn", PUT.values(), ids=PUT)
def test_what_edges_say_of_nodes(
    fn: Any, run: list[tuple[int, bool]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stator.federated")
    same(*on_graphs(fn, graphs(LENGTHS * 2)))
    assert sum(count for count, is_padded in run if is_padded) == 10 and not caplog.messages


def standardised(w: Any, r: Any) -> Any:
    x = r["x"].clone()
    x -= x.mean(0)
    x /= x.std(0, unbiased=False) + 1
    x.clamp_(-1, 1).mul_(2)
    x[:, 1] += r["y"]
    x[:, 2] = r["y"] * 2
    x[:, :2] *= w[:2]
    x[r["y"] > 0.5] = 0.25
    x[x < -0.5] = w[0]
    return x


def kept(w: Any, r: Any) -> Any:
    mask = torch.ones(len(r["x"]), dtype=torch.bool)
    mask[r["k"][:1]] = False
    mask[0] = True
    found = torch.zeros_like(r["x"])
    found[:, 1:] = r["x"][:, :2]
    found[..., 0] = 3.0
    return (found * mask[:, None]).sum(0), mask.sum(), found.std(unbiased=False)


def through(w: Any, r: Any) -> Any:
    hidden = F.relu(r["x"] * w, inplace=True)
    return F.leaky_relu_(hidden - 0.1).square().sum()


def one_for_each(k: Any) -> Any:
    found = torch.zeros(len(k), 3)
    found[torch.arange(len(k)), k] = 1.0
    return found.T @ found


WRITTEN = {
    "standardised": lambda w, r: (standardised(w, r).sum(0), standardised(w, r).amax()),
    "kept": kept,
    "in a network": gradient(through),
    "one for each": lambda w, r: (one_for_each(r["k"]), one_for_each(r["k"]).sum(0)[1:]),
    "weights that grow": gradient(
        lambda w, r: (
            (0.9 ** torch.arange(len(r["y"]) - 1, -1, -1) * (r["x"] @ w)).sum()
            + ((r["x"] @ w)[torch.arange(0, len(r["y"]), 2)] ** 2).mean()
            + torch.arange(len(r["y"]), 1, -2).sum() * w[0]
        )
    ),
}


@pytest.mark.parametrize("fn", WRITTEN.values(), ids=WRITTEN)
def test_what_is_written_in_place(
    fn: Any, run: list[tuple[int, bool]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stator.federated")
    same(*both(fn, [size + 1 for size in SIZES]))
    assert not caplog.messages and run and all(is_padded for _, is_padded in run)


def twice_the_rest(w: Any, r: Any) -> Any:
    x = r["x"].clone()
    rest = x[1:]
    rest *= 2
    return x.sum(0), rest.sum(0)


def after_all(w: Any, r: Any) -> Any:
    x = r["x"].clone()
    rest = x[:-1]
    x += 1
    return rest.sum(0)


def a_row(w: Any, r: Any) -> Any:
    x = r["x"].clone()
    x[-1].mul_(5)
    F.relu(x[1:], inplace=True)
    return x.sum(0)


def the_last_at_most(w: Any, r: Any) -> Any:
    x = r["x"].clone()
    last = x[-1]
    last.clamp_(max=5)
    return x.sum(0)


def the_last_set(w: Any, r: Any) -> Any:
    x = r["x"].clone()
    last = x[-1]
    last[1] = last[1].clamp(max=5)
    return x.sum(0)


@pytest.mark.parametrize("fn", [twice_the_rest, after_all, a_row, the_last_at_most, the_last_set])
def test_what_is_written_to_some_rows_is_seen_in_all(
    fn: Any, run: list[tuple[int, bool]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stator.federated")
    same(*both(fn, [size + 1 for size in SIZES]))
    assert "writes to some rows" in caplog.text and not any(is_padded for _, is_padded in run)


def test_clients_with_few_rows_run_with_those_that_have_some_more(
    run: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("stator._local_computations._FEW_BYTES", 8 << 10)
    caplog.set_level(logging.INFO, "stator.federated")
    same(*both(gradient(lambda w, r: (r["x"] * w).square().mean()), [1, 2, 5, 9, 30, 60]))
    assert run == [(6, True)]
    # More of them: with those that have about as many.
    run.clear()
    same(*both(lambda w, r: (r["x"] * w).mean(0), [70, 100, 150, 200]))
    assert sorted(run) == [(2, True), (2, True)]
    # Where some lack rows, those that have about as many run together, then and later.
    run.clear()
    fn = lambda w, r: (r["x"][: len(r["x"]) // 2] * w).sum(0)  # noqa: E731
    same(*both(fn, [5, 6, 1, 7, 9, 10, 1]))
    assert sorted(run) == [(2, False), (2, True), (3, True)]
    assert not caplog.messages


def test_what_is_written_by_a_mask_is_written_for_all_at_once(
    run: list[tuple[int, bool]], caplog: pytest.LogCaptureFixture
) -> None:
    """Clients have as many rows as each other: nothing is padded."""
    caplog.set_level(logging.INFO, "stator.federated")

    def fn(w: Any, r: Any) -> Any:
        x = r["x"].clone()
        x[x > 0.5] = w[0]
        x[r["y"] > 0.5, 1] = 0.25
        x[r["k"] == 1, :2] = 3
        x[r["k"]] += 1
        return (x * w).sum(0)

    same(*both(fn, [5, 5, 5, 5]))
    assert run == [(4, False)] and not caplog.messages
