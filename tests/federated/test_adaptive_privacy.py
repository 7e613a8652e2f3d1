"""Clipping to a private quantile: noise of both sums, what they cost together, where it leads."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import stator.federated as fl
from stator.federated import aggregators, learning

from .test_privacy import VALUE, clients, flat, model, values

adaptive = aggregators.DifferentiallyPrivateFactory.gaussian_adaptive


def test_noise_of_values_and_of_the_count() -> None:
    torch.manual_seed(1)
    process = adaptive(1.2, 50, initial_clip=20.0, count_deviation=0.8, delta=None).create(VALUE)
    # Norms are about 17: all within the bound. What the values have is more than 1.2 * 20.
    rows, start = values(10), process.initialize()
    exact = np.sum([flat(row) for row in rows], 0)
    of_values, of_counts = [], []
    for _ in range(100):
        found = process.next(start, rows)
        of_values.append(flat(found["state"]["noised_sum"]) - exact)
        of_counts.append(found["state"]["noised_count"] - 5.0)
        np.testing.assert_allclose(
            flat(found["result"]), flat(found["state"]["noised_sum"]) / 50, rtol=1e-5
        )
    multiplier = (1.2**-2 - 1.6**-2) ** -0.5
    # 80,000 draws and 100 draws: bounds are six and five standard errors.
    assert np.std(of_values) == pytest.approx(20 * multiplier, rel=0.015)
    assert abs(np.mean(of_values)) < 6 * 20 * multiplier / np.sqrt(80_000)
    assert np.std(of_counts) == pytest.approx(0.8, rel=0.36)
    assert abs(np.mean(of_counts)) < 0.4
    assert abs(np.corrcoef(np.mean(of_values, 1), of_counts)[0, 1]) < 0.5


def test_a_round_is_that_of_a_loop() -> None:
    process = adaptive(
        1e-7,
        8,
        initial_clip=0.5,
        target_quantile=0.7,
        learning_rate=0.3,
        count_deviation=1e-6,
        delta=None,
    ).create(fl.TensorType(np.float32, [2]))
    rows = [np.float32([size, 0]) for size in (0.1, 0.2, 0.5, 0.9, 3.0, np.nan)]
    found = process.next(process.initialize(), rows)
    # Three of six are within the bound; the denominator is 8 in any case.
    share = (0.5 * 3 - 0.5 * 3) / 8 + 0.5
    assert found["state"]["clip"] == pytest.approx(0.5 * np.exp(-0.3 * (share - 0.7)), rel=1e-5)
    np.testing.assert_allclose(found["result"], [(0.1 + 0.2 + 3 * 0.5) / 8, 0], atol=1e-5)
    assert found["measurements"] == {"clip": 0.5}
    later = process.next(found["state"], rows)
    assert later["measurements"]["clip"] == found["state"]["clip"]
    assert later["state"]["releases"] == 2


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.8])
def test_the_bound_finds_the_quantile(quantile: float) -> None:
    torch.manual_seed(2)
    process = adaptive(1.0, 200, target_quantile=quantile, delta=None).create(np.float32)
    state = process.initialize()
    assert state["clip"] == pytest.approx(0.1)
    drawn, clips = np.random.default_rng(0), []
    for _ in range(150):
        found = process.next(state, list(drawn.lognormal(1.0, 0.5, 200).astype(np.float32)))
        state = found["state"]
        clips.append(float(state["clip"]))
    expected = np.quantile(np.random.default_rng(1).lognormal(1.0, 0.5, 100_000), quantile)
    assert np.mean(clips[-50:]) == pytest.approx(expected, rel=0.08)


@pytest.mark.parametrize("population", [None, 400])
def test_both_sums_cost_one_release(population: int | None) -> None:
    accounting = pytest.importorskip("dp_accounting")
    process = adaptive(1.1, 20, delta=1e-5, population=population).create(np.float32)
    event = accounting.GaussianDpEvent(1.1)
    if population is not None:
        event = accounting.PoissonSampledDpEvent(20 / population, event)
    accountant = accounting.rdp.RdpAccountant()
    state = process.initialize()
    for _ in range(3):
        found = process.next(state, [np.float32(0.1)] * 3)
        accountant.compose(event)
        expected = accountant.get_epsilon(1e-5)
        assert found["measurements"]["epsilon"] == pytest.approx(expected, rel=1e-9)
        state = found["state"]
    accountant.compose(event, 6)
    found = process.next(aggregators.charged(state, 5), [np.float32(0.1)])
    assert found["measurements"]["epsilon"] == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-9)


def test_the_noise_of_both_is_that_of_their_composition() -> None:
    """What the package says of the two sums, each with its own noise, is what one release costs."""
    accounting = pytest.importorskip("dp_accounting")
    noise, deviation = 0.9, 3.0
    multiplier = (noise**-2 - (2 * deviation) ** -2) ** -0.5
    both, one = accounting.rdp.RdpAccountant(), accounting.rdp.RdpAccountant()
    both.compose(accounting.GaussianDpEvent(multiplier))
    both.compose(accounting.GaussianDpEvent(2 * deviation))
    one.compose(accounting.GaussianDpEvent(noise))
    assert both.get_epsilon(1e-5) == pytest.approx(one.get_epsilon(1e-5), rel=1e-9)
    torch.manual_seed(3)
    factory = adaptive(noise, 10, initial_clip=1.0, count_deviation=deviation, delta=None)
    process = factory.create(fl.TensorType(np.float64, [40_000]))
    drawn = process.next(process.initialize(), [])["state"]["noised_sum"]
    assert drawn.std() == pytest.approx(multiplier, rel=0.02)


def test_each_release_draws_anew() -> None:
    process = adaptive(1.0, 5, delta=None).create(VALUE)
    state = process.initialize()
    releases = [process.next(state, values(3)) for _ in range(3)]
    assert len({found["result"]["a"][0] for found in releases}) == 3
    assert len({float(found["state"]["noised_count"]) for found in releases}) == 3
    # No client at all is a release as well.
    assert process.next(state, [])["state"]["releases"] == 1


def test_bounds_stay_finite() -> None:
    process = adaptive(1.0, 5, learning_rate=100.0, delta=None).create(np.float32)
    state = process.initialize()
    for row in [np.nan] * 8 + [0.0] * 16:
        state = process.next(state, [np.float32(row)] * 30)["state"]
        assert 0 < state["clip"] < np.inf and np.isfinite(state["noised_sum"])


def test_training_is_resumed_to_the_same_numbers(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    factory = adaptive(0.5, 20, initial_clip=0.2, delta=1e-4)
    process = learning.build_fed_avg(model(), model_aggregator=factory)
    rows = clients(20)
    torch.manual_seed(5)
    state, _ = process.run(process.initialize(), [rows] * 2)
    learning.save_state(state, tmp_path / "state.npz")
    resumed = learning.load_state(process, tmp_path / "state.npz")
    ends: list[Any] = []
    for start in (state, resumed):
        torch.manual_seed(6)
        ends.append(process.run(start, [rows] * 2))
    (one, told), (other, told_again) = ends
    assert told == told_again and list(told[0]["aggregator"]) == ["clip", "epsilon"]
    assert one["aggregator"]["clip"] == other["aggregator"]["clip"]
    for name, array in one["weights"].items():
        assert (other["weights"][name] == array).all()
    charged = aggregators.charged(state)
    assert charged["aggregator"]["releases"] == 3


def test_what_is_wrong_is_said() -> None:
    for arguments, text in (
        (OrderedDict(noise_multiplier=0.0), "`noise_multiplier` is to be a number above 0"),
        (OrderedDict(clients_per_round=-1), "`clients_per_round` is to be a number above 0"),
        (OrderedDict(initial_clip=0), "`initial_clip` is to be a number above 0"),
        (OrderedDict(target_quantile=1.0), "`target_quantile` is to be .* below 1"),
        (OrderedDict(learning_rate=float("nan")), "`learning_rate` is to be"),
        (OrderedDict(count_deviation=0.5), "`count_deviation` is to be a number above 0.5"),
        (OrderedDict(delta=0), "`delta` is to be"),
        (OrderedDict(population=3), "`population` is 3, which is less than"),
    ):
        given: dict[str, Any] = {
            "noise_multiplier": 1.0,
            "clients_per_round": 10,
            "delta": None,
            **arguments,
        }
        with pytest.raises(ValueError, match=text):
            adaptive(**given)
