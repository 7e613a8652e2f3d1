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
from stator.federated.learning import _private_steps

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
                total[name] += gradient * min(1, clip / max(length, 1e-30))
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


def private(make: Any, steps: int, batch_size: int = 4, of: Any = None) -> Any:
    privacy = learning.DPSGD(clip=1.0, noise_multiplier=1.0, batch_size=batch_size)
    return learning.build_fed_avg(
        of or model(), client_optimizer=make, steps=steps, client_privacy=privacy
    )


OPTIMIZERS = {
    "sgd": sgd,
    "momentum": lambda of: torch.optim.SGD(of, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda of: torch.optim.Adam(of, lr=0.05, amsgrad=True),
    "rmsprop": lambda of: torch.optim.RMSprop(of, lr=0.05, momentum=0.5, centered=True),
    # The number of steps is read by Python: the steps stay one program.
    "adagrad": lambda of: torch.optim.Adagrad(of, lr=0.05),
}


@pytest.mark.parametrize(
    ("name", "steps"),
    [("sgd", 6), ("momentum", 3), ("adam", 4), ("rmsprop", 2), ("adagrad", 3)],
)
def test_steps_by_one_program_are_those_of_a_program_of_all(
    name: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> Any:
        process = private(OPTIMIZERS[name], steps)
        torch.manual_seed(5)
        return process.run(process.initialize(), [drawn_clients((6, 0, 9), 0)] * 2)[0]

    found = run()

    def cannot(*_: Any) -> None:
        raise _private_steps._NotApartError("the test says so")

    monkeypatch.setattr(_private_steps, "_composed", cannot)
    np.testing.assert_allclose(flat(found["weights"]), flat(run()["weights"]), rtol=1e-3, atol=1e-5)


def test_size_does_not_grow_with_the_batch_and_hardly_with_steps() -> None:
    def size(steps: int, batch_size: int) -> int:
        return len(private(sgd, steps, batch_size).next.to_bytes())

    few, many = size(5, 4), size(5, 64)
    assert abs(many - few) < 500
    # 4 and 64 times the later program.
    assert size(65, 4) - few < 6000


def test_an_optimizer_that_remembers_more_takes_all_steps_in_one_program() -> None:
    class Growing(torch.optim.SGD):
        taken = 0

        def step(self, closure: Any = None) -> Any:
            self.taken += 1
            for group in self.param_groups:
                group["lr"] = 0.1 * self.taken
            return super().step()

    Growing.__module__ = __name__
    of = model()
    rows = drawn_clients((3,), 0)
    privacy = learning.DPSGD(clip=100.0, noise_multiplier=1e-9, batch_size=3)
    process = learning.build_fed_avg(
        of, client_optimizer=lambda of: Growing(of, lr=0.1), steps=3, client_privacy=privacy
    )
    state, _ = process.next(process.initialize(), rows)
    weights = {name: each.detach().clone() for name, each in of.module.named_parameters()}
    inputs, labels = (torch.from_numpy(rows[0][name]) for name in ("inputs", "labels"))
    for step in (1, 2, 3):
        leaves = {name: each.clone().requires_grad_() for name, each in weights.items()}
        outputs = torch.func.functional_call(of.module, leaves, (inputs,))
        found = torch.autograd.grad(F.cross_entropy(outputs, labels), list(leaves.values()))
        weights = {
            name: each - 0.1 * step * gradient
            for (name, each), gradient in zip(weights.items(), found, strict=True)
        }
    np.testing.assert_allclose(flat(state["weights"]), flat(weights), rtol=1e-3, atol=1e-6)


class Recurrent(nn.Module):
    def __init__(self, kind: Any, batch_first: bool = True, **settings: Any) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.layer = kind(2, 3, batch_first=batch_first, **settings)
        self.batch_first = batch_first

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        rows = rows.reshape(-1, 2, 2)
        outputs = self.layer(rows if self.batch_first else rows.transpose(0, 1))[0]
        return (outputs[:, -1] if self.batch_first else outputs[-1])[:, :3]


class Words(nn.Module):
    """The row of the table that stands for padding gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3, padding_idx=2)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.table((rows.abs() * 3).to(torch.int64).clamp(max=4)).mean(1)


@pytest.mark.parametrize(
    "module",
    [
        Words(),
        nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 3)),
        nn.Sequential(
            nn.Unflatten(1, (1, 2, 2)),
            nn.Conv2d(1, 4, 2),
            nn.GroupNorm(2, 4),
            nn.Flatten(1),
            nn.Linear(4, 3),
        ),
        # `torch.vmap` doesn't know PyTorch's own: their steps are written out.
        Recurrent(nn.GRU),
        Recurrent(nn.RNN, nonlinearity="relu", bias=False),
        Recurrent(nn.LSTM, num_layers=2, bidirectional=True),
        Recurrent(nn.LSTM, batch_first=False),
        # One row after the other: it has more steps than are written out.
        Recurrent(nn.RNN, num_layers=20),
    ],
)
def test_gradients_of_other_modules_are_those_of_single_rows(module: nn.Module) -> None:
    of = model(module)
    rows = drawn_clients((6, 3, 6, 1), 0)
    privacy = learning.DPSGD(clip=0.3, noise_multiplier=1e-9, batch_size=6)
    process = learning.build_fed_avg(of, client_optimizer=sgd, steps=2, client_privacy=privacy)
    start = process.initialize()
    state, _ = process.next(start, rows)
    updates = [plain_update(of, client, 0.3, 6, 2) for client in rows]
    expected = np.average(updates, axis=0, weights=[6, 3, 6, 1])
    np.testing.assert_allclose(
        flat(start["weights"]) - flat(state["weights"]), expected, rtol=2e-3, atol=5e-6
    )


def test_rows_drop_what_each_draws() -> None:
    # Each row keeps half of the inputs, by chance of its own: rows of ones differ.
    of = model(nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3)))
    total = learning.DPSGD(clip=9.0, noise_multiplier=1.0, batch_size=8)._total(of)

    def summed(weights: Any, rows: Any) -> Any:
        return total(weights, rows, torch.ones(8, dtype=torch.bool))["1.weight"]

    eight = {"inputs": fl.TensorType(np.float32, [8, 4]), "labels": fl.TensorType(np.int64, [8])}
    program = fl.local_computation(of.weights_type, eight)(summed)
    rows = {"inputs": np.ones((8, 4), np.float32), "labels": np.zeros(8, np.int64)}
    found = program(of.weights(), rows)
    # Columns of the gradient have as many terms as rows have kept that input.
    assert len({tuple(column) for column in found.T.tolist()}) > 1


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
