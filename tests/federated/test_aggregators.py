"""Aggregators: each gives what NumPy gives, composed ones too, also when sent as bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import stator.federated as fl
from stator.federated import aggregators, learning
from stator.federated.execution import LocalContext

from .classifiers import classifier

VALUE = OrderedDict(
    a=fl.TensorType(np.float32, [2, 3]),
    b=[fl.TensorType(np.float32), fl.TensorType(np.float64, [4])],
)
WEIGHTS = [1.0, 3.0, 0.5, 2.0, 7.0, 0.25, 1.5]


def drawn(clients: int = 7, seed: int = 0) -> Any:
    """The clients' numbers, as rows."""
    return np.random.default_rng(seed).normal(size=(clients, 11)).astype(np.float32)


def values(rows: Any) -> list[Any]:
    return [{"a": row[:6].reshape(2, 3), "b": [row[6], row[7:].astype(np.float64)]} for row in rows]


def flat(value: Any) -> Any:
    number, vector = value["b"]
    return np.concatenate([value["a"].ravel(), [number], vector])


class Run:
    """Rounds of a process, each run three times: as built, as read from bytes, one by one."""

    def __init__(self, factory: Any, value_type: Any = VALUE) -> None:
        weight = np.float32 if factory.is_weighted else None
        self.process = factory.create(value_type, weight)
        assert self.process.is_weighted == factory.is_weighted
        data = self.process.next.to_bytes()
        self._read = fl.framework.ConcreteComputation.from_bytes(data)
        self.state = self.process.initialize()

    def __call__(self, rows: Any, weights: Any = None) -> tuple[Any, Any]:
        given = [values(rows)]
        if self.process.is_weighted:
            given.append(np.float32(WEIGHTS[: len(rows)] if weights is None else weights).tolist())
        found = self.process.next(self.state, *given)
        with fl.framework.get_context_stack().install(LocalContext(exact=True)):
            for again in (self._read(self.state, *given), self.process.next(self.state, *given)):
                np.testing.assert_allclose(flat(again["result"]), flat(found["result"]), rtol=1e-5)
        self.state = found["state"]
        return flat(found["result"]), found["measurements"]


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_sums_and_means() -> None:
    rows = drawn()
    close(Run(aggregators.SumFactory())(rows)[0], rows.sum(0))
    close(Run(aggregators.UnweightedMeanFactory())(rows)[0], rows.mean(0))
    close(Run(aggregators.MeanFactory())(rows)[0], np.average(rows, 0, WEIGHTS))


def test_means_of_sums_of_other_factories() -> None:
    rows, coarse = drawn(), aggregators.DeterministicDiscretizationFactory(0.25)
    found, _ = Run(aggregators.UnweightedMeanFactory(coarse))(rows)
    close(found, (np.round(rows.astype(np.float64) / 0.25) * 0.25).mean(0))
    found, _ = Run(aggregators.MeanFactory(coarse))(rows)
    weighted = rows * np.float32(WEIGHTS)[:, None]
    expected = np.round(weighted.astype(np.float64) / 0.25).sum(0) * 0.25 / sum(WEIGHTS)
    close(found, expected)
    clipped = aggregators.clipping_factory(1.0, aggregators.SumFactory())
    found, measured = Run(aggregators.MeanFactory(clipped))(rows)
    norms = np.linalg.norm(weighted, axis=1, keepdims=True)
    close(found, (weighted * np.minimum(1, 1 / norms)).sum(0) / sum(WEIGHTS))
    assert measured["clipped"] == (norms > 1).sum()


def test_numbers_of_16_bits_are_divided_by_what_these_cant_hold() -> None:
    row = fl.TensorType(np.float16, [2])
    value = np.array([0.001, 0.002], np.float16)
    discrete = aggregators.DeterministicDiscretizationFactory(0.001)
    weighted = aggregators.MeanFactory(discrete).create(row, fl.TensorType(np.float32, []))
    found = weighted.next(weighted.initialize(), [value] * 2, [np.float32(70_000)] * 2)
    assert np.array_equal(found["result"], value)
    trimmed = aggregators.TrimmedMeanFactory(0.1).create(row)
    found = trimmed.next(trimmed.initialize(), [np.array([60_000, 1], np.float16)] * 10)
    assert np.array_equal(found["result"], np.array([60_000, 1], np.float16))


def test_integers_are_summed() -> None:
    process = aggregators.SumFactory().create(fl.TensorType(np.int32, [2]))
    found = process.next(process.initialize(), [np.int32([1, 2]), np.int32([3, 4])])
    assert found["result"].tolist() == [4, 6] and found["result"].dtype == np.int32


def test_secure_sums_are_sums_that_are_marked() -> None:
    process = aggregators.SecureSumFactory(5).create(
        OrderedDict(a=fl.TensorType(np.int32, [2]), b=fl.TensorType(np.int64))
    )
    clients = [{"a": np.int32([5, -5]), "b": 1}, {"a": np.int32([1, 2]), "b": -4}]
    found = process.next(process.initialize(), clients)["result"]
    assert found["a"].tolist() == [6, -3] and found["a"].dtype == np.int32 and found["b"] == -3
    contains = fl.framework.computation_contains_secure_aggregation
    assert contains(process.next)
    assert not contains(aggregators.SumFactory().create(np.int32).next)
    clients[1]["a"] = np.int32([1, -6])
    with pytest.raises(ValueError, match="out of the range of a secure sum\n  client:   1"):
        process.next(process.initialize(), clients)


@pytest.mark.parametrize("weighted", [False, True])
def test_means_of_floats_are_summed_as_secure_integers(weighted: bool) -> None:
    rows, step = drawn(), 2.0**-12
    secure = aggregators.SecureSumFactory(2**30)
    summed = aggregators.DeterministicDiscretizationFactory(step, secure)
    mean = aggregators.MeanFactory if weighted else aggregators.UnweightedMeanFactory
    run = Run(mean(summed))
    assert fl.framework.computation_contains_secure_aggregation(run.process.next)
    found, _ = run(rows)
    expected = np.average(rows, 0, WEIGHTS) if weighted else rows.mean(0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=step)


@pytest.mark.parametrize("share", [0.01, 0.3, 1.0])
def test_the_greatest_numbers_are_kept(share: float) -> None:
    rows = drawn()
    run = Run(aggregators.SparsificationFactory(share, aggregators.MeanFactory()))
    found, _ = run(rows)
    count = int(np.ceil(11 * share))
    least = np.sort(np.abs(rows), axis=1)[:, -count][:, None]
    close(found, np.average(np.where(np.abs(rows) < least, 0, rows), 0, WEIGHTS))


def test_what_is_no_number_is_kept() -> None:
    value = fl.TensorType(np.float32, [4])
    factory = aggregators.SparsificationFactory(0.5, aggregators.SumFactory())
    process = factory.create(value)
    found = process.next(process.initialize(), [np.float32([1, np.nan, 2, 3])])["result"]
    assert np.isnan(found[1])
    empty = factory.create(fl.TensorType(np.float32, [0]))
    assert empty.next(empty.initialize(), [np.zeros(0, np.float32)])["result"].shape == (0,)


@pytest.mark.parametrize("bound", [2.5, 3.5])
def test_values_are_clipped(bound: float) -> None:
    rows = drawn()
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    run = Run(aggregators.clipping_factory(bound, aggregators.MeanFactory()))
    found, measured = run(rows)
    close(found, np.average(rows * np.minimum(1, bound / norms)[:, None], 0, WEIGHTS))
    assert dict(measured) == {"clipping_norm": np.float32(bound), "clipped": (norms > bound).sum()}
    assert 0 < measured["clipped"] < 7


def test_values_within_the_bound_stay_to_the_bit() -> None:
    factory = aggregators.clipping_factory(1e3, aggregators.SumFactory())
    found, measured = Run(factory)(drawn(1))
    assert (found == drawn(1)[0]).all() and measured["clipped"] == 0


def test_values_are_zeroed() -> None:
    rows = drawn()
    rows[2] *= 100
    rows[4, 3] = np.nan
    rows[5, 8] = np.inf
    norms = np.linalg.norm(rows, axis=1)
    kept = np.where((norms <= 50)[:, None], rows, 0)
    assert (kept != 0).any(1).sum() == 4
    found, measured = Run(aggregators.zeroing_factory(50.0, aggregators.SumFactory()))(rows)
    close(found, kept.sum(0))
    assert dict(measured) == {"zeroing_norm": 50.0, "zeroed": 3}
    # What is clipped isn't infinite.
    found, _ = Run(aggregators.clipping_factory(50.0, aggregators.SumFactory()))(rows)
    close(found, kept.sum(0) + rows[2] * np.float32(50 / norms[2]))


def test_bounds_follow_a_quantile() -> None:
    estimation = aggregators.QuantileEstimation(8.0, 0.8, 0.5, multiplier=2.0, increment=0.25)
    inner = aggregators.zeroing_factory(estimation, aggregators.SumFactory())
    run = Run(aggregators.clipping_factory(aggregators.QuantileEstimation(), inner))
    outer, estimate = 1.0, 8.0
    for seed in range(4):
        rows = drawn(seed=seed)
        norms = np.linalg.norm(rows, axis=1)
        clipped = np.minimum(norms, outer)
        bound = 2 * estimate + 0.25
        found, measured = run(rows)
        scaled = rows * (clipped / norms)[:, None]
        close(found, np.where((clipped <= bound)[:, None], scaled, 0).sum(0))
        close(measured["clipping_norm"], outer)
        close(measured["inner"]["zeroing_norm"], bound)
        assert measured["clipped"] == (norms > outer).sum()
        outer *= np.exp(-0.2 * ((norms <= outer).mean() - 0.5))
        estimate *= np.exp(-0.5 * ((clipped <= estimate).mean() - 0.8))
        close(run.state["estimate"], outer)
        close(run.state["inner"]["estimate"], estimate)


def test_a_bound_finds_the_quantile() -> None:
    process = aggregators.clipping_factory(
        aggregators.QuantileEstimation(0.1, 0.5), aggregators.SumFactory()
    ).create(np.float32)
    state, rows = process.initialize(), [np.float32(value) for value in range(1, 12)]
    for _ in range(60):
        state = process.next(state, rows)["state"]
    assert 5 < state["estimate"] < 7


def test_integers_of_random_rounding_are_right_on_average() -> None:
    factory = aggregators.StochasticDiscretizationFactory(1.0)
    process = factory.create(fl.TensorType(np.float32, [1000]))
    given = np.full(1000, 0.3, np.float32)
    found = process.next(process.initialize(), [given, given])["result"]
    assert set(found) <= {0, 1, 2} and abs(found.mean() - 0.6) < 0.1
    again = process.next(process.initialize(), [given, given])["result"]
    assert (found != again).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_what_has_no_integer_is_told(bad: float) -> None:
    process = aggregators.DeterministicDiscretizationFactory(0.5).create(
        fl.TensorType(np.float32, [2])
    )
    rows = [np.ones(2, np.float32), np.array([1, bad], np.float32)]
    assert np.isnan(process.next(process.initialize(), rows)["result"]).all()
    assert process.next(process.initialize(), rows[:1])["result"].tolist() == [1, 1]


@pytest.mark.parametrize("clients", [1, 2, 7, 8])
def test_medians(clients: int) -> None:
    rows = drawn(clients)
    close(Run(aggregators.MedianFactory())(rows)[0], np.median(rows, 0))


@pytest.mark.parametrize(("share", "clients"), [(0.0, 4), (0.2, 7), (0.29, 100), (0.45, 5)])
def test_trimmed_means(share: float, clients: int) -> None:
    rows = drawn(clients)
    left_out = {0.0: 0, 0.2: 1, 0.29: 29, 0.45: 2}[share]
    expected = np.sort(rows, 0)[left_out : clients - left_out].mean(0)
    close(Run(aggregators.TrimmedMeanFactory(share))(rows)[0], expected)


def krum(rows: Any, wrong: int, selected: int) -> Any:
    distances = ((rows[:, None] - rows).astype(np.float64) ** 2).sum(2)
    scores = np.sort(distances, 1)[:, 1 : len(rows) - wrong - 1].sum(1)
    return rows[np.argsort(scores)[:selected]].mean(0)


@pytest.mark.parametrize(("wrong", "selected"), [(0, 1), (1, 1), (2, 1), (2, 4)])
def test_krum(wrong: int, selected: int) -> None:
    for clients in (7, 12):
        rows = drawn(clients, seed=clients)
        found, _ = Run(aggregators.KrumFactory(wrong, selected))(rows)
        close(found, krum(rows, wrong, selected))


def test_far_clients_do_not_blur_the_distances_of_others() -> None:
    rows = drawn(7)
    expected = krum(rows, 2, 1)
    rows = np.concatenate([rows, np.full((1, 11), 1e15, np.float32)])
    found, _ = Run(aggregators.KrumFactory(3))(np.concatenate([rows, rows[-1:]]))
    close(found, expected)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e6])
def test_two_wrong_clients_of_nine_lead_nobody_astray(bad: float) -> None:
    rows = 1 + 0.1 * drawn(9)
    rows[3] = rows[7] = bad
    for factory in (
        aggregators.MedianFactory(),
        aggregators.TrimmedMeanFactory(0.25),
        aggregators.KrumFactory(2),
        aggregators.KrumFactory(2, 5),
    ):
        found, _ = Run(factory)(rows)
        assert (abs(found - 1) < 0.4).all(), factory


def test_rounds_that_are_too_small() -> None:
    process = aggregators.KrumFactory(1).create(np.float32)
    with pytest.raises(ValueError, match=r"size\(0\) >= 5"):
        process.next(process.initialize(), [np.float32(1)] * 4)
    process = aggregators.MedianFactory().create(np.float32)
    with pytest.raises(ValueError, match="a sequence without elements"):
        process.next(process.initialize(), [])


def test_what_is_wrong_is_said() -> None:
    mean, add = aggregators.MeanFactory(), aggregators.SumFactory()
    for make, error, text in (
        (lambda: mean.create(VALUE), TypeError, "MeanFactory is weighted: `create` is called with"),
        (lambda: add.create(VALUE, np.float32), TypeError, "SumFactory is not weighted"),
        (lambda: mean.create(np.int32, np.float32), TypeError, "`value_type` is int32"),
        (
            lambda: add.create(OrderedDict(a=np.float32, b=[fl.TensorType(np.float32, [None])])),
            TypeError,
            r"`b/0` of `value_type` is float32\[\?\]",
        ),
        (lambda: add.create(np.str_), TypeError, "SumFactory aggregates arrays of numbers"),
        (lambda: aggregators.clipping_factory(0, add), ValueError, "`clipping_norm` is to be"),
        (lambda: aggregators.zeroing_factory(float("nan"), add), ValueError, "`zeroing_norm`"),
        (
            lambda: aggregators.clipping_factory(1.0, aggregators.SumFactory),
            TypeError,
            r"`inner` is to be an AggregationFactory, .*, not SumFactory; it is to be called",
        ),
        (lambda: aggregators.clipping_factory(1.0, "mean"), TypeError, "not 'mean'"),
        (
            lambda: aggregators.clipping_factory(1.0, mean).create(np.int32, np.float32),
            TypeError,
            "clipping_factory aggregates arrays of floating-point numbers",
        ),
        (lambda: aggregators.MeanFactory(mean), TypeError, "a factory of sums, not <MeanFactory>"),
        (
            lambda: aggregators.DeterministicDiscretizationFactory(
                0.1, aggregators.MedianFactory()
            ),
            TypeError,
            "a factory of sums",
        ),
        (lambda: aggregators.StochasticDiscretizationFactory(-1), ValueError, "`step_size`"),
        (lambda: aggregators.SecureSumFactory(0), ValueError, "`bound` is to be an integer"),
        (lambda: aggregators.SecureSumFactory(2**60), ValueError, r"`bound` is to be 2\*\*52 or"),
        (lambda: aggregators.SecureSumFactory(9).create(np.float32), TypeError, "of integers"),
        (lambda: aggregators.SparsificationFactory(0.0, add), ValueError, "`kept_share`"),
        (lambda: aggregators.SparsificationFactory(0.1, "sum"), TypeError, "not 'sum'"),
        (lambda: aggregators.TrimmedMeanFactory(0.5), ValueError, "`trimmed_share`"),
        (lambda: aggregators.KrumFactory(-1), ValueError, "`byzantine_clients`"),
        (lambda: aggregators.KrumFactory(1, 0), ValueError, "`selected_clients`"),
        (
            lambda: aggregators.QuantileEstimation(target_quantile=1.0),
            ValueError,
            "`target_quantile` is to be a number above 0 and below 1, not 1.0",
        ),
    ):
        with pytest.raises(error, match=text):
            make()


class Own(aggregators.AggregationFactory):
    """One of the user's, which isn't what it says."""

    def __init__(self, wrong: str) -> None:
        self.wrong = wrong

    def create(self, value_type: Any, weight_type: Any = None) -> Any:
        inner = aggregators.SumFactory().create(value_type)
        number = fl.local_computation(lambda: torch.zeros(()))
        initialize = fl.federated_computation(lambda: fl.federated_eval(number, fl.SERVER))

        @fl.federated_computation(
            inner.initialize.type_signature.result, fl.FederatedType(value_type, fl.CLIENTS)
        )
        def scalar(state: Any, value: Any) -> Any:
            out = inner.next(state, value)
            result = fl.federated_eval(number, fl.SERVER)
            return OrderedDict(state=out.state, result=result, measurements=out.measurements)

        if self.wrong == "nothing":
            return None
        if self.wrong == "state":
            return aggregators.AggregationProcess(initialize, inner.next, False)
        if self.wrong == "weights":
            return aggregators.AggregationProcess(inner.initialize, inner.next, True)
        if self.wrong == "names":
            return aggregators.AggregationProcess(inner.initialize, scalar_alone(inner), False)
        return aggregators.AggregationProcess(inner.initialize, scalar, False)


def scalar_alone(inner: Any) -> Any:
    return fl.federated_computation(
        lambda state, value: inner.next(state, value).result, *inner.next.type_signature.parameter
    )


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("nothing", "<Own> creates no AggregationProcess, but None"),
        ("state", "takes a state of another type than `initialize` makes"),
        ("weights", "takes something else\n  expected: a state, values and weights"),
        ("names", "gives something else\n  expected: a struct of state, result and measurements"),
        ("result", "<Own> gives something else than values are\n(.*\n)*  found:    float32@SERVER"),
    ],
)
def test_an_aggregator_of_ones_own_is_looked_at(wrong: str, text: str) -> None:
    model = classifier(torch.nn.Linear(4, 3), 4)
    with pytest.raises(TypeError, match=text):
        learning.build_fed_avg(model, model_aggregator=Own(wrong))
