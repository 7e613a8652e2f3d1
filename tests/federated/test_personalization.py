"""Personalisation: each client's steps from the server's weights, beside a loop; what it brings."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F

import stator.federated as fl
from stator.federated import learning
from stator.federated.execution import LocalContext
from stator.federated.learning import metrics

from .classifiers import classifier, drawn_clients

TRAINED, TESTED = (5, 9, 9, 0, 4), (3, 6, 6, 4, 0)


def model() -> learning.Model:
    torch.manual_seed(0)
    return classifier(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), 4)


def accuracy(outputs: Any, labels: Any) -> Any:
    return (outputs.argmax(1) == labels).float().mean()


def right(outputs: Any, labels: Any) -> Any:
    return (outputs.argmax(1) == labels).sum()


def clients() -> list[Any]:
    pairs = zip(drawn_clients(TRAINED, 1), drawn_clients(TESTED, 2), strict=True)
    return [{"train": train, "test": test} for train, test in pairs]


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.3, momentum=0.5)


def measured(module: nn.Module, client: Any) -> tuple[float, int]:
    outputs = module(torch.from_numpy(client["test"]["inputs"]))
    labels = torch.from_numpy(client["test"]["labels"])
    return float(F.cross_entropy(outputs, labels, reduction="sum").detach()), int(
        right(outputs, labels)
    )


def test_metrics_are_those_of_a_loop() -> None:
    of = model()
    compute = learning.build_personalization(
        of,
        {"accuracy": accuracy, "right": metrics.SumThenFinalize(right)},
        client_optimizer=sgd,
        steps=4,
    )
    expected = {"before": [0.0, 0], "after": [0.0, 0]}
    for client in clients():
        own = copy.deepcopy(of.module)
        optimizer = sgd(own.parameters())
        for _ in range(4 if len(client["train"]["labels"]) else 0):
            optimizer.zero_grad()
            inputs, labels = map(torch.from_numpy, client["train"].values())
            F.cross_entropy(own(inputs), labels).backward()
            optimizer.step()
        for name, module in (("before", of.module), ("after", own)):
            found = measured(module, client)
            expected[name] = [a + b for a, b in zip(expected[name], found, strict=True)]
    read = fl.framework.ConcreteComputation.from_bytes(compute.to_bytes())
    for run in (compute, read):
        for context in (LocalContext(), LocalContext(exact=True)):
            with fl.framework.get_context_stack().install(context):
                found = run(of.weights(), clients())
            for name, (loss, count) in expected.items():
                np.testing.assert_allclose(found[name]["loss"], loss / sum(TESTED), rtol=1e-5)
                assert found[name]["right"] == count
                np.testing.assert_allclose(found[name]["accuracy"], count / sum(TESTED), rtol=1e-6)
    assert expected["before"] != expected["after"]


def test_the_server_gets_metrics_alone() -> None:
    result = learning.build_personalization(model()).type_signature.result
    assert str(result) == "<before=<loss=float32>@SERVER,after=<loss=float32>@SERVER>"


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ValueError, match="`steps` is to be an integer"):
        learning.build_personalization(model(), steps=0)
    with pytest.raises(TypeError, match="`client_optimizer` is to be a function"):
        learning.build_personalization(model(), client_optimizer=0.1)
    wrong = clients()
    wrong[2]["train"]["labels"] = wrong[2]["train"]["labels"][:-1]
    with pytest.raises(Exception) as met:
        learning.build_personalization(model())(model().weights(), wrong)
    assert any("client 2" in note for note in met.value.__notes__)
