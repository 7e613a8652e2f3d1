"""Noise of a binary tree: sums over rounds, which noise they share, and what they cost."""

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

tree = aggregators.DifferentiallyPrivateFactory.tree_aggregation


def noises(rounds: int, tree_rounds: int, width: int, multiplier: float = 1.0) -> Any:
    """The noise of the sum of all rounds so far, for each round."""
    factory = tree(multiplier, 1, 1.0, tree_rounds=tree_rounds, participations=1, delta=None)
    process = factory.create(fl.TensorType(np.float64, [width]))
    state, sums, total = process.initialize(), [], np.zeros(width)
    for _ in range(rounds):
        found = process.next(state, [])
        state, total = found["state"], total + found["result"]
        sums.append(total)
    return np.stack(sums)


def nodes_of(rounds: int) -> set[tuple[int, int]]:
    """The nodes of which the sum of the first rounds is made, as first rounds and sizes."""
    found, begin = set(), 0
    for level in reversed(range(rounds.bit_length())):
        if rounds >> level & 1:
            found.add((begin, 1 << level))
            begin += 1 << level
    return found


def test_sums_are_those_of_the_values_and_the_nodes() -> None:
    factory = tree(0.7, 10, 2.0, tree_rounds=13, participations=1, delta=None)
    process = factory.create(VALUE)
    rows = values(6)
    of_each = np.stack([flat(row) for row in rows])
    norms = np.linalg.norm(of_each, axis=1, keepdims=True)
    exact = (of_each * (2 / norms)).sum(0)
    state, total = process.initialize(), np.zeros(800)
    assert state["releases"] == 0 and state["nodes"]["a"].shape == (4, 500)
    for number in range(1, 14):
        found = process.next(state, rows)
        state = found["state"]
        total += flat(found["result"]) * 10
        np.testing.assert_allclose(flat(found["result"]), flat(state["noised_sum"]) / 10, rtol=1e-5)
        # What is stored is the noise of the sum: as many nodes as the number has bits.
        stored = np.concatenate(
            [state["nodes"]["a"], state["nodes"]["b"].reshape(4, -1)], axis=1
        ).astype(np.float64)
        used = [bool(row.any()) for row in stored]
        assert used == [bool(number >> level & 1) for level in range(4)]
        np.testing.assert_allclose(total, number * exact + stored.sum(0), atol=2e-4)
        assert state["round"] == state["releases"] == number


def test_noise_of_sums_is_that_of_their_nodes() -> None:
    torch.manual_seed(0)
    found = noises(11, 15, 20_000, multiplier=0.5)
    covariances = found @ found.T / found.shape[1]
    for one in range(11):
        for other in range(11):
            shared = len(nodes_of(one + 1) & nodes_of(other + 1))
            # Of 20,000 draws: an error of 0.2 is six standard errors of the greatest variance.
            assert covariances[one, other] / 0.25 == pytest.approx(shared, abs=0.2)
    assert np.abs(found.mean(1)).max() < 6 * np.sqrt(4 * 0.25 / 20_000)


def test_a_new_tree_begins_on_top_of_the_last_one() -> None:
    torch.manual_seed(1)
    found = noises(9, 3, 20_000)
    variances = (found**2).mean(1)
    # Three rounds a tree, of which the third has two nodes; what it has stays.
    np.testing.assert_allclose(variances, [1, 1, 2, 3, 3, 4, 5, 5, 6], rtol=0.06)
    later = found[3:6] - found[2]
    assert abs((later * found[2]).mean()) < 0.05


def test_noise_grows_less_than_that_of_releases_of_their_own() -> None:
    torch.manual_seed(2)
    assert np.var(noises(64, 64, 2_000)[-1]) == pytest.approx(1, rel=0.2)
    assert np.var(noises(63, 64, 2_000)[-1]) == pytest.approx(6, rel=0.2)


def spent(accounting: Any, noise: float, events: list[int], more: int = 0) -> float:
    accountant = accounting.rdp.RdpAccountant(
        neighboring_relation=accounting.NeighboringRelation.REPLACE_SPECIAL
    )
    for rounds in events:
        accountant.compose(accounting.SingleEpochTreeAggregationDpEvent(noise, rounds))
    if more:
        accountant.compose(accounting.GaussianDpEvent(noise), more)
    return float(accountant.get_epsilon(1e-5))


def test_epsilon_is_that_of_the_package() -> None:
    accounting = pytest.importorskip("dp_accounting")
    factory = tree(3.0, 5, 1.0, tree_rounds=6, participations=1, delta=1e-5)
    process = factory.create(np.float32)
    read = fl.framework.ConcreteComputation.from_bytes(process.next.to_bytes())
    state = process.initialize()
    for number in range(1, 15):
        found = (read if number % 2 else process.next)(state, [np.float32(0.1)])
        state = found["state"]
        trees = [6] * (number // 6) + ([number % 6] if number % 6 else [])
        expected = spent(accounting, 3.0, trees)
        assert found["measurements"]["epsilon"] == pytest.approx(expected, rel=1e-9)
    # A round that is taken again is one more node.
    found = process.next(aggregators.charged(state, 4), [np.float32(0.1)])
    expected = spent(accounting, 3.0, [6, 6, 3], more=4)
    assert found["measurements"]["epsilon"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("rounds", "participations"), [(1, 1), (7, 2), (8, 3), (13, 5), (9, 9)])
def test_several_participations_cost_what_they_move(rounds: int, participations: int) -> None:
    """Against all ways in which a client may be in rounds of a tree."""
    accounting = pytest.importorskip("dp_accounting")
    drawn = np.random.default_rng(0)
    worst = 0
    for _ in range(300):
        count = int(drawn.integers(1, participations + 1))
        taken = drawn.choice(rounds, count, replace=False)
        moved = 0
        for level in range(rounds.bit_length()):
            for begin in range(0, rounds - (1 << level) + 1, 1 << level):
                moved += ((taken >= begin) & (taken < begin + (1 << level))).sum() ** 2
        worst = max(worst, int(moved))
    factory = tree(20.0, 5, 1.0, tree_rounds=rounds, participations=participations, delta=1e-5)
    process = factory.create(np.float32)
    state = process.initialize()
    for _ in range(rounds):
        found = process.next(state, [np.float32(0.1)])
        state = found["state"]
    accountant = accounting.rdp.RdpAccountant()
    accountant.compose(accounting.GaussianDpEvent(20.0 / worst**0.5))
    epsilon = found["measurements"]["epsilon"]
    assert epsilon >= accountant.get_epsilon(1e-5) * (1 - 1e-9)
    if participations == 1:
        assert epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-9)


def test_a_round_that_is_taken_again_draws_its_node_anew() -> None:
    process = tree(1.0, 5, 1.0, tree_rounds=4, participations=1, delta=None).create(VALUE)
    first = process.next(process.initialize(), values(3))["state"]
    again = [process.next(first, values(3))["state"] for _ in range(2)]
    assert (again[0]["nodes"]["a"][1] != again[1]["nodes"]["a"][1]).any()
    assert not again[0]["nodes"]["a"][0].any()


def test_training_is_resumed_to_the_same_numbers(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    factory = tree(0.5, 20, 0.5, tree_rounds=4, participations=4, delta=1e-4)
    process = learning.build_fed_avg(model(), model_aggregator=factory)
    rows = clients(20)
    torch.manual_seed(5)
    state, _ = process.run(process.initialize(), [rows] * 3)
    learning.save_state(state, tmp_path / "state.npz")
    resumed = learning.load_state(process, tmp_path / "state.npz")
    ends: list[Any] = []
    for start in (state, resumed):
        torch.manual_seed(6)
        ends.append(process.run(start, [rows] * 3))
    (one, told), (other, told_again) = ends
    assert told == told_again and list(told[0]["aggregator"]) == ["epsilon"]
    for name, array in one["weights"].items():
        assert (other["weights"][name] == array).all()
    charged = aggregators.charged(state)
    assert charged["aggregator"]["releases"] == 4 and charged["aggregator"]["round"] == 3


def test_weights_are_the_first_ones_less_the_noised_sum() -> None:
    """With plain steps at the server the noise of the weights is that of a few nodes."""
    factory = tree(1.0, 1, 1.0, tree_rounds=8, participations=1, delta=None)
    process = learning.build_fed_avg(model(), model_aggregator=factory)
    state = process.initialize()
    start = state["weights"]["weight"].copy()
    for _ in range(7):
        state, metrics = process.next(state, [])
        assert dict(metrics) == {}
        expected = start - state["aggregator"]["nodes"]["weight"].sum(0)
        np.testing.assert_allclose(state["weights"]["weight"], expected, atol=1e-5)


def test_what_is_wrong_is_said() -> None:
    for arguments, text in (
        (OrderedDict(noise_multiplier=0.0), "`noise_multiplier` is to be a number above 0"),
        (OrderedDict(clients_per_round=0), "`clients_per_round` is to be a number above 0"),
        (OrderedDict(clip=float("inf")), "`clip` is to be a number above 0"),
        (OrderedDict(tree_rounds=0), "`tree_rounds` is to be an integer, 1 or more"),
        (OrderedDict(tree_rounds=1 << 30), r"`tree_rounds` is to be less than 2\*\*30"),
        (OrderedDict(participations=0), "`participations` is to be an integer, 1 or more"),
        (OrderedDict(participations=9), "`participations` is 9, which is more than `tree_rounds`"),
        (OrderedDict(delta=2), "`delta` is to be"),
    ):
        given: dict[str, Any] = {
            "noise_multiplier": 1.0,
            "clients_per_round": 10,
            "clip": 1.0,
            "tree_rounds": 8,
            "participations": 1,
            "delta": None,
            **arguments,
        }
        with pytest.raises(ValueError, match=text):
            tree(**given)
