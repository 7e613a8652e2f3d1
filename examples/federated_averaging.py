"""Federated averaging of a small classifier: `python -m examples.federated_averaging`.

scikit-learn's digits are split over clients, each with more of some digits than of others. In each
round every client takes some steps from the server's model on its own rows, and the server takes
the mean of the models that come back. The work of a client is PyTorch code; it is traced into a
tensor program, so a whole round is a computation that can be sent elsewhere as bytes: at the end
another process reads it and runs the last round again, with the same result.
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

import stator.federated as fl

PIXELS, HIDDEN, DIGITS = 64, 32, 10
STEPS, RATE = 8, 0.5

MODEL = OrderedDict(
    w1=fl.TensorType(np.float32, [PIXELS, HIDDEN]),
    b1=fl.TensorType(np.float32, [HIDDEN]),
    w2=fl.TensorType(np.float32, [HIDDEN, DIGITS]),
    b2=fl.TensorType(np.float32, [DIGITS]),
)
ROWS = OrderedDict(
    images=fl.TensorType(np.float32, [None, PIXELS]),
    labels=fl.TensorType(np.int64, [None]),
)
CLIENTS_ROWS = fl.FederatedType(ROWS, fl.CLIENTS)
SERVER_MODEL = fl.FederatedType(MODEL, fl.SERVER)

Model = OrderedDict[str, Any]
Rows = OrderedDict[str, Any]


def scores(model: dict[str, torch.Tensor], images: torch.Tensor) -> torch.Tensor:
    """The classifier: one hidden layer."""
    hidden = torch.relu(images @ model["w1"] + model["b1"])
    return hidden @ model["w2"] + model["b2"]


@fl.local_computation(MODEL, ROWS)
def train(model, rows):
    """The model after some steps on a client's rows, and the number of rows."""

    def loss(model):
        return torch.nn.functional.cross_entropy(scores(model, rows["images"]), rows["labels"])

    for _ in range(STEPS):
        gradients = torch.func.grad(loss)(model)
        model = OrderedDict((name, model[name] - RATE * gradients[name]) for name in model)
    return model, torch.ones_like(rows["labels"]).sum()


@fl.local_computation(MODEL, ROWS)
def count_hits(model, rows):
    """How many of a client's rows the model gets right, and how many there are."""
    hits = (scores(model, rows["images"]).argmax(1) == rows["labels"]).sum()
    return hits, torch.ones_like(rows["labels"]).sum()


@fl.federated_computation(SERVER_MODEL, CLIENTS_ROWS)
def train_round(model, rows):
    """The mean of the models that the clients make of the server's, weighted by their rows."""
    trained = fl.federated_map(train, (fl.federated_broadcast(model), rows))
    return fl.federated_mean(trained[0], weight=trained[1])


@fl.federated_computation(SERVER_MODEL, CLIENTS_ROWS)
def evaluate(model, rows):
    """How many rows of all clients the model gets right, and how many there are."""
    return fl.federated_sum(fl.federated_map(count_hits, (fl.federated_broadcast(model), rows)))


def split(clients: int) -> tuple[list[Rows], list[Rows]]:
    """The rows that each client trains on, and those that it keeps to see how good the model is."""
    digits = load_digits()
    random = np.random.default_rng(0)
    images, labels = (digits.data / 16).astype(np.float32), digits.target.astype(np.int64)
    order = random.permutation(len(labels))
    # Sorting half of the rows by their digits gives each client more of some digits.
    half = len(order) // 2
    order[:half] = order[:half][np.argsort(labels[order[:half]], kind="stable")]
    parts = [order[:half], order[half:]]
    pieces = [np.array_split(part, clients) for part in parts]
    shares = [np.concatenate(both) for both in zip(*pieces, strict=True)]

    def rows(of: np.ndarray) -> Rows:
        return OrderedDict(images=images[of], labels=labels[of])

    shares = [random.permutation(share) for share in shares]
    cuts = [len(share) * 4 // 5 for share in shares]
    training = [rows(share[:cut]) for share, cut in zip(shares, cuts, strict=True)]
    held_back = [rows(share[cut:]) for share, cut in zip(shares, cuts, strict=True)]
    return training, held_back


def initial() -> Model:
    """A model that knows nothing."""
    random = np.random.default_rng(1)

    def normal(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)

    return OrderedDict(
        w1=normal(PIXELS, HIDDEN),
        b1=np.zeros(HIDDEN, np.float32),
        w2=normal(HIDDEN, DIGITS),
        b2=np.zeros(DIGITS, np.float32),
    )


def elsewhere(model: Model, rows: list[Rows]) -> Model:
    """What a round gives in another process, which has read it from a file."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("computation", "argument", "result")]
        files[0].write_bytes(train_round.to_bytes())
        files[1].write_bytes(pickle.dumps((model, rows)))
        subprocess.run([sys.executable, "-c", ELSEWHERE, *map(str, files)], check=True)
        made: Model = pickle.loads(files[2].read_bytes())
    return made


ELSEWHERE = """
import pickle, sys
from pathlib import Path
import stator.federated as fl

computation, argument, result = map(Path, sys.argv[1:])
train_round = fl.framework.ConcreteComputation.from_bytes(computation.read_bytes())
made = train_round(*pickle.loads(argument.read_bytes()))
result.write_bytes(pickle.dumps(made))
"""


def run(clients: int = 20, rounds: int = 15) -> float:
    """Trains and prints; gives the accuracy at the end."""
    training, held_back = split(clients)
    print(train_round.to_building_block().formatted_representation())
    print(f"type: {train_round.type_signature}")
    model = initial()
    accuracy = 0.0
    for number in range(1, rounds + 1):
        before, model = model, train_round(model, training)
        hits, count = evaluate(model, held_back)
        accuracy = float(hits / count)
        print(f"round {number:2}: {accuracy:.3f} of {count} rows that nobody trained on")
    again = elsewhere(before, training)
    for name, value in model.items():
        np.testing.assert_allclose(again[name], value, rtol=1e-5, atol=1e-6)
    print(f"another process read the round ({len(train_round.to_bytes())} bytes): same result")
    return accuracy


def main() -> None:
    """Runs it with what the command line says."""
    parser = argparse.ArgumentParser(description="Federated averaging.")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    accuracy = run(arguments.clients, arguments.rounds)
    if accuracy <= 0.90:
        raise SystemExit("the model is worse than it should be")


if __name__ == "__main__":
    main()
