"""A federated program: averaging over rounds, with metrics in a table and states in files.

python -m tests.federated.training_program DIRECTORY ROUNDS
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

import stator.federated as fl
from stator.federated import execution, framework, learning, program


class State(NamedTuple):
    """What another process goes on from."""

    training: Any
    iterator: program.FederatedDataSourceIterator


def a_process() -> learning.IterativeProcess:
    torch.manual_seed(5)
    model = learning.Model(
        nn.Linear(2, 2),
        nn.functional.cross_entropy,
        inputs=fl.TensorType(np.float32, [None, 2]),
        labels=fl.TensorType(np.int64, [None]),
    )
    return learning.build_fed_avg(
        model,
        client_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        server_optimizer=learning.sgd(0.9, momentum=0.9),
        steps=2,
    )


def some_data() -> learning.ClientData:
    inputs = np.random.default_rng(2).normal(size=(120, 2)).astype(np.float32)
    labels = (inputs[:, 0] > inputs[:, 1]).astype(np.int64)
    return learning.ClientData(inputs, labels, learning.partition_evenly(120, 12))


async def train(
    process: Any,
    source: program.FederatedDataSource,
    metrics: program.ReleaseManager[Any, int],
    states: program.ProgramStateManager[Any],
    *,
    rounds: int,
) -> tuple[Any, int]:
    """Trains up to a number of rounds: the state, and how many rounds it went on from."""
    program.check_in_federated_context()
    initial = State(process.initialize(), source.iterator())
    state, version = await states.load_latest(initial)
    state = initial if state is None else state
    for number in range(version + 1, rounds + 1):
        training, found = process.next(state.training, state.iterator.select(5))
        state = State(training, state.iterator)
        # The row of a round that isn't saved is written again.
        await metrics.release(found, number)
        await states.save(state, number)
        print(number, flush=True)
    return await program.materialize_value(state), version


def run(directory: Path, rounds: int, context: Any) -> tuple[Any, Any, int]:
    """The state, the metrics in memory, and how many rounds it went on from."""
    process = a_process()
    data_type = process.next.type_signature.parameter[1]
    source = program.ClientDataSource(some_data(), data_type, seed=7)
    memory: program.MemoryReleaseManager[Any] = program.MemoryReleaseManager()
    table: Any = program.CSVFileReleaseManager(directory / "metrics.csv")
    states: Any = program.FileProgramStateManager(directory / "states", keep_total=3)
    with framework.get_context_stack().install(program.NativeFederatedContext(context)):
        state, version = asyncio.run(
            train(
                process,
                source,
                program.GroupingReleaseManager([memory, table]),
                states,
                rounds=rounds,
            )
        )
    return state, memory.values(), version


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]), execution.LocalContext())
