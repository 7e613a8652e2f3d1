"""Plain PyTorch: one client after the other, in one process."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from bench import classifier
from bench.classifier import Arrays


def of_tensors(model: Arrays, rows: list[Arrays], rounds: int) -> Iterator[tuple[float, Arrays]]:
    """Steps written out on tensors, nothing made that isn't needed."""
    for _ in range(rounds):
        begin = time.perf_counter()
        start = {name: torch.from_numpy(array) for name, array in model.items()}
        total = {
            name: torch.zeros(array.shape, dtype=torch.float64) for name, array in model.items()
        }
        for row in rows:
            own = {name: torch.from_numpy(array) for name, array in row.items()}
            for name, tensor in classifier.train(start, own).items():
                total[name] += tensor
        model = {name: (tensor / len(rows)).float().numpy() for name, tensor in total.items()}
        yield time.perf_counter() - begin, model


def of_modules(model: Arrays, rows: list[Arrays], rounds: int) -> Iterator[tuple[float, Arrays]]:
    """As tutorials have it: a module that is set back for each client, and an optimizer."""
    module = classifier.as_module()
    state = classifier.state_dict(model)
    for _ in range(rounds):
        begin = time.perf_counter()
        total = {
            name: torch.zeros(tensor.shape, dtype=torch.float64) for name, tensor in state.items()
        }
        for row in rows:
            images, labels = torch.from_numpy(row["images"]), torch.from_numpy(row["labels"])
            module.load_state_dict(state)
            steps(module, images, labels)
            for name, tensor in module.state_dict().items():
                total[name] += tensor
        state = {name: (tensor / len(rows)).float() for name, tensor in total.items()}
        yield time.perf_counter() - begin, classifier.of_state(state)


def steps(module: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> None:
    """A client's steps."""
    optimizer = torch.optim.SGD(module.parameters(), lr=classifier.RATE)
    for _ in range(classifier.STEPS):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(images), labels).backward()
        optimizer.step()
