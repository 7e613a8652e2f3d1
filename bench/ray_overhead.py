"""What a client costs on a Ray cluster beside its own work: `python -m bench.ray_overhead`.

A round of clients that each have a few numbers and do next to nothing, in chunks of 256, on one
machine: sent, run, summed and merged.
"""

from __future__ import annotations

import logging
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import stator.federated as fl
from stator.federated.execution import LocalContext
from stator.federated.ray import RayContext

CLIENTS, NUMBERS, TIMES = 10_240, 32, 7
ROW = fl.TensorType(np.float32, [NUMBERS])


@fl.federated_computation(fl.FederatedType(ROW, fl.CLIENTS))
def total(values: Any) -> Any:
    """The sum of what clients have."""
    return fl.federated_sum(values)


@fl.local_computation(ROW, ROW)
def step(weights: Any, values: Any) -> Any:
    """Next to nothing."""
    return weights - values


@fl.federated_computation(fl.FederatedType(ROW, fl.SERVER), fl.FederatedType(ROW, fl.CLIENTS))
def round_of(weights: Any, values: Any) -> Any:
    """The mean of what clients make of a program."""
    return fl.federated_mean(fl.federated_map(step, (fl.federated_broadcast(weights), values)))


def seconds(call: Callable[[], Any]) -> float:
    """The median of several times, the first two left out."""
    times = []
    for _ in range(TIMES + 2):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def main() -> None:
    """The command line."""
    logging.disable(logging.WARNING)
    draw = np.random.default_rng(0)
    values = [draw.normal(size=NUMBERS).astype(np.float32) for _ in range(CLIENTS)]
    weights = np.zeros(NUMBERS, np.float32)
    calls = {
        "sum of values": lambda context: context.invoke(total, values),
        "program, then mean": lambda context: context.invoke(
            round_of, fl.framework.pack_args_into_struct([weights, values], {})
        ),
    }
    print(f"{CLIENTS} clients with {NUMBERS} numbers each, {platform.machine()}")
    for name, call in calls.items():
        local = seconds(lambda call=call: call(LocalContext()))
        for workers in (1, 2):
            with RayContext(workers=workers, chunk=256) as context:
                took = seconds(lambda call=call, context=context: call(context))
            print(
                f"{name}: {took / CLIENTS * 1e6:.1f} µs per client with {workers} workers, "
                f"{local / CLIENTS * 1e6:.1f} in LocalContext"
            )


if __name__ == "__main__":
    main()
