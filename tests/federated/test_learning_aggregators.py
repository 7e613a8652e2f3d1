"""Processes with aggregators: rounds are those of plain loops, and whose client is wrong is said."""

from __future__ import annotations

import pickle
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
from stator.federated import aggregators, learning

from .classifiers import classifier, drawn_clients

SIZES = (5, 9, 20, 7, 6, 8, 11)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def model(module: nn.Module | None = None) -> learning.Model:
    return classifier(module or network(), 4)


def clients(sizes: tuple[int, ...] = SIZES, seed: int = 0) -> list[Any]:
    return drawn_clients(sizes, seed)


def sgd(parameters: list[Any]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.5)


def updates(module: nn.Module, rows: list[Any], steps: int) -> Any:
    """What each client's weights are reduced by, as rows of numbers."""
    found = []
    for client in rows:
        own = network()
        own.load_state_dict(module.state_dict())
        optimizer = sgd(list(own.parameters()))
        for _ in range(steps):
            optimizer.zero_grad()
            outputs = own(torch.from_numpy(client["inputs"]))
            F.cross_entropy(outputs, torch.from_numpy(client["labels"])).backward()
            optimizer.step()
        found.append((vector(module) - vector(own)).numpy())
    return np.stack(found).astype(np.float64)


def vector(module: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(module.parameters()).detach()


def clipped(rows: Any, bound: float) -> Any:
    return rows * np.minimum(1, bound / np.linalg.norm(rows, axis=1, keepdims=True))


CASES: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "mean": (aggregators.MeanFactory(), lambda u: np.average(u, 0, SIZES)),
    "unweighted": (aggregators.UnweightedMeanFactory(), lambda u: u.mean(0)),
    "median": (aggregators.MedianFactory(), lambda u: np.median(u, 0)),
    "trimmed": (aggregators.TrimmedMeanFactory(0.3), lambda u: np.sort(u, 0)[2:5].mean(0)),
    "clipped": (
        aggregators.clipping_factory(0.5, aggregators.MeanFactory()),
        lambda u: np.average(clipped(u, 0.5), 0, SIZES),
    ),
    "clipped median": (
        aggregators.clipping_factory(0.5, aggregators.MedianFactory()),
        lambda u: np.median(clipped(u, 0.5), 0),
    ),
    "integers": (
        aggregators.MeanFactory(aggregators.DeterministicDiscretizationFactory(2.0**-12)),
        lambda u: np.round(u * np.array(SIZES)[:, None] * 2**12).sum(0) / 2**12 / sum(SIZES),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_rounds_are_those_of_a_loop(case: str) -> None:
    factory, aggregate = CASES[case]
    module = network()
    process = learning.build_fed_avg(
        model(module), client_optimizer=sgd, steps=3, model_aggregator=factory
    )
    state = process.initialize()
    for seed in range(2):
        update = aggregate(updates(module, clients(seed=seed), 3))
        state, metrics = process.next(state, clients(seed=seed))
        after = vector(module) - torch.from_numpy(update).float()
        nn.utils.vector_to_parameters(after, module.parameters())
        found = np.concatenate([state["weights"][name].ravel() for name in state["weights"]])
        # A number near the middle of two steps may be rounded to the other one.
        atol = 1e-5 if case == "integers" else 2e-6
        np.testing.assert_allclose(found, after, rtol=1e-4, atol=atol)
        assert ("aggregator" in metrics) == ("clipped" in case)


def test_every_process_takes_an_aggregator(tmp_path: Path) -> None:
    factory = aggregators.clipping_factory(
        aggregators.QuantileEstimation(0.1), aggregators.MeanFactory()
    )
    common = {"client_optimizer": sgd, "model_aggregator": factory}
    for process in (
        learning.build_fed_avg(model(), **common),
        learning.build_fed_prox(model(), proximal_strength=0.1, **common),
        learning.build_fed_sgd(model(), model_aggregator=factory),
        learning.build_fed_adam(model(), **common),
        learning.build_fed_yogi(model(), **common),
        learning.build_fed_adagrad(model(), **common),
    ):
        read = fl.framework.ConcreteComputation.from_bytes(process.next.to_bytes())
        state, metrics = process.run(process.initialize(), [clients()] * 3)
        assert state["aggregator"]["estimate"] > np.float32(0.1)
        assert (
            metrics[-1]["aggregator"]["clipping_norm"] > metrics[0]["aggregator"]["clipping_norm"]
        )
        learning.save_state(state, tmp_path / "state.npz")
        resumed = learning.load_state(process, tmp_path / "state.npz")
        expected, _ = process.next(state, clients())
        for found in (process.next(resumed, clients())[0], read(resumed, clients())[0]):
            assert found["aggregator"]["estimate"] == expected["aggregator"]["estimate"]
            for name, weights in expected["weights"].items():
                assert (found["weights"][name] == weights).all()


def test_a_round_is_part_of_other_computations() -> None:
    process = learning.build_fed_avg(model(), client_optimizer=sgd)
    of = process.next.type_signature.parameter

    @fl.federated_computation(of["state"], of["rows"])
    def twice(state: Any, rows: Any) -> Any:
        once = process.next(state, rows)
        return process.next(once[0], rows)[0]

    state, _ = process.run(process.initialize(), [clients()] * 2)
    found = twice(process.initialize(), clients())
    for name, weights in state["weights"].items():
        np.testing.assert_allclose(found["weights"][name], weights, rtol=1e-5)


def test_processes_are_pickled() -> None:
    factory = aggregators.clipping_factory(0.5, aggregators.MedianFactory())
    process = learning.build_fed_avg(model(), model_aggregator=factory)
    again = pickle.loads(pickle.dumps(process))
    assert isinstance(again.next, fl.Computation) and again.next == process.next
    state = process.initialize()
    expected, _ = process.next(state, clients())
    found, _ = again.next(rows=clients(), state=state)
    for name, weights in expected["weights"].items():
        assert (found["weights"][name] == weights).all()
    kept(again, clients((5, 6, 0)), "client 2 has no rows", 2)


def kept(process: Any, rows: Any, text: str, client: int | None) -> None:
    """A round raises, and says why; its state is as it was."""
    state = process.initialize()
    before = OrderedDict((name, array.copy()) for name, array in state["weights"].items())
    with pytest.raises(learning.ClientError, match=text) as raised:
        process.next(state, rows)
    assert raised.value.client == client
    with pytest.raises(learning.ClientError, match=text):
        process.run(state, [rows])
    assert all((state["weights"][name] == before[name]).all() for name in before)
    process.next(state, clients())


def test_a_client_whose_rows_are_not_finite_is_named() -> None:
    for bad in (np.nan, np.inf):
        rows = clients()
        rows[3]["inputs"][2, 1] = bad
        kept(learning.build_fed_avg(model()), rows, "client 3: its `inputs` hold NaN", 3)
        tuples = [(client["inputs"], client["labels"]) for client in rows]
        kept(learning.build_fed_avg(model()), tuples, "client 3: its `inputs` hold NaN", 3)


def test_a_client_that_diverges_is_named() -> None:
    rows = clients()
    rows[4]["inputs"] *= 1e30
    process = learning.build_fed_avg(model(nn.Linear(4, 3)), client_optimizer=sgd, steps=8)
    kept(process, rows, "client 4: what it sends isn't finite, though its rows are", 4)


def test_robust_aggregators_go_on_without_it() -> None:
    rows = clients()
    rows[3]["inputs"][:] = np.nan
    without = [client for client in rows if client is not rows[3]]
    zeroing = aggregators.zeroing_factory(1e6, aggregators.SumFactory())
    for factory in (aggregators.MedianFactory(), aggregators.KrumFactory(1), zeroing):
        process = learning.build_fed_avg(model(), steps=2, model_aggregator=factory)
        state, _ = process.next(process.initialize(), rows)
        assert all(np.isfinite(array).all() for array in state["weights"].values())
    expected, _ = process.next(process.initialize(), without)
    for name, weights in expected["weights"].items():
        np.testing.assert_allclose(state["weights"][name], weights, rtol=1e-5)


def test_rounds_without_rows_or_clients() -> None:
    plain = learning.build_fed_avg(model())
    kept(plain, [], "the round has no clients", None)
    kept(plain, clients((0, 0)), "no client of the round has rows", None)
    median = learning.build_fed_avg(model(), model_aggregator=aggregators.MedianFactory())
    kept(median, clients((5, 6, 0)), "client 2 has no rows, and MedianFactory counts each", 2)
    krum = learning.build_fed_avg(model(), model_aggregator=aggregators.KrumFactory(1))
    kept(krum, clients((5, 6, 7)), "has 3 clients, where KrumFactory needs at least 5", None)


def test_a_state_that_is_not_finite() -> None:
    process = learning.build_fed_avg(model())
    state = process.initialize()
    state["weights"]["0.bias"][:] = np.nan
    with pytest.raises(learning.ClientError, match="the state's weights aren't finite"):
        process.next(state, clients())


def test_a_server_that_diverges() -> None:
    def step(moments: Any, weights: Any, update: Any) -> Any:
        return moments, {name: tensor * float("inf") for name, tensor in weights.items()}

    diverging = learning.ServerOptimizer(lambda weights: OrderedDict(), step)
    process = learning.build_fed_avg(model(), server_optimizer=diverging)
    kept_text = "the server's step gives weights that aren't finite"
    with pytest.raises(learning.ClientError, match=kept_text) as raised:
        process.next(process.initialize(), clients())
    assert raised.value.client is None


def test_what_is_no_aggregator() -> None:
    for wrong in ("median", aggregators.MedianFactory, np.mean):
        with pytest.raises(TypeError, match="`model_aggregator` is to be an AggregationFactory"):
            learning.build_fed_avg(model(), model_aggregator=wrong)  # type: ignore[arg-type]
