"""Flower's simulation on Ray: an actor for each processor, a message to each client and back."""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Iterator

# Nothing is told to anybody, and no folder of the user's is written to.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ.setdefault("FLWR_HOME", os.path.join(tempfile.gettempdir(), "stator-bench-flower"))

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from bench import classifier
from bench.classifier import Arrays
from bench.peers import loops

client_app = ClientApp()
rows_of_clients = functools.cache(classifier.rows_of_clients)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """A client's steps, as the quickstart of Flower has them."""
    torch.set_num_threads(1)
    module = classifier.as_module()
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    clients = int(context.node_config["num-partitions"])
    rows = rows_of_clients(clients)[int(context.node_config["partition-id"])]
    loops.steps(module, torch.from_numpy(rows["images"]), torch.from_numpy(rows["labels"]))
    answer = {
        "arrays": ArrayRecord(module.state_dict()),
        "metrics": MetricRecord({"num-examples": classifier.ROWS}),
    }
    return Message(content=RecordDict(answer), reply_to=message)


def simulated(model: Arrays, rows: list[Arrays], rounds: int) -> Iterator[tuple[float, Arrays]]:
    """All clients in each round."""
    found: list[tuple[float, Arrays]] = []
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=len(rows))
        arrays = ArrayRecord(classifier.state_dict(model))
        for _ in range(rounds):
            begin = time.perf_counter()
            arrays = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=1).arrays
            seconds = time.perf_counter() - begin
            found.append((seconds, classifier.of_state(arrays.to_torch_state_dict())))

    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=len(rows),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    yield from found
