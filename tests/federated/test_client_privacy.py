"""DP-SGD at clients: clipped rows, noise of each client's own, and what a client has spent."""

from __future__ import annotations

import builtins
import sys
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
from stator.federated.execution import LocalContext

from .classifiers import classifier, drawn_clients


def model(module: nn.Module | None = None) -> learning.Model:
    torch.manual_seed(0)
    return classifier(module or nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), 4)


def sgd(parameters: list[Any]) -> Any:
    return torch.optim.SGD(parameters, lr=0.3)


def flat(weights: Any) -> Any:
    return np.concatenate([np.asarray(array).ravel() for array in weights.values()])


def plain_update(of: learning.Model, client: Any, clip: float, size: int, steps: int) -> Any:
    """What a client with at most `size` rows changes without noise, row by row."""
    weights = {name: tensor.detach().clone() for name, tensor in of.module.named_parameters()}
    start = flat(weights).copy()
    inputs, labels = torch.from_numpy(client["inputs"]), torch.from_numpy(client["labels"])
    for _ in range(steps):
        total = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
        for row in range(len(labels)):
            own = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
            outputs = torch.func.functional_call(of.module, own, (inputs[row : row + 1],))
            F.cross_entropy(outputs, labels[row : row + 1]).backward()
            found = {name: tensor.grad for name, tensor in own.items() if tensor.grad is not None}
            length = float(np.linalg.norm(flat(found)))
            for name, gradient in found.items():
                total[name] += gradient * min(1, clip / length)
        weights = {name: weights[name] - 0.3 * total[name] / size for name in weights}
    return start - flat(weights)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("clip", [0.4, 100.0])
def test_steps_are_those_of_a_loop_over_rows(clip: float, exact: bool) -> None:
    of = model()
    # Nobody has more rows than a batch, so that all of them are in it.
    rows = drawn_clients((6, 3, 6, 1), 0)
    process = learning.build_fed_avg(
        of,
        client_optimizer=sgd,
        steps=2,
        client_privacy=learning.DPSGD(clip=clip, noise_multiplier=1e-9, batch_size=6),
    )
    with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
        start = process.initialize()
        state, metrics = process.next(start, rows)
    updates = [plain_update(of, client, clip, 6, 2) for client in rows]
    expected = np.average(updates, axis=0, weights=[6, 3, 6, 1])
    np.testing.assert_allclose(
        flat(start["weights"]) - flat(state["weights"]), expected, rtol=1e-3, atol=2e-6
    )
    # Losses of rows aren't told.
    assert dict(metrics) == {"rows": 16}


@pytest.mark.parametrize("exact", [False, True])
def test_each_client_and_step_has_noise_of_its_own(exact: bool) -> None:
    torch.manual_seed(1)
    of = model(nn.Linear(4, 3))
    rows = drawn_clients((2,) * 40, 0)
    # With rows of zeros and wide noise there is nothing else.
    privacy = learning.DPSGD(clip=1e-3, noise_multiplier=2000.0, batch_size=4)
    process = learning.build_fed_avg(
        of,
        client_optimizer=sgd,
        steps=3,
        client_privacy=privacy,
        model_aggregator=aggregators.MeanFactory(),
    )
    moved = []
    with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
        start = process.initialize()
        for _ in range(30):
            state, _ = process.next(start, rows)
            moved.append(flat(start["weights"]) - flat(state["weights"]))
    # A step's noise is 2 / 4 times the rate; three steps, and the mean of 40 clients. 450 draws.
    expected = 0.3 * 0.5 * np.sqrt(3 / 40)
    assert np.std(moved) == pytest.approx(expected, rel=0.2)
    assert abs(np.mean(moved)) < 6 * expected / np.sqrt(450)


def test_a_seed_gives_the_same_numbers_whatever_threads_there_are(tmp_path: Path) -> None:
    privacy = learning.DPSGD(clip=1.0, noise_multiplier=1.0, batch_size=4)
    process = learning.build_fed_avg(model(), steps=2, client_privacy=privacy)
    rows = drawn_clients((9, 5, 12) * 5, 0)
    with fl.framework.get_context_stack().install(LocalContext(threads=4)):
        whole = learning.train(process, rows, rounds=4, seed=3)
        path = tmp_path / "training.npz"
        learning.train(process, rows, rounds=2, seed=3, checkpoint=path)
        resumed = learning.train(process, rows, rounds=4, checkpoint=path)
    with fl.framework.get_context_stack().install(LocalContext(threads=1)):
        alone = learning.train(process, rows, rounds=4, seed=3)
    assert (flat(whole.state["weights"]) == flat(alone.state["weights"])).all()
    assert (flat(whole.state["weights"]) == flat(resumed.state["weights"])).all()


def test_batches_are_chosen_evenly_and_without_replacement() -> None:
    torch.manual_seed(2)
    privacy = learning.DPSGD(clip=1.0, noise_multiplier=1.0, batch_size=3)
    of = model()

    def chosen(rows: Any) -> Any:
        batch, present = privacy._batch(rows)
        return batch["labels"], present

    choose = fl.local_computation(of.rows_type)(chosen)
    counts = np.zeros(10)
    for _ in range(400):
        labels, present = choose({"inputs": np.zeros((10, 4), np.float32), "labels": np.arange(10)})
        assert present.all() and len(set(labels.tolist())) == 3
        counts[labels] += 1
    # 400 draws with a probability of 0.3: six standard errors are 55.
    assert abs(counts - 120).max() < 55
    for rows in (0, 1, 3):
        labels, present = choose(
            {"inputs": np.zeros((rows, 4), np.float32), "labels": np.arange(rows)}
        )
        assert present.sum() == rows and set(labels[present].tolist()) == set(range(rows))


def test_a_row_moves_a_step_by_the_clip() -> None:
    of = model()
    privacy = learning.DPSGD(clip=0.5, noise_multiplier=1e-9, batch_size=4)
    process = learning.build_fed_avg(of, client_optimizer=sgd, client_privacy=privacy)
    usual = drawn_clients((3,), 0)[0]
    start = process.initialize()
    before = flat(process.next(start, [usual])[0]["weights"])
    for wild in (1e20, np.nan, np.inf):
        other = {**usual, "inputs": usual["inputs"].copy()}
        other["inputs"][0] = wild
        found = flat(process.next(start, [other])[0]["weights"])
        # One in the place of another: twice the bound.
        assert np.linalg.norm(found - before) <= 0.3 * 2 * 0.5 / 4 + 1e-5


def test_who_has_no_rows_changes_nothing() -> None:
    privacy = learning.DPSGD(clip=0.5, noise_multiplier=1.0, batch_size=4)
    process = learning.build_fed_avg(
        model(), client_privacy=privacy, model_aggregator=aggregators.SumFactory()
    )
    start = process.initialize()
    state, _ = process.next(start, drawn_clients((0, 0), 0))
    assert (flat(state["weights"]) == flat(start["weights"])).all()


def test_training_goes_on_though_rows_are_hidden() -> None:
    of = model()
    drawn = np.random.default_rng(0)
    rows = []
    for _ in range(10):
        inputs = drawn.normal(size=(60, 4)).astype(np.float32)
        rows.append({"inputs": inputs, "labels": inputs[:, :3].argmax(1)})
    process = learning.build_fed_avg(
        of,
        client_optimizer=sgd,
        steps=4,
        client_privacy=learning.DPSGD(clip=1.0, noise_multiplier=0.8, batch_size=16),
    )
    evaluate = learning.build_evaluation(of)
    torch.manual_seed(3)
    state = process.initialize()
    before = evaluate(state["weights"], rows)["loss"]
    state, _ = process.run(state, [rows] * 10)
    assert evaluate(state["weights"], rows)["loss"] < 0.8 * before


def test_both_kinds_of_privacy_go_together() -> None:
    factory = aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(1.0, 5, delta=None)
    privacy = learning.DPSGD(clip=0.5, noise_multiplier=1.0, batch_size=4)
    process = learning.build_fed_avg(
        model(), client_privacy=privacy, model_aggregator=factory, steps=2
    )
    state, metrics = process.next(process.initialize(), drawn_clients((5, 9), 0))
    assert list(metrics) == ["aggregator"] and list(metrics["aggregator"]) == ["clip"]
    assert state["aggregator"]["releases"] == 1 and np.isfinite(flat(state["weights"])).all()


def test_epsilon_of_a_client_is_that_of_the_package() -> None:
    accounting = pytest.importorskip("dp_accounting")
    privacy = learning.DPSGD(clip=1.0, noise_multiplier=2.4, batch_size=16)
    replaced = accounting.NeighboringRelation.REPLACE_ONE
    for rows, steps in ((500, 30), (17, 4), (16, 3), (5, 3)):
        # One row in the place of another one moves a sum by twice the bound.
        event = accounting.GaussianDpEvent(1.2)
        if rows > 16:
            event = accounting.SampledWithoutReplacementDpEvent(rows, 16, event)
        accountant = accounting.rdp.RdpAccountant(neighboring_relation=replaced)
        accountant.compose(accounting.SelfComposedDpEvent(event, steps))
        found = privacy.epsilon(rows=rows, steps=steps, delta=1e-5)
        assert found == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-9)
    assert privacy.epsilon(rows=0, steps=3, delta=1e-5) == 0
    assert privacy.epsilon(rows=3, steps=0, delta=1e-5) == 0


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "dp_accounting":
            raise ModuleNotFoundError("No module named 'dp_accounting'", name=name)
        return imported(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "dp_accounting", raising=False)
    monkeypatch.setattr(builtins, "__import__", missing)
    privacy = learning.DPSGD(clip=1.0, noise_multiplier=1.0, batch_size=8)
    with pytest.raises(ModuleNotFoundError, match=r"pip install stator\[privacy\]"):
        privacy.epsilon(rows=10, steps=1, delta=1e-5)


def test_what_is_wrong_is_said() -> None:
    usual: dict[str, Any] = {"clip": 1.0, "noise_multiplier": 1.0, "batch_size": 8}
    for name, value in (("clip", 0), ("noise_multiplier", -1.0), ("batch_size", 0.5)):
        with pytest.raises(ValueError, match=f"`{name}` is to be"):
            learning.DPSGD(**{**usual, name: value})
    privacy = learning.DPSGD(**usual)
    asked: dict[str, Any] = {"rows": 10, "steps": 1, "delta": 1e-5}
    for name, value in (("rows", -1), ("steps", 1.5), ("delta", 1.0)):
        with pytest.raises(ValueError, match=f"`{name}` is to be"):
            privacy.epsilon(**{**asked, name: value})
    wrong: Any = {"clip": 1.0}
    with pytest.raises(TypeError, match=r"`client_privacy` is to be a learning\.DPSGD or None"):
        learning.build_fed_avg(model(), client_privacy=wrong)
