"""Models whose weights have 16 bits: sums have more, and are rounded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("ml_dtypes")

import ml_dtypes
import torch
from torch import nn
from torch.nn import functional as F

import stator.federated as fl
from stator.federated import aggregators, learning
from stator.federated.execution import LocalContext

HALVES = {torch.float16: np.float16, torch.bfloat16: ml_dtypes.bfloat16}
SIZES = (7, 4, 12)
RATE = 0.25


def a_model(dtype: torch.dtype) -> learning.Model:
    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)).to(dtype)
    return learning.Model(
        module,
        F.cross_entropy,
        inputs=fl.TensorType(HALVES[dtype], [None, 3]),
        labels=fl.TensorType(np.int64, [None]),
    )


def some_clients(dtype: torch.dtype) -> list[Any]:
    drawn = np.random.default_rng(5)
    made = []
    for number, size in enumerate(SIZES):
        inputs = drawn.normal(size=(size, 3)).astype(np.float32)
        labels = (inputs[:, 0] > inputs[:, 2]).astype(np.int64)
        made.append({"inputs": inputs.astype(HALVES[dtype]), "labels": labels, "client": number})
    return made


def without_numbers(rows: list[Any]) -> list[Any]:
    return [{name: of[name] for name in ("inputs", "labels")} for of in rows]


def as_torch(array: Any) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(array)


def trained(weights: Any, module: nn.Module, client: Any, steps: int, mu: float = 0.0) -> Any:
    """A client's weights after its steps, in a loop of PyTorch's."""
    own = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
    optimizer = torch.optim.SGD(list(own.values()), lr=RATE)
    for _ in range(steps):
        optimizer.zero_grad()
        outputs = torch.func.functional_call(module, own, (as_torch(client["inputs"]),))
        loss: Any = F.cross_entropy(outputs, torch.from_numpy(client["labels"]))
        away = [(own[name].float() - weights[name].float()).pow(2).sum() for name in own]
        (loss + mu / 2 * sum(away) if mu else loss).backward()
        optimizer.step()
    return {name: tensor.detach() for name, tensor in own.items()}


def mean_update(weights: Any, module: nn.Module, rows: list[Any], steps: int, mu: float) -> Any:
    """In 64 bits, which are rounded to 32."""
    total = {name: torch.zeros(of.shape, dtype=torch.float64) for name, of in weights.items()}
    for client in rows:
        made = trained(weights, module, client, steps, mu)
        for name in total:
            total[name] += len(client["labels"]) * (weights[name].double() - made[name].double())
    return {name: (of / sum(SIZES)).float() for name, of in total.items()}


def first_weights(of: learning.Model) -> Any:
    return {name: tensor.detach().clone() for name, tensor in of.parameters().items()}


def same(state: Any, expected: Any, dtype: torch.dtype) -> None:
    assert list(state["weights"]) == list(expected)
    for name, found in state["weights"].items():
        assert found.dtype == HALVES[dtype]
        np.testing.assert_array_equal(
            found.astype(np.float32), expected[name].to(torch.float32).numpy(), err_msg=name
        )


def as_client(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=RATE)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("mu", [0.0, 0.3])
def test_rounds_are_those_of_a_plain_loop(dtype: torch.dtype, mu: float) -> None:
    of, rows = a_model(dtype), some_clients(dtype)
    if mu:
        process = learning.build_fed_prox(
            of, proximal_strength=mu, client_optimizer=as_client, steps=2
        )
    else:
        process = learning.build_fed_avg(of, client_optimizer=as_client, steps=2)
    weights = first_weights(of)
    with fl.framework.get_context_stack().install(LocalContext(exact=True)):
        state = process.initialize()
        for _ in range(3):
            state, _ = process.next(state, without_numbers(rows))
            mean = mean_update(weights, of.module, rows, 2, mu)
            weights = {
                name: (tensor.float() - mean[name]).to(dtype) for name, tensor in weights.items()
            }
            same(state, weights, dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_gradients_smaller_than_a_digit_of_the_weights_count(dtype: torch.dtype) -> None:
    of, rows = a_model(dtype), some_clients(dtype)
    process = learning.build_fed_sgd(of, server_optimizer=learning.sgd(1.0))
    state = process.initialize()
    weights = first_weights(of)
    total = {name: torch.zeros(each.shape, dtype=torch.float64) for name, each in weights.items()}
    for client in rows:
        own = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
        outputs = torch.func.functional_call(of.module, own, (as_torch(client["inputs"]),))
        loss: Any = F.cross_entropy(outputs, torch.from_numpy(client["labels"]))
        loss.backward()
        for name, tensor in own.items():
            assert tensor.grad is not None
            # As it is done in 32 bits: to the weight, and back.
            moved = weights[name].float() - tensor.grad.float()
            total[name] += len(client["labels"]) * (weights[name].float() - moved).double()
    with fl.framework.get_context_stack().install(LocalContext(exact=True)):
        state, _ = process.next(state, without_numbers(rows))
    expected = {
        name: (tensor.float() - (total[name] / sum(SIZES)).float()).to(dtype)
        for name, tensor in weights.items()
    }
    same(state, expected, dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_adam_at_the_server_remembers_32_bits(dtype: torch.dtype) -> None:
    of, rows = a_model(dtype), some_clients(dtype)
    process = learning.build_fed_adam(of, client_optimizer=as_client, learning_rate=0.05)
    weights = first_weights(of)
    first = {name: torch.zeros(each.shape) for name, each in weights.items()}
    second = {name: torch.full(each.shape, 1e-3**2) for name, each in weights.items()}
    with fl.framework.get_context_stack().install(LocalContext(exact=True)):
        state = process.initialize()
        for _ in range(3):
            state, _ = process.next(state, without_numbers(rows))
            mean = mean_update(weights, of.module, rows, 1, 0.0)
            for name in weights:
                first[name] = 0.9 * first[name] + (1 - 0.9) * mean[name]
                second[name] = 0.99 * second[name] + (1 - 0.99) * mean[name] ** 2
                step = 0.05 * first[name] / (torch.sqrt(second[name]) + 1e-3)
                weights[name] = (weights[name].float() - step).to(dtype)
            same(state, weights, dtype)
    assert {each.dtype for each in state["optimizer"].values()} == {np.dtype(np.float32)}


AGGREGATORS: dict[str, Any] = {
    "median": lambda: aggregators.MedianFactory(),
    "trimmed": lambda: aggregators.TrimmedMeanFactory(0.34),
    "krum": lambda: aggregators.KrumFactory(0),
    "clipped": lambda: aggregators.clipping_factory(0.5, aggregators.MeanFactory()),
    "integers": lambda: aggregators.MeanFactory(
        aggregators.DeterministicDiscretizationFactory(2.0**-12)
    ),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", AGGREGATORS)
def test_aggregators_have_32_bits(dtype: torch.dtype, name: str) -> None:
    of, rows = a_model(dtype), some_clients(dtype)
    process = learning.build_fed_avg(
        of, client_optimizer=as_client, model_aggregator=AGGREGATORS[name]()
    )
    # The same with what clients send in 32 bits.
    inner = AGGREGATORS[name]()
    alone = inner.create(of.update_type, np.float32 if inner.is_weighted else None)
    weights = first_weights(of)
    updates = []
    for client in rows:
        made = trained(weights, of.module, client, 1)
        updates.append(
            {each: (weights[each].float() - made[each].float()).numpy() for each in weights}
        )
    counts = ([float(size) for size in SIZES],) if inner.is_weighted else ()
    with fl.framework.get_context_stack().install(LocalContext(exact=True)):
        found, _ = process.next(process.initialize(), without_numbers(rows))
        result = alone.next(alone.initialize(), updates, *counts)["result"]
    expected = {
        each: (weights[each].float() - torch.from_numpy(result[each])).to(dtype) for each in weights
    }
    same(found, expected, dtype)


ALONE = {
    **AGGREGATORS,
    "sum": lambda: aggregators.SumFactory(),
    "unweighted": lambda: aggregators.UnweightedMeanFactory(),
    "zeroed": lambda: aggregators.zeroing_factory(1.5, aggregators.SumFactory()),
    "at random": lambda: aggregators.StochasticDiscretizationFactory(
        0.25, aggregators.SumFactory()
    ),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ALONE)
def test_aggregators_alone_take_and_give_16_bits(dtype: torch.dtype, name: str) -> None:
    # Multiples of a quarter, so that integers have them too.
    values = [np.array([[0.25, 1.0], [-0.5, 0.75]]) * factor for factor in (1, 2, 5)]

    def result(of: Any) -> Any:
        factory = ALONE[name]()
        weights = np.float32 if factory.is_weighted else None
        process = factory.create(fl.to_type([("w", (of, (2, 2)))]), weights)
        given = [{"w": value.astype(of)} for value in values]
        counts = ([2.0, 1.0, 4.0],) if factory.is_weighted else ()
        return process.next(process.initialize(), given, *counts)["result"]["w"]

    found, wide = result(HALVES[dtype]), result(np.float32)
    assert found.dtype == HALVES[dtype]
    # One rounding more than with 32 bits, or two where what is summed has been scaled.
    near = 2 * float(ml_dtypes.finfo(HALVES[dtype]).eps)
    np.testing.assert_allclose(found.astype(np.float32), wide, rtol=near)


@pytest.mark.parametrize("dtype", HALVES)
def test_scaffold_and_private_steps_learn(dtype: torch.dtype) -> None:
    of, rows = a_model(dtype), some_clients(dtype)
    scaffold = learning.build_scaffold(of, clients=3, client_learning_rate=0.5, steps=3)
    state, told = scaffold.run(scaffold.initialize(), [rows] * 8)
    assert told[-1]["loss"] < told[0]["loss"]
    assert {each.dtype for each in state["controls"].values()} == {np.dtype(np.float32)}
    privacy = learning.DPSGD(clip=1.0, noise_multiplier=1e-6, batch_size=12)
    hidden = learning.build_fed_avg(of, steps=2, client_privacy=privacy)
    state, _ = hidden.run(hidden.initialize(), [without_numbers(rows)] * 4)
    measure = learning.build_evaluation(of)
    before = measure(of.weights(), without_numbers(rows))["loss"]
    assert measure(state["weights"], without_numbers(rows))["loss"] < before


@pytest.mark.parametrize("dtype", HALVES)
def test_states_are_kept_in_files_and_given_to_modules(dtype: torch.dtype, tmp_path: Path) -> None:
    of, rows = a_model(dtype), without_numbers(some_clients(dtype))
    process = learning.build_fed_avg(of)
    state, _ = process.next(process.initialize(), rows)
    learning.save_state(state, tmp_path / "state.npz")
    again = learning.load_state(process, tmp_path / "state.npz")
    following, _ = process.next(again, rows)
    expected, _ = process.next(state, rows)
    of.assign(following["weights"])
    for name, tensor in of.parameters().items():
        assert tensor.dtype == dtype
        np.testing.assert_array_equal(
            tensor.detach().float().numpy(), expected["weights"][name].astype(np.float32)
        )


@pytest.mark.parametrize("dtype", HALVES)
def test_weights_that_are_not_finite_are_found(dtype: torch.dtype) -> None:
    of, rows = a_model(dtype), without_numbers(some_clients(dtype))
    rows[1]["inputs"][2, 0] = np.nan
    process = learning.build_fed_avg(of)
    with pytest.raises(learning.ClientError, match="client 1: its `inputs` hold NaN"):
        process.next(process.initialize(), rows)


class Phases(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.randn(3, 2, dtype=torch.complex64))

    def forward(self, inputs: Any) -> Any:
        return (inputs.to(torch.complex64) @ self.turn).abs()


def of_phases() -> learning.Model:
    torch.manual_seed(4)
    return learning.Model(
        Phases(),
        F.cross_entropy,
        inputs=fl.TensorType(np.float32, [None, 3]),
        labels=fl.TensorType(np.int64, [None]),
    )


def test_complex_weights_are_averaged() -> None:
    of = of_phases()
    rows = without_numbers(some_clients(torch.float16))
    rows = [{**each, "inputs": each["inputs"].astype(np.float32)} for each in rows]
    process = learning.build_fed_avg(of, client_optimizer=as_client, steps=2)
    state, _ = process.next(process.initialize(), rows)
    total = torch.zeros(3, 2, dtype=torch.complex128)
    for client in rows:
        own = first_weights(of)["turn"].requires_grad_()
        optimizer = as_client([own])
        for _ in range(2):
            optimizer.zero_grad()
            outputs = torch.func.functional_call(
                of.module, {"turn": own}, (torch.from_numpy(client["inputs"]),)
            )
            loss: Any = F.cross_entropy(outputs, torch.from_numpy(client["labels"]))
            loss.backward()
            optimizer.step()
        total += len(client["labels"]) * own.detach()
    np.testing.assert_allclose(state["weights"]["turn"], total / sum(SIZES), rtol=1e-5)


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda of: learning.build_fed_prox(of, proximal_strength=0.1), "FedProx"),
        (learning.build_fed_adam, "an optimizer that divides by squares"),
        (learning.build_fed_yogi, "an optimizer that divides by squares"),
        (learning.build_fed_adagrad, "an optimizer that divides by squares"),
        (
            lambda of: learning.build_fed_avg(
                of, client_privacy=learning.DPSGD(clip=1.0, noise_multiplier=1.0, batch_size=2)
            ),
            "DP-SGD",
        ),
    ],
)
def test_complex_weights_have_no_squares(build: Any, what: str) -> None:
    with pytest.raises(TypeError, match=f"^{what} is for real weights: `turn` is complex64"):
        build(of_phases())
