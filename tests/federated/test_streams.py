"""What clients make is merged as it comes: memory doesn't grow with the number of clients."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import stator.federated as fl
from stator._program_tracing.drawing import Draws
from stator.federated.execution import LocalContext
from stator.programs import TensorProgram, TensorSpec

ROW = fl.TensorType(np.float32, [3])
ROWS = fl.FederatedType(ROW, fl.CLIENTS)

GROWN = """
import resource, sys
import numpy as np, torch
import stator.federated as fl
from stator.federated import aggregators, learning
from stator.federated.execution import LocalContext
from stator.programs import TensorProgram, TensorSpec

torch.set_num_threads(1)
of_rows = fl.TensorType(np.float32, [None, 256])
model = learning.Model(
    torch.nn.Linear(256, 256), torch.nn.functional.mse_loss, inputs=of_rows, labels=of_rows
)
factory = {
    "mean": None,
    "clipped": aggregators.clipping_factory(
        aggregators.QuantileEstimation(), aggregators.UnweightedMeanFactory()
    ),
    "rounded": aggregators.MeanFactory(aggregators.DeterministicDiscretizationFactory(2.0**-10)),
}[sys.argv[1]]
process = learning.build_fed_avg(model, model_aggregator=factory)
state = process.initialize()
rows = np.ones((1, 256), np.float32)
client = {"inputs": rows, "labels": rows}
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
context = LocalContext(threads=1, exact=sys.argv[2] == "exact")
with fl.framework.get_context_stack().install(context):
    process.next(state, [client] * 100)
    before = peak()
    process.next(state, [client] * 700)
print((peak() - before) // 1024)
"""


@pytest.mark.parametrize(
    ("factory", "how"),
    [("mean", "exact"), ("mean", "at_once"), ("clipped", "at_once"), ("rounded", "exact")],
)
def test_memory_does_not_grow_with_the_clients(factory: str, how: str) -> None:
    # The results of the clients that are added would take 600 * 256 KB, 150 MB. Allocators keep some of what is free.
    command = [sys.executable, "-c", GROWN, factory, how]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 80


def run(comp: Any, *args: Any, **settings: Any) -> Any:
    with fl.framework.get_context_stack().install(LocalContext(**settings)):
        return comp(*args)


def rows(count: int) -> list[Any]:
    return list(np.random.default_rng(1).normal(size=(count, 3)).astype(np.float32))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("exact", [True, False])
def test_merges_are_those_of_all_results(threads: int, exact: bool) -> None:
    local = fl.local_computation(ROW)(lambda row: (torch.tanh(row), row.abs().sum()))
    times = fl.local_computation(ROW, np.float32)(lambda row, by: row * by)

    @fl.federated_computation(ROWS)
    def merged(values):
        made = fl.federated_map(local, values)
        mean = fl.federated_mean(made[0], weight=made[1])
        scaled = fl.federated_map(times, (made[0], made[1]))
        return (
            mean,
            fl.federated_sum(made[1]),
            fl.federated_mean(scaled),
            fl.federated_max(scaled),
            fl.federated_map(times, (fl.federated_min(made[0]), fl.federated_sum(made[1]))),
        )

    @fl.federated_computation(ROWS)
    def kept(values):
        made = fl.federated_map(local, values)
        return made, fl.federated_map(times, (made[0], made[1]))

    for count in (1, 5, 700):
        given = rows(count)
        found = run(merged, given, threads=threads, exact=exact)
        made, scaled = run(kept, given, threads=threads, exact=exact)
        wide = np.asarray([row for row, _ in made], np.float64)
        weights = np.asarray([weight for _, weight in made], np.float64)
        exactly = (wide * weights[:, None]).sum(0) / weights.sum()
        np.testing.assert_array_equal(found[0], exactly.astype(np.float32))
        assert found[1] == np.float32(weights.sum())
        np.testing.assert_allclose(found[2], np.mean(scaled, 0, np.float64), rtol=1e-6)
        np.testing.assert_array_equal(found[3], np.max(scaled, 0))
        np.testing.assert_array_equal(found[4], wide.min(0).astype(np.float32) * found[1])


def test_what_draws_is_done_in_the_computations_order() -> None:
    """Two programs that draw: the first for all clients, then the second."""
    draw = fl.local_computation(ROW)(lambda row: row + torch.rand(3))
    again = fl.local_computation(ROW)(lambda row: row * torch.rand(3))

    @fl.federated_computation(ROWS)
    def drawn(values):
        once = fl.federated_map(draw, values)
        return fl.federated_sum(fl.federated_map(again, once)), fl.federated_sum(once)

    given = rows(5)
    torch.manual_seed(3)
    found = run(drawn, given, threads=1)
    torch.manual_seed(3)
    draws = Draws()

    def numbers(place: int, client: int) -> Any:
        draws.become(place, client)
        return torch.rand(3).numpy()

    once = [row + numbers(0, client) for client, row in enumerate(given)]
    twice = [row * numbers(1, client) for client, row in enumerate(once)]
    np.testing.assert_array_equal(found[1], np.sum(once, 0, np.float64).astype(np.float32))
    np.testing.assert_array_equal(found[0], np.sum(twice, 0, np.float64).astype(np.float32))


def test_an_error_names_the_client_it_is_of() -> None:
    pick = fl.local_computation(ROW, np.int64)(lambda row, at: row[at])

    @fl.federated_computation(ROWS, fl.FederatedType(np.int64, fl.CLIENTS))
    def picked(values, places):
        return fl.federated_sum(fl.federated_map(pick, (values, places)))

    places = [0] * 300
    assert run(picked, rows(300), places) == np.float32(
        np.sum([row[0] for row in rows(300)], dtype=np.float64)
    )
    places[271] = 5
    for settings in ({"threads": 1}, {"threads": 3}, {"exact": True}):
        with pytest.raises(IndexError) as raised:
            run(picked, rows(300), places, **settings)
        assert raised.value.__notes__[-1] == "at client 271"


@pytest.mark.parametrize(
    ("function", "is_pure"),
    [
        (lambda row: torch.where(row > 0, row, -row).sqrt().sum(), True),
        (lambda row: row.to(torch.float64) @ row.to(torch.float64), True),
        (lambda row: row + torch.rand(3), False),
        (lambda row: torch.nn.functional.dropout(row, 0.5), False),
        (lambda row: row.clone().normal_(), False),
        (lambda row: torch.nn.functional.fractional_max_pool2d(row.expand(1, 3, 3), 2, 2), False),
    ],
)
def test_what_may_be_put_off_draws_nothing(function: Any, is_pure: bool) -> None:

    program = TensorProgram.trace(function, (TensorSpec(torch.float32, (3,)),))
    assert program._is_pure == is_pure
