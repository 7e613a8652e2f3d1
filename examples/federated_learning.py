"""Federated learning on digits: `python -m examples.federated_learning`.

scikit-learn's digits are split over clients, each with its own mixture of them (drawn from a
Dirichlet distribution). FedAvg, FedProx, FedAdam, SCAFFOLD and DP-FedAvg train the same network;
the accuracy is that on rows that no client has. In the middle the state goes through a file, as
after an interruption. A plain loop of PyTorch's does the same as FedAvg, and FedAvg trains a small
transformer, too. Then there are ten times as many clients, with few rows each. What DP-FedAvg costs
is printed where `dp-accounting` is installed. Where Ray is, FedAvg goes on with the clients on two
nodes, and a worker is killed in the middle of a round.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import stator.federated as fl
from stator.federated import aggregators, learning

PIXELS, DIGITS = 64, 10
RATE, STEPS = 0.3, 5
DELTA = 1e-3


def network() -> nn.Module:
    """A small convolutional network."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, DIGITS),
    )


class Transformer(nn.Module):
    """A small transformer over the eight lines of a digit."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.begin = nn.Linear(8, 16)
        self.places = nn.Parameter(0.1 * torch.randn(8, 16))
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.end = nn.Linear(16, DIGITS)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        lines = self.begin(pixels.unflatten(1, (8, 8))) + self.places
        return self.end(self.layer(lines).mean(1))


def split(clients: int, alpha: float = 0.5) -> tuple[list[Any], list[Any]]:
    """The clients' rows, and those that are kept to see how good a model is."""
    digits = load_digits()
    inputs, labels = (digits.data / 16).astype(np.float32), digits.target.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    kept, order = order[:300], order[300:]
    shares = learning.partition_by_dirichlet(labels[order], clients, alpha, least_rows=0)

    def rows(index: Any) -> dict[str, Any]:
        return {"inputs": inputs[index], "labels": labels[index]}

    # By chance some have no rows at all.
    return [rows(order[share]) for share in shares if share.size], [rows(kept)]


def classifier(module: nn.Module | None = None) -> learning.Model:
    """The network with its loss, for rows of digits."""
    return learning.Model(
        network() if module is None else module,
        nn.functional.cross_entropy,
        inputs=fl.TensorType(np.float32, [None, PIXELS]),
        labels=fl.TensorType(np.int64, [None]),
    )


def accuracy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The share of rows that are right."""
    return (outputs.argmax(1) == labels).float().mean()


def train(title: str, process: Any, evaluate: Any, data: Any, rounds: int) -> float:
    """Trains and prints; the accuracy at the end."""
    clients, kept = data
    start = time.perf_counter()
    state = process.initialize()
    state, _ = process.run(state, [clients] * (rounds // 2))
    with tempfile.TemporaryDirectory() as folder:
        learning.save_state(state, Path(folder) / "state.npz")
        state = learning.load_state(process, Path(folder) / "state.npz")
    state, metrics = process.run(state, [clients] * (rounds - rounds // 2))
    seconds = time.perf_counter() - start
    found = evaluate(state["weights"], kept)
    epsilon = metrics[-1].get("aggregator", {}).get("epsilon")
    print(
        f"{title:9} {int(state['round'])} rounds of {len(clients)} clients in {seconds:.1f} s: "
        f"loss {found['loss']:.3f}, accuracy {found['accuracy']:.3f}"
        + ("" if epsilon is None else f", epsilon {epsilon:.1f} at delta {DELTA}")
    )
    return float(found["accuracy"])


def loop(data: Any, rounds: int) -> float:
    """Federated averaging as a loop of PyTorch's; the accuracy at the end."""
    clients, (kept,) = data
    start = time.perf_counter()
    module = network()
    weights = {name: tensor.detach().clone() for name, tensor in module.named_parameters()}
    for _ in range(rounds):
        total = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
        for client in clients:
            module.load_state_dict(weights)
            optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
            inputs, labels = torch.from_numpy(client["inputs"]), torch.from_numpy(client["labels"])
            for _ in range(STEPS):
                optimizer.zero_grad()
                nn.functional.cross_entropy(module(inputs), labels).backward()
                optimizer.step()
            for name, tensor in module.named_parameters():
                total[name] += tensor.detach() * len(labels)
        count = sum(len(client["labels"]) for client in clients)
        weights = {name: tensor / count for name, tensor in total.items()}
    seconds = time.perf_counter() - start
    module.load_state_dict(weights)
    outputs = module(torch.from_numpy(kept["inputs"])).detach()
    found = float(accuracy(outputs, torch.from_numpy(kept["labels"])))
    print(
        f"{'a loop':9} {rounds} rounds of {len(clients)} clients in {seconds:.1f} s: "
        f"accuracy {found:.3f}"
    )
    return found


def run(clients: int, rounds: int) -> dict[str, float]:
    """Trains in these ways; the accuracy of each."""
    # Clients work in threads, as many as there are cores: more of PyTorch's would be in the way.
    torch.set_num_threads(1)
    model = classifier()

    def sgd(parameters: list[Any]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=RATE)

    data, kept = split(clients)
    numbered = [{**rows, "client": number} for number, rows in enumerate(data)]
    counts = importlib.util.find_spec("dp_accounting") is not None
    private = aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
        noise_multiplier=1.0,
        clients_per_round=len(data),
        clip=1.0,
        delta=DELTA if counts else None,
    )
    processes = {
        "FedAvg": learning.build_fed_avg(model, client_optimizer=sgd, steps=STEPS),
        "FedProx": learning.build_fed_prox(
            model, proximal_strength=0.1, client_optimizer=sgd, steps=STEPS
        ),
        "FedAdam": learning.build_fed_adam(
            model, client_optimizer=sgd, steps=STEPS, learning_rate=0.03
        ),
        "SCAFFOLD": learning.build_scaffold(
            model, clients=len(data), client_learning_rate=RATE, steps=STEPS
        ),
        "DP-FedAvg": learning.build_fed_avg(
            model, client_optimizer=sgd, steps=STEPS, model_aggregator=private
        ),
    }
    evaluate = learning.build_evaluation(model, {"accuracy": accuracy})
    found = {
        title: train(
            title, process, evaluate, (numbered if title == "SCAFFOLD" else data, kept), rounds
        )
        for title, process in processes.items()
    }
    found["loop"] = loop((data, kept), rounds)
    return found


def run_transformer(clients: int, rounds: int) -> float:
    """Trains a transformer by FedAvg; its accuracy."""
    torch.set_num_threads(1)
    model = classifier(Transformer())

    def adam(parameters: list[Any]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=0.01)

    process = learning.build_fed_avg(model, client_optimizer=adam, steps=STEPS)
    evaluate = learning.build_evaluation(model, {"accuracy": accuracy})
    return train("attention", process, evaluate, split(clients), rounds)


def run_on_two_nodes(clients: int, rounds: int) -> bool:
    """Trains on a cluster of two nodes, of which a worker is killed in the middle of a round, and
    here: whether both give the same to the bit."""
    import ray
    from ray.cluster_utils import Cluster

    from stator.federated.execution import LocalContext
    from stator.federated.ray import RayContext

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # As workers have it: with more, PyTorch rounds otherwise.
    torch.set_num_threads(1)
    model = classifier()
    process = learning.build_fed_avg(model, steps=STEPS)

    def own_process(client: Any) -> Any:
        return os.getpid()

    of_client = fl.local_computation(np.int32, result=np.int64)(own_process)

    @fl.federated_computation(fl.FederatedType(np.int32, fl.CLIENTS))
    def processes(clients: Any) -> Any:
        return fl.federated_map(of_client, clients)

    state, (data, _) = process.initialize(), split(clients)
    found = []
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        with RayContext(address=cluster.address, exact=True, chunk=4) as on_nodes:
            for context in (on_nodes, LocalContext(exact=True)):
                with fl.framework.get_context_stack().install(context):
                    if context is on_nodes:
                        process.next(state, data)
                        doomed = int(processes(list(range(len(data))))[-1])
                        threading.Timer(0.05, os.kill, (doomed, signal.SIGKILL)).start()
                    start = time.perf_counter()
                    ended, _ = process.run(state, [data] * rounds)
                    seconds = time.perf_counter() - start
                where = "two nodes, a worker killed" if context is on_nodes else "this process"
                print(
                    f"FedAvg    {rounds} rounds of {len(data)} clients in {seconds:.1f} s: {where}"
                )
                found.append(ended["weights"])
    finally:
        ray.shutdown()
        cluster.shutdown()
    same = all(np.array_equal(found[0][name], found[1][name]) for name in found[0])
    print(f"          the same weights to the bit: {same}")
    return same


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.federated_learning")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    run(options.clients, options.rounds)
    run_transformer(options.clients, options.rounds)
    run(10 * options.clients, options.rounds)
    if importlib.util.find_spec("ray") is None:
        print("Ray isn't installed: nothing runs on two nodes")
    else:
        run_on_two_nodes(options.clients, 4)


if __name__ == "__main__":
    main()
