"""What clients do in the federated benchmarks: steps of gradient descent of a classifier of digits.

No system that is measured is imported here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

STEPS, ROWS, PIXELS, HIDDEN, DIGITS, RATE = 5, 20, 64, 32, 10, 0.1
SHAPES = {"w1": (PIXELS, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, DIGITS), "b2": (DIGITS,)}

NAMES = {"w1": "0.weight", "b1": "0.bias", "w2": "2.weight", "b2": "2.bias"}
"""What the same arrays are called in a module's state."""

Arrays = dict[str, np.ndarray[Any, Any]]


def train(model: dict[str, Any], rows: dict[str, Any]) -> dict[str, Any]:
    """The model after the client's steps."""
    import torch

    for _ in range(STEPS):
        model = {name: tensor.detach().requires_grad_() for name, tensor in model.items()}
        hidden = torch.relu(rows["images"] @ model["w1"] + model["b1"])
        scores = hidden @ model["w2"] + model["b2"]
        loss = torch.nn.functional.cross_entropy(scores, rows["labels"])
        gradients = torch.autograd.grad(loss, list(model.values()))
        updated = zip(model.items(), gradients, strict=True)
        model = {name: tensor - RATE * gradient for (name, tensor), gradient in updated}
    return {name: tensor.detach() for name, tensor in model.items()}


def first_model() -> Arrays:
    """Where training begins."""
    drawn = np.random.default_rng(0)
    return {
        name: (drawn.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)
        for name, shape in SHAPES.items()
    }


def rows_of_clients(clients: int) -> list[Arrays]:
    """What each client has: digits, drawn from those that come with scikit-learn."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    chosen = np.random.default_rng(1).integers(0, len(labels), (clients, ROWS))
    return [
        {
            "images": (images[of_client] / 16).astype(np.float32),
            "labels": labels[of_client].astype(np.int64),
        }
        for of_client in chosen
    ]


def as_module(model: Arrays | None = None) -> Any:
    """The same classifier, as users of PyTorch write it."""
    import torch

    module = torch.nn.Sequential(
        torch.nn.Linear(PIXELS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, DIGITS)
    )
    if model is not None:
        module.load_state_dict(state_dict(model))
    return module


def state_dict(model: Arrays) -> dict[str, Any]:
    """The model as a module's state: a linear layer keeps its weights the other way round."""
    import torch

    return {key: torch.tensor(model[name].T).contiguous() for name, key in NAMES.items()}


def of_state(state: Any) -> Arrays:
    """The model of a module's state: tensors or arrays by names."""
    return {name: np.array(state[key]).T for name, key in NAMES.items()}
