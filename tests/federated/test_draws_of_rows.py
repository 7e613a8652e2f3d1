"""Clients with different numbers of rows run at once where their programs draw: each draws what it
draws alone."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F

import stator.federated as fl
from stator.federated.execution import LocalContext

from .test_clients_of_different_sizes import MODEL, ROWS, both, clients, gradient, run, same

__all__ = ["run"]

SIZES = [5, 3, 7, 6, 5, 4, 40, 33, 64, 35]
torch.manual_seed(0)
NETWORK = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Tanh(), nn.Dropout(0.2))


def encoded(w: Any, r: Any) -> Any:
    """A small variational autoencoder."""
    mean, spread = r["x"] * w, (r["x"] * w).square().mean(1, keepdim=True)
    own = torch.distributions.Normal(mean, spread.exp())
    drawn = own.rsample()
    whole = torch.distributions.kl_divergence(own, torch.distributions.Normal(0.0, 1.0))
    return (drawn - r["x"]).square().sum(1).mean() + whole.sum(1).mean()


def sampled(w: Any, r: Any) -> Any:
    order = torch.randperm(len(r["x"]))
    some = order[:3]
    return ((r["x"] @ w)[some] - r["y"][some]).square().mean()


EVERY = {
    "as rows": lambda w, r: (r["x"] + torch.randn_like(r["x"])).sum(0),
    "as many as rows": lambda w, r: (
        (torch.randn(len(r["x"]), 3) * r["x"]).sum(0),
        (torch.rand(len(r["y"])) < r["y"]).sum(),
        (torch.randint(0, 3, (len(r["k"]),)) == r["k"]).sum(),
    ),
    "dropped": gradient(lambda w, r: F.dropout(r["x"] * w, 0.5).square().mean()),
    "in a network": gradient(lambda w, r: NETWORK(r["x"] * w).square().sum()),
    "as probabilities": gradient(
        lambda w, r: (torch.bernoulli(torch.sigmoid(r["x"] @ w)) * (r["x"] @ w)).mean()
    ),
    "around rows": lambda w, r: torch.normal(r["x"] * w, 0.5 + r["y"][:, None].expand(-1, 3)).mean(
        0
    ),
    "an autoencoder": gradient(encoded),
    "distributions": lambda w, r: (
        torch.distributions.Bernoulli(r["y"]).sample().sum(),
        torch.distributions.Gamma(r["x"].exp(), 2.0).rsample().mean(0),
        torch.distributions.Categorical(logits=r["x"]).sample().float().mean(),
        torch.distributions.Uniform(r["y"] - 1, r["y"]).sample().amax(),
        torch.distributions.Laplace(r["y"], 1.0).rsample().sum(),
    ),
    "written": lambda w, r: (
        torch.zeros(len(r["y"]), 3).uniform_(-1, 1).mul(r["x"]).sum(0),
        torch.zeros_like(r["x"]).bernoulli_(0.3).sum(),
        F.dropout(r["x"].exp(), 0.5, inplace=True).sum(1).amax(),
    ),
    "an order": gradient(sampled),
    "columns": lambda w, r: (F.dropout(r["x"].T, 0.5).sum(1), torch.rand_like(r["x"].T).mean()),
    "of pairs": lambda w, r: F.dropout(torch.softmax(r["x"] @ r["x"].T, 1), 0.3).sum(),
    "noise of its own": lambda w, r: (r["x"].mean(0) + 0.1 * torch.randn(3), torch.rand(()) * w),
    "some of either": lambda w, r: (
        torch.randn(3) + torch.randn(len(r["x"]) - 1, 3).sum(0) + torch.rand(2).sum() + r["y"].sum()
    ),
}


@pytest.mark.parametrize("fn", EVERY.values(), ids=EVERY)
def test_each_draws_what_it_draws_alone(
    fn: Any, run: list[tuple[int, bool]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stator.federated")
    same(*both(fn, SIZES))
    assert not caplog.messages and run and all(is_padded for _, is_padded in run)


def test_who_else_takes_part_makes_no_difference(run: list[tuple[int, bool]]) -> None:
    local = fl.local_computation(MODEL, ROWS)(EVERY["an autoencoder"])

    @fl.federated_computation(
        fl.FederatedType(MODEL, fl.SERVER), fl.FederatedType(ROWS, fl.CLIENTS)
    )
    def comp(w: Any, rows: Any) -> Any:
        return fl.federated_collect(fl.federated_map(local, (fl.federated_broadcast(w), rows)))

    given = clients(SIZES)
    found = []
    for some in (given, given[:6], given[:2]):
        for exact in (False, True):
            with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
                torch.manual_seed(3)
                found.append(comp(np.ones(3, np.float32), some)[:2])
    for other in found[1:]:
        same(found[0], other)
    again = comp(np.ones(3, np.float32), given)[:2]
    assert np.abs(np.asarray(again[0][0]) - np.asarray(found[0][0][0])).max() > 1e-4


OTHERS = {
    "in place": lambda w, r: r["x"].clone().normal_().sum(0),
    "some that data choose": lambda w, r: torch.multinomial(r["y"], 2).sum(),
    "several results": lambda w, r: F.gumbel_softmax(r["x"] * w, hard=True).sum(0),
}


@pytest.mark.parametrize("fn", OTHERS.values(), ids=OTHERS)
def test_others_draw_what_they_draw_alone(fn: Any, run: list[tuple[int, bool]]) -> None:
    same(*both(fn, [5, 5, 4, 4, 7, 9]))
    assert run
