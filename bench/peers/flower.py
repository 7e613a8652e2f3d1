"""Flower's simulation on Ray: an actor for each processor, a message to each client and back."""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import Any

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


class EveryClient(FedAvg):
    """Averaging that takes no round without some of the clients: Flower's own goes on."""

    def __init__(self, clients: int) -> None:
        # Of those that are there as a round begins it would take a share.
        super().__init__(
            fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients
        )
        self._clients = clients

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        """What it makes of all answers."""
        replies = list(replies)
        lost = [reply.error.reason for reply in replies if reply.has_error()]
        if lost or len(replies) != self._clients:
            answers = len(replies) - len(lost)
            raise RuntimeError(f"{answers} of {self._clients} clients answered {lost[:1]}")
        return super().aggregate_train(server_round, replies)


def simulated(model: Arrays, rows: list[Arrays], rounds: int) -> Iterator[tuple[float, Arrays]]:
    """All clients in each round."""
    found: list[tuple[float, Arrays]] = []
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = EveryClient(len(rows))
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
