"""pfl-research's simulator: one client after the other, in one process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

os.environ["PFL_PYTORCH_DEVICE"] = "cpu"

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

from bench import classifier
from bench.classifier import Arrays


class Classifier(torch.nn.Module):
    """What the simulator asks of a module: a loss and metrics."""

    def __init__(self, model: Arrays) -> None:
        super().__init__()
        self.layers = classifier.as_module(model)

    def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Of a batch."""
        self.train()
        return torch.nn.functional.cross_entropy(self.layers(images), labels)

    @torch.no_grad()
    def metrics(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        """Of a batch."""
        self.eval()
        loss = torch.nn.functional.cross_entropy(self.layers(images), labels)
        return {"loss": Weighted(loss.item() * len(labels), len(labels))}


class Clock(TrainingProcessCallback):
    """When each round ended, and with what."""

    def __init__(self) -> None:
        self.begin = 0.0
        self.found: list[tuple[float, Arrays]] = []

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        """The first round begins."""
        self.begin = time.perf_counter()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """A round has ended."""
        seconds = time.perf_counter() - self.begin
        state = model.pytorch_model.layers.state_dict()
        self.found.append((seconds, classifier.of_state(state)))
        self.begin = time.perf_counter()
        return False, Metrics()


def simulated(model: Arrays, rows: list[Arrays], rounds: int) -> Iterator[tuple[float, Arrays]]:
    """All clients in each round, without evaluation but for the first."""

    def client(number: int) -> PyTorchTensorDataset:
        row = rows[number]
        tensors = (torch.from_numpy(row["images"]), torch.from_numpy(row["labels"]))
        return PyTorchTensorDataset(tensors, user_id=str(number))

    module = Classifier(model)
    simulated_model = PyTorchModel(
        module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0)
    )
    data = FederatedDataset(client, get_user_sampler("minimize_reuse", list(range(len(rows)))))
    clock = Clock()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,
            train_cohort_size=len(rows),
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data),
        model=simulated_model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=classifier.STEPS,
            local_learning_rate=classifier.RATE,
            local_batch_size=None,
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[clock],
    )
    yield from clock.found
