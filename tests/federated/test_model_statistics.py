"""Models that keep statistics of their rows: clients' are averaged, as a loop by hand does it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stator
import stator.federated as fl

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from stator.federated import learning
from stator.federated.execution import LocalContext

from .classifiers import classifier, drawn_clients

SIZES = (5, 5, 7, 4)


class Centred(nn.Module):
    """Keeps a mean of what it is given, beside a table that nothing writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("table", torch.linspace(0, 1, 8))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            with torch.no_grad():
                self.mean.lerp_(x.mean(0), 0.25)
                self.calls.add_(1)
        return x - self.mean + self.table


def net(*inner: nn.Module) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), *inner, nn.ReLU(), nn.Linear(8, 3))


def by_hand(module: nn.Module, clients: list[Any], rounds: int, steps: int) -> nn.Module:
    """FedAvg of everything that is a float."""
    server = copy.deepcopy(module)
    for _ in range(rounds):
        found, counts = [], []
        for rows in clients:
            own = copy.deepcopy(server)
            optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
            for _ in range(steps):
                optimizer.zero_grad()
                outputs = own(torch.from_numpy(rows["inputs"]))
                F.cross_entropy(outputs, torch.from_numpy(rows["labels"])).backward()
                optimizer.step()
            found.append({name: each.detach() for name, each in own.state_dict().items()})
            counts.append(len(rows["labels"]))
        with torch.no_grad():
            for name, each in server.state_dict().items():
                if each.is_floating_point():
                    total = sum(of[name] * count for of, count in zip(found, counts, strict=True))
                    each.copy_(total / sum(counts))
    return server


class Tied(nn.Module):
    """Two modules have one weight, and a module occurs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)
        self.other.weight = self.one.weight
        self.again = self.one

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.again(torch.relu(self.other(torch.relu(self.one(x)))))


KINDS: dict[str, Callable[[], nn.Module]] = {
    "batch_norm": lambda: net(nn.BatchNorm1d(8)),
    "own": lambda: net(Centred()),
    "both": lambda: net(nn.BatchNorm1d(8, momentum=0.3), Centred()),
    "tied": lambda: net(Tied(), nn.BatchNorm1d(8)),
    "twice": lambda: net(*[nn.BatchNorm1d(8)] * 2),
    "spectral norm": lambda: net(nn.Tanh(), spectral_norm(nn.Linear(8, 8))),
}


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_rounds_are_those_by_hand(kind: str, exact: bool) -> None:
    module = KINDS[kind]()
    clients = drawn_clients(SIZES, 1)
    before = copy.deepcopy(module.state_dict())
    process = learning.build_fed_avg(
        classifier(module, 4), client_optimizer=lambda of: torch.optim.SGD(of, lr=0.1), steps=3
    )
    with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
        state = process.initialize()
        for _ in range(2):
            state, _ = process.next(state, clients)
    expected = by_hand(module, clients, rounds=2, steps=3).state_dict()
    assert len(state["weights"]) > len(list(module.parameters()))
    for name, found in state["weights"].items():
        np.testing.assert_allclose(found, expected[name].numpy(), rtol=1e-5, atol=1e-6)
        assert name in dict(module.named_parameters()) or not np.array_equal(found, before[name])
    # Nothing has trained the module itself.
    for name, each in module.state_dict().items():
        assert torch.equal(each, before[name])


@pytest.mark.parametrize("exact", [True, False])
def test_a_mean_of_all_batches_is_that_of_the_round(exact: bool) -> None:
    """`momentum=None`: a client counts its own steps, from none on."""
    module = net(nn.BatchNorm1d(8, momentum=None))
    clients = drawn_clients(SIZES, 1)
    process = learning.build_fed_avg(
        classifier(module, 4), client_optimizer=lambda of: torch.optim.SGD(of, lr=0.1), steps=3
    )
    with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
        state, _ = process.run(process.initialize(), [clients] * 2)
    # What a server has isn't counted: `num_batches_tracked` of a client begins at 0.
    expected = by_hand(module, clients, rounds=2, steps=3).state_dict()
    for name, found in state["weights"].items():
        np.testing.assert_allclose(found, expected[name].numpy(), rtol=1e-5, atol=1e-6)
    assert module[1].num_batches_tracked == 0


def test_server_optimizers_step_parameters_alone() -> None:
    clients = drawn_clients(SIZES, 1)
    module = net(nn.BatchNorm1d(8))
    states = {}
    for build in (learning.build_fed_avg, learning.build_fed_adam):
        process = build(classifier(module, 4), steps=2)
        state, _ = process.next(process.initialize(), clients)
        states[build] = state
    averaged, adapted = states.values()
    assert not any("running" in name for name in adapted["optimizer"])
    for name in ("1.running_mean", "1.running_var"):
        np.testing.assert_array_equal(averaged["weights"][name], adapted["weights"][name])
    assert not np.array_equal(averaged["weights"]["0.weight"], adapted["weights"]["0.weight"])


def test_evaluation_and_personalisation_use_them(tmp_path: Path) -> None:
    clients = drawn_clients(SIZES, 1)
    module = net(nn.BatchNorm1d(8))
    model = classifier(module, 4)
    process = learning.build_fed_avg(model, steps=2)
    state, _ = process.next(process.initialize(), clients)
    evaluate = learning.build_evaluation(model)
    found = evaluate(state["weights"], clients)["loss"]
    assert module.training
    personal = learning.build_personalization(model, steps=2)
    told = personal(state["weights"], [{"train": rows, "test": rows} for rows in clients])
    learning.save_state(state, tmp_path / "state")
    again = learning.load_state(process, tmp_path / "state")
    model.assign(again["weights"])
    module.eval()
    inputs, labels = (
        torch.from_numpy(np.concatenate([rows[name] for rows in clients]))
        for name in ("inputs", "labels")
    )
    expected = F.cross_entropy(module(inputs), labels).item()
    assert found == pytest.approx(expected, rel=1e-5)
    assert told["before"]["loss"] == pytest.approx(expected, rel=1e-5)
    assert told["after"]["loss"] < told["before"]["loss"]


def test_a_client_without_rows_changes_no_statistics() -> None:
    clients = drawn_clients((5, 6), 1)
    empty = {
        "inputs": np.zeros((0, 4), np.float32),
        "labels": np.zeros(0, np.int64),
    }
    process = learning.build_fed_avg(classifier(net(Centred()), 4))
    state = process.initialize()
    with_it, _ = process.next(state, [clients[0], empty, clients[1]])
    without, _ = process.next(state, clients)
    for name, found in with_it["weights"].items():
        np.testing.assert_allclose(found, without["weights"][name], rtol=1e-6)


def test_modules_in_evaluation_mode_keep_theirs() -> None:
    module = net(nn.BatchNorm1d(8)).eval()
    model = classifier(module, 4)
    assert not model.statistics()
    process = learning.build_fed_avg(model)
    state, _ = process.next(process.initialize(), drawn_clients(SIZES, 1))
    assert set(state["weights"]) == {name for name, _ in module.named_parameters()}


@pytest.mark.parametrize(
    "build",
    [
        lambda model: learning.build_scaffold(model, clients=3),
        lambda model: learning.build_fed_avg(
            model, client_privacy=learning.DPSGD(batch_size=2, clip=1.0, noise_multiplier=1.0)
        ),
    ],
)
def test_what_has_no_place_for_them_says_so(build: Any) -> None:
    with pytest.raises(TypeError, match=r"`1\.running_mean` is one\. Use `nn\.GroupNorm`"):
        build(classifier(net(nn.BatchNorm1d(8)), 4))


def test_a_module_that_cannot_be_tried_is_traced_all_the_same() -> None:
    class Odd(Centred):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if type(x) is torch.Tensor and len(x) == 2:
                raise ValueError("never two rows")
            return x + self.table

    model = classifier(net(nn.BatchNorm1d(8), Odd()), 4)
    assert set(model.statistics()) == {"1.running_mean", "1.running_var"}


@pytest.mark.parametrize("wrap", [torch.compile, stator.compile])
def test_compiled_modules_are_taken_for_what_they_are_made_of(wrap: Any) -> None:
    module = net(nn.BatchNorm1d(8))
    model = classifier(wrap(module), 4)
    assert model.module is module
    assert set(pickle.loads(pickle.dumps(model.weights()))) == set(classifier(module, 4).weights())
