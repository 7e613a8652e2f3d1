"""Differential privacy: what is released, what it costs, and what isn't told."""

from __future__ import annotations

import builtins
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F

import stator.federated as fl
from stator.federated import aggregators, learning

from .classifiers import classifier

VALUE = OrderedDict(a=fl.TensorType(np.float32, [500]), b=fl.TensorType(np.float64, [2, 150]))
gaussian = aggregators.DifferentiallyPrivateFactory.gaussian_fixed


def values(clients: int, scale: float = 0.1) -> list[Any]:
    drawn = np.random.default_rng(0)
    return [
        {"a": scale * drawn.normal(size=500).astype(np.float32), "b": drawn.normal(size=(2, 150))}
        for _ in range(clients)
    ]


def flat(value: Any) -> Any:
    return np.concatenate([value["a"], value["b"].ravel()]).astype(np.float64)


def test_noise_has_its_size_and_denominators_are_fixed() -> None:
    process = gaussian(0.7, 10, 2.0, delta=None).create(VALUE)
    rows = values(6)
    of_each = np.stack([flat(row) for row in rows])
    norms = np.linalg.norm(of_each, axis=1, keepdims=True)
    assert (norms > 2).all()
    exact = (of_each * (2 / norms)).sum(0)
    found = process.next(process.initialize(), rows)
    noise = flat(found["state"]["noised_sum"]) - exact
    # 800 draws: the deviation is known to 2.5 percent, the mean to 0.05.
    assert abs(noise.std() - 1.4) < 0.18 and abs(noise.mean()) < 0.25
    np.testing.assert_allclose(flat(found["result"]), (exact + noise) / 10, rtol=1e-5)
    assert dict(found["measurements"]) == {} and found["state"]["releases"] == 1


def test_each_release_draws_anew_and_is_kept() -> None:
    process = gaussian(1.0, 5, 1.0, delta=None).create(VALUE)
    state = process.initialize()
    assert state["releases"] == 0 and not flat(state["noised_sum"]).any()
    releases = [process.next(state, values(3)) for _ in range(3)]
    for found in releases:
        np.testing.assert_allclose(
            flat(found["result"]) * 5, flat(found["state"]["noised_sum"]), rtol=1e-5
        )
    assert len({found["result"]["a"][0] for found in releases}) == 3
    later = process.next(releases[0]["state"], values(3))
    assert later["state"]["releases"] == 2


def test_clients_that_send_anything_move_the_sum_by_the_clip() -> None:
    process = gaussian(1e-6, 1, 0.5, delta=None).create(VALUE)
    usual = flat(process.next(process.initialize(), values(3))["result"])
    for wild in (1e30, np.nan, np.inf):
        row = {"a": np.full(500, wild, np.float32), "b": np.zeros((2, 150))}
        found = flat(process.next(process.initialize(), [*values(3), row])["result"])
        assert np.linalg.norm(found - usual) < 0.5 + 1e-3


def test_a_round_without_clients_is_a_release() -> None:
    process = gaussian(1.0, 5, 1.0, delta=None).create(VALUE)
    found = process.next(process.initialize(), [])
    assert found["state"]["releases"] == 1 and flat(found["result"]).any()


@pytest.mark.parametrize("population", [None, 400])
def test_epsilon_is_that_of_the_package(population: int | None) -> None:
    accounting = pytest.importorskip("dp_accounting")
    factory = gaussian(1.1, 20, 1.0, delta=1e-5, population=population)
    process = factory.create(np.float32)
    read = fl.framework.ConcreteComputation.from_bytes(process.next.to_bytes())
    event = accounting.GaussianDpEvent(1.1)
    if population is not None:
        event = accounting.PoissonSampledDpEvent(20 / population, event)
    accountant = accounting.rdp.RdpAccountant()
    state = process.initialize()
    for step in (process.next, read, process.next):
        found = step(state, [np.float32(0.1)] * 3)
        accountant.compose(event)
        expected = accountant.get_epsilon(1e-5)
        assert found["measurements"]["epsilon"] == pytest.approx(expected, rel=1e-9)
        state = found["state"]
    accountant.compose(event, 98)
    found = process.next(aggregators.charged(state, 97), [np.float32(0.1)])
    expected = accountant.get_epsilon(1e-5)
    assert found["measurements"]["epsilon"] == pytest.approx(expected, rel=1e-9)


def test_epsilon_of_nearly_nothing_is_zero() -> None:
    pytest.importorskip("dp_accounting")
    process = gaussian(1e7, 1, 1.0, delta=1e-3).create(np.float32)
    found = process.next(process.initialize(), [np.float32(0)])
    assert found["measurements"]["epsilon"] == 0


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "dp_accounting":
            raise ModuleNotFoundError("No module named 'dp_accounting'", name=name)
        return imported(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "dp_accounting", raising=False)
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ModuleNotFoundError, match=r"pip install stator\[privacy\]") as raised:
        gaussian(1.0, 10, 1.0, delta=1e-5)
    assert raised.value.name == "dp_accounting"
    gaussian(1.0, 10, 1.0, delta=None)


def model() -> learning.Model:
    torch.manual_seed(0)
    return classifier(nn.Linear(4, 3), 4)


def clients(count: int) -> list[Any]:
    drawn = np.random.default_rng(0)
    rows = [drawn.normal(size=(8, 4)).astype(np.float32) for _ in range(count)]
    return [{"inputs": inputs, "labels": inputs[:, :3].argmax(1)} for inputs in rows]


def test_private_rounds_of_training(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    factory = gaussian(0.5, 200, 0.5, delta=1e-4, population=2000)
    process = learning.build_fed_avg(model(), steps=2, model_aggregator=factory)
    rows, evaluate = clients(200), learning.build_evaluation(model())
    state = process.initialize()
    before = evaluate(state["weights"], rows[:50])["loss"]
    state, metrics = process.run(state, [rows] * 8)
    assert evaluate(state["weights"], rows[:50])["loss"] < 0.95 * before
    # What clients have isn't told.
    assert all(list(told) == ["aggregator"] for told in metrics)
    spent = [told["aggregator"]["epsilon"] for told in metrics]
    assert all(one < other for one, other in zip(spent, spent[1:], strict=False))
    learning.save_state(state, tmp_path / "state.npz")
    resumed = learning.load_state(process, tmp_path / "state.npz")
    assert resumed["aggregator"]["releases"] == 8
    for name, array in state["aggregator"]["noised_sum"].items():
        assert (resumed["aggregator"]["noised_sum"][name] == array).all()
    _, told = process.next(aggregators.charged(state), [])
    _, usual = process.next(state, [])
    assert told["aggregator"]["epsilon"] > usual["aggregator"]["epsilon"] > spent[-1]


def test_rounds_are_those_of_a_loop_but_for_the_noise() -> None:
    factory = gaussian(1e-9, 10, 0.05, delta=None)
    process = learning.build_fed_avg(model(), steps=1, model_aggregator=factory)
    start, rows = process.initialize(), clients(7)
    state, metrics = process.next(start, rows)
    assert dict(metrics) == {}
    total = np.zeros(15)
    for client in rows:
        module = model().module
        loss = F.cross_entropy(
            module(torch.from_numpy(client["inputs"])), torch.from_numpy(client["labels"])
        )
        loss.backward()
        update = 0.1 * np.concatenate(
            [
                tensor.grad.numpy().ravel()
                for tensor in module.parameters()
                if tensor.grad is not None
            ]
        )
        total += update * min(1, 0.05 / np.linalg.norm(update))
    for part in (start, state):
        part["flat"] = np.concatenate([array.ravel() for array in part["weights"].values()])
    np.testing.assert_allclose(start["flat"] - state["flat"], total / 10, rtol=1e-3, atol=1e-6)


def test_what_is_wrong_is_said() -> None:
    private = gaussian(1.0, 10, 1.0, delta=None)
    for make, error, text in (
        (lambda: gaussian(0, 10, 1.0, delta=None), ValueError, "`noise_multiplier` is to be"),
        (lambda: gaussian(1.0, 0, 1.0, delta=None), ValueError, "`clients_per_round` is to be"),
        (lambda: gaussian(1.0, 10, float("inf"), delta=None), ValueError, "`clip` is to be"),
        (lambda: gaussian(1.0, 10, 1.0, delta=1.0), ValueError, "`delta` is to be a number above"),
        (
            lambda: gaussian(1.0, 10, 1.0, delta=None, population=9),
            ValueError,
            "`population` is 9, which is less than `clients_per_round`, 10",
        ),
        (
            lambda: aggregators.zeroing_factory(1.0, private),
            TypeError,
            "<DifferentiallyPrivateFactory> is to stand outermost",
        ),
        (lambda: aggregators.MeanFactory(private), TypeError, "a factory of sums"),
        (
            lambda: learning.build_scaffold(model(), clients=3, model_aggregator=private),
            TypeError,
            "SCAFFOLD can't be private",
        ),
        (lambda: aggregators.charged({"weights": 1}), ValueError, "isn't that of a process"),
        (lambda: aggregators.charged({"releases": 1}, -1), ValueError, "`releases` is to be"),
    ):
        with pytest.raises(error, match=text):
            make()
