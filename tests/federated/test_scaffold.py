"""SCAFFOLD: rounds are those of a plain loop, on digits that are split unevenly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import stator.federated as fl
from stator.federated import aggregators, learning
from stator.federated.execution import LocalContext

from .classifiers import classifier

RATE, STEPS, CLIENTS = 0.2, 3, 12


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))


def model(module: nn.Module | None = None) -> learning.Model:
    return classifier(module or network(), 64)


def split(clients: int = CLIENTS, alpha: float = 0.3) -> list[Any]:
    """Digits, of which each client has another mixture."""
    digits, drawn = load_digits(), np.random.default_rng(0)
    inputs = (digits.data / 16).astype(np.float32)
    shares: list[list[int]] = [[client] for client in range(clients)]
    for digit in range(10):
        own = clients + np.flatnonzero(digits.target[clients:] == digit)
        cuts = np.cumsum(drawn.dirichlet([alpha] * clients)[:-1] * len(own)).astype(int)
        for share, part in zip(shares, np.split(own, cuts), strict=True):
            share.extend(part)
    return [
        {"inputs": inputs[share], "labels": digits.target[share], "client": client}
        for client, share in enumerate(shares)
    ]


class Loop:
    """The algorithm as the paper has it, one client after the other."""

    def __init__(self, clients: int = CLIENTS) -> None:
        self.module = network()
        self.weights = [tensor.detach().clone() for tensor in self.module.parameters()]
        self.control = [torch.zeros_like(tensor) for tensor in self.weights]
        self.controls = [[torch.zeros_like(w) for w in self.weights] for _ in range(clients)]

    def round(self, rows: list[Any]) -> float:
        moved = [torch.zeros_like(tensor) for tensor in self.weights]
        learned = [torch.zeros_like(tensor) for tensor in self.weights]
        loss_of_all = 0.0
        for client in rows:
            inputs, labels = torch.from_numpy(client["inputs"]), torch.from_numpy(client["labels"])
            own = self.controls[client["client"]]
            nn.utils.vector_to_parameters(
                nn.utils.parameters_to_vector(self.weights), self.module.parameters()
            )
            for step in range(STEPS):
                loss = F.cross_entropy(self.module(inputs), labels)
                loss_of_all += loss.item() * len(labels) if step == 0 else 0
                gradients = torch.autograd.grad(loss, list(self.module.parameters()))
                with torch.no_grad():
                    for each in zip(
                        self.module.parameters(), gradients, own, self.control, strict=True
                    ):
                        each[0].sub_(RATE * (each[1] - each[2] + each[3]))
            for index, parameter in enumerate(self.module.parameters()):
                drift = self.weights[index] - parameter.detach()
                new = own[index] - self.control[index] + drift / (STEPS * RATE)
                learned[index] += new - own[index]
                own[index] = new
                moved[index] -= drift
        for index, weights in enumerate(self.weights):
            weights += moved[index] / len(rows)
            self.control[index] = self.control[index] + learned[index] / len(self.controls)
        return loss_of_all / sum(len(client["labels"]) for client in rows)


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-5)


def scaffold(**options: Any) -> Any:
    options = {"clients": CLIENTS, "client_learning_rate": RATE, "steps": STEPS, **options}
    return learning.build_scaffold(model(), **options)


@pytest.mark.parametrize("exact", [False, True])
def test_rounds_are_those_of_a_loop(exact: bool) -> None:
    loop, rows, process = Loop(), split(), scaffold()
    drawn = np.random.default_rng(1)
    with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
        state = process.initialize()
        for number in range(6):
            chosen = [rows[client] for client in drawn.permutation(CLIENTS)[: 5 + number % 2]]
            loss = loop.round(chosen)
            state, metrics = process.next(state, chosen)
            assert metrics["loss"] == pytest.approx(loss, rel=1e-3)
            for index, name in enumerate(state["weights"]):
                close(state["weights"][name], loop.weights[index])
                close(state["control"][name], loop.control[index])
                close(state["controls"][name], np.stack([own[index] for own in loop.controls]))
    assert state["round"] == 6
    assert all(abs(table).max() > 0.01 for table in state["controls"].values())


def test_clients_that_are_not_in_a_round_keep_theirs() -> None:
    process, rows = scaffold(), split()
    state, _ = process.next(process.initialize(), rows[:4])
    after, _ = process.next(state, rows[2:6])
    for name, table in state["controls"].items():
        assert (after["controls"][name][:2] == table[:2]).all()
        assert (after["controls"][name][2:6] != table[2:6]).any()
        assert not after["controls"][name][6:].any()


def test_it_learns_where_federated_averaging_drifts() -> None:
    rows = split(alpha=0.05)
    plain = [{name: client[name] for name in ("inputs", "labels")} for client in rows]

    def sgd(parameters: list[Any]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=RATE)

    mean = aggregators.UnweightedMeanFactory()
    averaging = learning.build_fed_avg(
        model(), client_optimizer=sgd, steps=10, model_aggregator=mean
    )
    losses = {}
    for name, process, data in (
        ("scaffold", scaffold(steps=10), rows),
        ("averaging", averaging, plain),
    ):
        state, _ = process.run(process.initialize(), [data] * 8)
        evaluate = learning.build_evaluation(model())
        losses[name] = evaluate(state["weights"], plain)["loss"]
    assert losses["scaffold"] < 0.9 * losses["averaging"]


def test_states_are_saved_sent_and_resumed(tmp_path: Path) -> None:
    process, rows = scaffold(), split()
    read = fl.framework.ConcreteComputation.from_bytes(process.next.to_bytes())
    state, _ = process.run(process.initialize(), [rows[:5], rows[3:9]])
    learning.save_state(state, tmp_path / "state.npz")
    resumed = learning.load_state(process, tmp_path / "state.npz")
    expected, _ = process.next(state, rows)
    for found in (process.next(resumed, rows)[0], read(resumed, rows)[0]):
        for part in ("weights", "control", "controls"):
            for name, array in expected[part].items():
                assert (found[part][name] == array).all()


def test_servers_and_aggregators() -> None:
    clipping = aggregators.clipping_factory(0.1, aggregators.MeanFactory())
    process = scaffold(server_optimizer=learning.sgd(0.5, momentum=0.9), model_aggregator=clipping)
    state, metrics = process.run(process.initialize(), [split()] * 3)
    assert metrics[0]["aggregator"]["clipped"] > 0
    assert metrics[-1]["loss"] < metrics[0]["loss"]
    assert state["optimizer"]


def test_robust_aggregators_go_on_without_a_client_that_is_not_finite() -> None:
    process, rows = scaffold(model_aggregator=aggregators.MedianFactory()), split()
    rows[5] = {**rows[5], "inputs": np.full_like(rows[5]["inputs"], np.nan)}
    state, _ = process.run(process.initialize(), [rows[:7]] * 2)
    for part in ("weights", "control", "controls"):
        assert all(np.isfinite(array).all() for array in state[part].values())
    assert not any(table[5].any() for table in state["controls"].values())


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ValueError, match="`clients` is to be an integer, 1 or more"):
        scaffold(clients=0)
    with pytest.raises(ValueError, match="`client_learning_rate` is to be a number above 0"):
        scaffold(client_learning_rate=0)
    with pytest.raises(ValueError, match="`steps` is to be an integer, 1 or more"):
        scaffold(steps=0.5)
    process, rows = scaffold(), split()
    state = process.initialize()
    empty = {"inputs": rows[0]["inputs"][:0], "labels": rows[0]["labels"][:0], "client": 11}
    broken = {**rows[5], "inputs": np.full_like(rows[5]["inputs"], np.nan)}
    for wrong, text, client in (
        ([rows[3], rows[4], rows[3]], "client 2 has the number 3 .*, as client 0 has", 2),
        (
            [rows[3], {**rows[4], "client": 12}],
            "client 1: its number .* is 12, where there are 12",
            1,
        ),
        ([{**rows[4], "client": -1}], "client 0: its number", 0),
        ([rows[3], empty], "client 1 has no rows, and UnweightedMeanFactory", 1),
        ([rows[3], broken], "client 1: its `inputs` hold NaN", 1),
        ([], "the round has no clients", None),
    ):
        with pytest.raises(learning.ClientError, match=text) as raised:
            process.next(state, wrong)
        assert raised.value.client == client
    with pytest.raises(TypeError, match="client"):
        process.next(state, [{"inputs": rows[0]["inputs"], "labels": rows[0]["labels"]}])
    process.next(state, rows[:3])
