"""Federated learning: rounds are those of plain loops, states survive, and what is wrong is said."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F

import stator.federated as fl
from stator.federated import learning
from stator.federated.execution import LocalContext

from .classifiers import classifier, drawn_clients

ROWS = (5, 9, 20, 7)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3))


def model(module: nn.Module | None = None) -> learning.Model:
    return classifier(module or network(), 4)


def clients(sizes: tuple[int, ...] = ROWS, seed: int = 0) -> list[Any]:
    return drawn_clients(sizes, seed)


def plain_round(
    module: nn.Module, rows: list[Any], make: Any, steps: int, strength: float = 0.0
) -> tuple[dict[str, torch.Tensor], float]:
    """The clients' mean update and the mean loss, written as a loop."""
    start = {name: tensor.detach().clone() for name, tensor in module.named_parameters()}
    total: dict[str, Any] = {name: 0.0 for name in start}
    losses, count = 0.0, 0
    for client in rows:
        own = {name: tensor.clone().requires_grad_() for name, tensor in start.items()}
        optimizer = make(list(own.values()))
        inputs, labels = (torch.from_numpy(client[name]) for name in ("inputs", "labels"))
        for step in range(steps):
            optimizer.zero_grad()
            loss = F.cross_entropy(torch.func.functional_call(module, own, (inputs,)), labels)
            if step == 0:
                losses += loss.item() * len(labels)
            away = sum((own[name] - start[name]).pow(2).sum() for name in start)
            (loss + strength / 2 * away).backward()
            optimizer.step()
        for name in start:
            total[name] += (start[name] - own[name].detach()) * len(labels)
        count += len(labels)
    return {name: tensor / count for name, tensor in total.items()}, losses / count


def sgd(rate: float, momentum: float = 0.0) -> Any:
    return lambda parameters: torch.optim.SGD(parameters, lr=rate, momentum=momentum)


def same(weights: Any, expected: Any) -> None:
    assert list(weights) == list(expected)
    for name, tensor in expected.items():
        np.testing.assert_allclose(weights[name], tensor, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("steps", [1, 4])
def test_federated_averaging_is_the_mean_of_the_clients(steps: int, exact: bool) -> None:
    module = network()
    process = learning.build_fed_avg(model(module), client_optimizer=sgd(0.2, 0.5), steps=steps)
    with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
        state = process.initialize()
        assert state["round"] == 0
        same(state["weights"], model(module).weights())
        for seed in range(3):
            update, loss = plain_round(module, clients(seed=seed), sgd(0.2, 0.5), steps)
            state, metrics = process.next(state, clients(seed=seed))
            with torch.no_grad():
                for name, parameter in module.named_parameters():
                    parameter -= update[name]
            same(state["weights"], model(module).weights())
            assert metrics["loss"] == pytest.approx(loss, rel=1e-4)
            assert metrics["rows"] == sum(ROWS)
            assert state["round"] == seed + 1


def test_adam_at_clients() -> None:
    module = network()
    make = lambda parameters: torch.optim.Adam(parameters, lr=0.01)  # noqa: E731
    process = learning.build_fed_avg(model(module), client_optimizer=make, steps=3)
    state, _ = process.next(process.initialize(), clients())
    update, _ = plain_round(module, clients(), make, 3)
    before = model(module).weights()
    same(state["weights"], {name: before[name] - update[name].numpy() for name in before})


def test_clients_are_held_near_the_server() -> None:
    module = network()
    process = learning.build_fed_prox(
        model(module), proximal_strength=3.0, client_optimizer=sgd(0.1), steps=5
    )
    state, _ = process.next(process.initialize(), clients())
    update, _ = plain_round(module, clients(), sgd(0.1), 5, 3.0)
    free, _ = plain_round(module, clients(), sgd(0.1), 5)
    before = model(module).weights()
    same(state["weights"], {name: before[name] - update[name].numpy() for name in before})
    assert any(not torch.allclose(update[name], free[name], rtol=1e-2) for name in update)


def test_the_mean_gradient() -> None:
    module = network()
    process = learning.build_fed_sgd(model(module))
    state, _ = process.next(process.initialize(), clients())
    together = {
        name: torch.from_numpy(np.concatenate([client[name] for client in clients()]))
        for name in ("inputs", "labels")
    }
    F.cross_entropy(module(together["inputs"]), together["labels"]).backward()
    expected = {
        name: (parameter.detach() - 0.1 * parameter.grad).numpy()
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }
    same(state["weights"], expected)


def adaptive(kind: str, updates: list[Any], rate: float = 0.1) -> Any:
    """The formulas of the paper, on one array."""
    beta1, beta2, tau = (0.0 if kind == "adagrad" else 0.9), 0.99, 1e-3
    weights, first, second = np.zeros(3), np.zeros(3), np.full(3, tau**2)
    for update in updates:
        first = beta1 * first + (1 - beta1) * update
        square = update**2
        if kind == "adagrad":
            second = second + square
        elif kind == "adam":
            second = beta2 * second + (1 - beta2) * square
        else:
            second = second - (1 - beta2) * square * np.sign(second - square)
        weights = weights - rate * first / (np.sqrt(second) + tau)
    return weights


@pytest.mark.parametrize("kind", ["adagrad", "adam", "yogi"])
def test_adaptive_servers_take_the_steps_of_the_paper(kind: str) -> None:
    optimizer = getattr(learning, kind)()
    updates = [np.random.default_rng(seed).normal(size=3) for seed in range(5)]
    weights = OrderedDict(w=torch.zeros(3, dtype=torch.float64))
    moments = optimizer.initialize(weights)
    for update in updates:
        moments, weights = optimizer.step(moments, weights, {"w": torch.from_numpy(update)})
    np.testing.assert_allclose(weights["w"], adaptive(kind, updates))


@pytest.mark.parametrize("kind", ["adagrad", "adam", "yogi"])
def test_adaptive_processes_learn(kind: str) -> None:
    process = getattr(learning, f"build_fed_{kind}")(model(), client_optimizer=sgd(0.5), steps=3)
    state, metrics = process.run(process.initialize(), [clients()] * 15)
    assert metrics[-1]["loss"] < 0.8 * metrics[0]["loss"]
    assert state["round"] == 15


def test_momentum_at_the_server() -> None:
    optimizer = learning.sgd(0.5, momentum=0.9)
    weights = OrderedDict(w=torch.ones(2))
    moments = optimizer.initialize(weights)
    for _ in range(2):
        moments, weights = optimizer.step(moments, weights, {"w": torch.ones(2)})
    torch.testing.assert_close(weights["w"], torch.full((2,), 1 - 0.5 - 0.5 * 1.9))


def of_words(
    make: Callable[[], nn.Module], length: int, sizes: tuple[int, ...]
) -> tuple[learning.Model, list[Any]]:
    """A model of texts of so many words, and clients with so many rows."""
    torch.manual_seed(0)
    words = learning.Model(
        make(),
        F.cross_entropy,
        inputs=fl.TensorType(np.int64, [None, length]),
        labels=fl.TensorType(np.int64, [None]),
    )
    drawn = np.random.default_rng(0)
    rows = [
        {"inputs": drawn.integers(0, 11, (size, length)), "labels": drawn.integers(0, 3, size)}
        for size in sizes
    ]
    return words, rows


def test_other_modules() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(11, 6)
            self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
            self.drop = nn.Dropout(0.3)
            self.head = nn.Linear(6, 3)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            found = self.table(ids)
            return self.head(self.drop(self.attention(found, found, found)[0]).mean(1))

    words, rows = of_words(Words, 5, (3, 4, 3))
    process = learning.build_fed_avg(words, client_optimizer=sgd(0.3), steps=2)
    _, metrics = process.run(process.initialize(), [rows] * 12)
    assert metrics[-1]["loss"] < metrics[0]["loss"]


def test_a_client_without_rows_changes_nothing() -> None:
    process = learning.build_fed_avg(model(), steps=2)
    state = process.initialize()
    with_it, metrics = process.next(state, clients((5, 0, 7)))
    without = [client for client in clients((5, 0, 7)) if len(client["labels"])]
    same(with_it["weights"], process.next(state, without)[0]["weights"])
    assert metrics["rows"] == 12 and np.isfinite(metrics["loss"])


def test_evaluation() -> None:
    module = network()
    accuracy = lambda outputs, labels: (outputs.argmax(1) == labels).float().mean()  # noqa: E731
    evaluate = learning.build_evaluation(model(module), {"accuracy": accuracy})
    found = evaluate(model(module).weights(), clients())
    inputs = torch.from_numpy(np.concatenate([client["inputs"] for client in clients()]))
    labels = torch.from_numpy(np.concatenate([client["labels"] for client in clients()]))
    outputs = module(inputs)
    assert found["accuracy"] == pytest.approx(accuracy(outputs, labels).item())
    assert found["loss"] == pytest.approx(F.cross_entropy(outputs, labels).item(), rel=1e-5)


def test_parameters_that_need_no_gradient_stay_as_they_are() -> None:
    module = network()
    for parameter in module[0].parameters():  # type: ignore[union-attr]
        parameter.requires_grad_(False)
    of = model(module)
    decaying = lambda parameters: torch.optim.SGD(parameters, lr=0.3, weight_decay=0.5)  # noqa: E731
    process = learning.build_fed_avg(of, client_optimizer=decaying, steps=3)
    state, _ = process.next(process.initialize(), clients())
    trained = {name: each for name, each in module.named_parameters() if each.requires_grad}
    assert list(state["weights"]) == list(trained)
    before = {name: each.detach().clone() for name, each in module.named_parameters()}
    start = {name: before[name].numpy() for name in trained}

    def own(parameters: list[Any]) -> Any:
        of_trained = [
            each for name, each in zip(before, parameters, strict=True) if name in trained
        ]
        return decaying(of_trained)

    update, _ = plain_round(module, clients(), own, 3)
    same(state["weights"], {name: start[name] - update[name].numpy() for name in start})
    of.assign(state["weights"])
    assert all(
        torch.equal(each, before[name])
        for name, each in module.named_parameters()
        if name not in trained
    )
    with pytest.raises(ValueError, match="no parameters to train"):
        model(network().requires_grad_(False))


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_modules(kind: Any) -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(11, 6)
            self.layers = kind(6, 5, num_layers=2, batch_first=True, bidirectional=True)
            self.head = nn.Linear(10, 3)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.layers(self.table(ids))[0][:, -1])

    words, rows = of_words(Words, 7, (3, 5, 3))
    process = learning.build_fed_avg(words, client_optimizer=sgd(0.5), steps=2)
    state, _ = process.next(process.initialize(), rows)
    update, _ = plain_round(words.module, rows, sgd(0.5), 2)
    before = words.weights()
    same(state["weights"], {name: before[name] - update[name].numpy() for name in before})


def test_a_loss_may_read_the_modules_parameters() -> None:
    module = network()
    layer: Any = module[3]

    def decayed(outputs: Any, labels: Any) -> Any:
        return F.cross_entropy(outputs, labels) + 0.1 * layer.weight.pow(2).sum()

    of = learning.Model(module, decayed, model(module).inputs, model(module).labels)
    rows = clients((6,))
    process = learning.build_fed_sgd(of)
    state, _ = process.next(process.initialize(), rows)
    inputs, labels = (torch.from_numpy(rows[0][name]) for name in ("inputs", "labels"))
    decayed(module(inputs), labels).backward()
    expected = {
        name: (parameter - 0.1 * (parameter.grad if parameter.grad is not None else 0))
        for name, parameter in module.named_parameters()
    }
    same(state["weights"], {name: each.detach().numpy() for name, each in expected.items()})


def test_a_round_is_a_computation_that_can_be_sent() -> None:
    process = learning.build_fed_adam(model(), steps=2)
    read = fl.framework.ConcreteComputation.from_bytes(process.next.to_bytes())
    state = process.initialize()
    expected, _ = process.next(state, clients())
    found, _ = read(state, clients())
    same(found["weights"], expected["weights"])
    assert "state=<weights=" in str(process.next.type_signature)


def test_states_are_saved_and_resumed(tmp_path: Path) -> None:
    process = learning.build_fed_yogi(model(), steps=2)
    state, _ = process.run(process.initialize(), [clients()] * 2)
    path = tmp_path / "state.npz"
    learning.save_state(state, path)
    read = learning.load_state(process, path)
    assert read["round"] == 2
    expected, _ = process.next(state, clients())
    found, _ = process.next(read, clients())
    assert all((found["weights"][name] == expected["weights"][name]).all() for name in ROWS_OF)
    assert os.listdir(tmp_path) == ["state.npz"]


ROWS_OF = [name for name, _ in network().named_parameters()]


def test_whoever_is_killed_while_saving_has_the_state_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = learning.build_fed_avg(model())
    path = tmp_path / "state.npz"
    learning.save_state(process.initialize(), path)
    later, _ = process.next(process.initialize(), clients())

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(os, step, killed)
            learning.save_state(later, path)
    assert learning.load_state(process, path)["round"] == 0
    assert os.listdir(tmp_path) == ["state.npz"]


def test_files_that_are_no_state_of_the_process(tmp_path: Path) -> None:
    process = learning.build_fed_avg(model())
    path = tmp_path / "state.npz"
    with pytest.raises(FileNotFoundError):
        learning.load_state(process, path)
    learning.save_state(process.initialize(), path)
    whole = path.read_bytes()
    for damaged in (b"", b"text", whole[: len(whole) // 2], whole[:200] + b"x" + whole[201:]):
        path.write_bytes(damaged)
        with pytest.raises(learning.CheckpointError, match="damaged"):
            learning.load_state(process, path)
    path.write_bytes(whole)
    with pytest.raises(learning.CheckpointError, match="only: optimizer/first"):
        learning.load_state(learning.build_fed_adam(model()), path)
    wider = model(nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.LayerNorm(9), nn.Linear(9, 3)))
    with pytest.raises(learning.CheckpointError, match=r"`weights/0.weight` is float32\[8, 4\]"):
        learning.load_state(learning.build_fed_avg(wider), path)


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(TypeError, match=r"`module` is to be an nn\.Module"):
        learning.Model(3, F.cross_entropy, None, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no parameters"):
        model(nn.ReLU())
    with pytest.raises(TypeError, match="a dimension for the rows"):
        learning.Model(network(), F.cross_entropy, np.float32, fl.TensorType(np.int64, [None]))
    with pytest.raises(ValueError, match="`steps` is to be an integer, 1 or more"):
        learning.build_fed_avg(model(), steps=0)
    with pytest.raises(ValueError, match="0 or more"):
        learning.build_fed_prox(model(), proximal_strength=-1)
    process = learning.build_fed_avg(model())
    wrong = clients()
    wrong[2]["inputs"] = wrong[2]["inputs"].astype(np.float64)
    with pytest.raises(TypeError, match="client 2|\\[2\\]"):
        process.next(process.initialize(), wrong)
    wrong = clients()
    wrong[3]["labels"][0] = 17
    with pytest.raises(Exception, match="out of bounds") as raised:
        process.next(process.initialize(), wrong)
    assert raised.value.__notes__[-1] == "at client 3"
