"""Evaluation: means, sums that are finalized, objects with states; beside what all rows together give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F

import stator.federated as fl
from stator.errors import ProgramError
from stator.federated import learning
from stator.federated.execution import LocalContext
from stator.federated.learning import metrics

from .classifiers import classifier, drawn_clients

SIZES = (5, 0, 9, 20, 7)


def model() -> learning.Model:
    torch.manual_seed(0)
    return classifier(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)), 4)


def accuracy(outputs: Any, labels: Any) -> Any:
    return (outputs.argmax(1) == labels).float().mean()


def confusion(outputs: Any, labels: Any) -> Any:
    return F.one_hot(labels * 3 + outputs.argmax(1), 9).sum(0).reshape(3, 3)


def recall(total: Any) -> Any:
    return {"each": total.diagonal() / total.sum(1), "whole": total.trace() / total.sum()}


class Summed:
    """Declares its state as metrics of torchmetrics' do."""

    def __init__(self, **states: Any) -> None:
        self.calls = 0
        self._defaults = {name: default for name, (default, _) in states.items()}
        self._reductions = {name: reduction for name, (_, reduction) in states.items()}
        for name, default in self._defaults.items():
            setattr(self, name, default)


def dim_zero_sum(_: Any) -> Any:
    raise AssertionError("its name alone is looked at")


class Error(Summed):
    """The share of wrong rows."""

    def __init__(self) -> None:
        super().__init__(
            wrong=(torch.tensor(0), dim_zero_sum), rows=(torch.tensor(0.0), dim_zero_sum)
        )

    def update(self, outputs: Any, labels: Any) -> None:
        self.wrong += (outputs.argmax(1) != labels).sum()
        self.rows = self.rows + labels.shape[0]
        self.calls += 1

    def compute(self) -> Any:
        return self.wrong / self.rows


def whole(of: learning.Model, clients: list[Any]) -> tuple[Any, Any]:
    """Outputs and labels of all rows, in evaluation mode."""
    inputs = torch.from_numpy(np.concatenate([client["inputs"] for client in clients]))
    labels = torch.from_numpy(np.concatenate([client["labels"] for client in clients]))
    before = of.module.training
    outputs = of.module.eval()(inputs).detach()
    of.module.train(before)
    return outputs, labels


MEASURED = {
    "accuracy": accuracy,
    "fair": metrics.Mean(accuracy, weighted=False),
    "confusion": metrics.SumThenFinalize(confusion),
    "recall": metrics.SumThenFinalize(confusion, recall),
    "rows": metrics.SumThenFinalize(lambda outputs, labels: len(labels)),
    "shares": lambda outputs, labels: F.one_hot(labels, 3).float().mean(0),
}


@pytest.mark.parametrize("exact", [False, True])
def test_metrics_are_those_of_all_rows(exact: bool) -> None:
    of, clients = model(), drawn_clients(SIZES, 0)
    error = Error()
    evaluate = learning.build_evaluation(of, {**MEASURED, "error": error})
    with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
        found = evaluate(of.weights(), clients)
    outputs, labels = whole(of, clients)
    assert list(found) == ["loss", *MEASURED, "error"]
    assert found["loss"] == pytest.approx(F.cross_entropy(outputs, labels).item(), rel=1e-5)
    assert found["accuracy"] == pytest.approx(accuracy(outputs, labels).item())
    each = [accuracy(*whole(of, [client])).item() for client in clients if len(client["labels"])]
    assert found["fair"] == pytest.approx(np.mean(each))
    table = confusion(outputs, labels)
    np.testing.assert_array_equal(found["confusion"], table)
    np.testing.assert_allclose(found["recall"]["each"], recall(table)["each"])
    assert found["recall"]["whole"] == found["accuracy"]
    assert found["rows"] == sum(SIZES)
    np.testing.assert_allclose(found["shares"], labels.bincount() / len(labels), rtol=1e-6)
    assert found["error"] == pytest.approx(1 - found["accuracy"])
    # The object itself stays as it is, and so does the module.
    assert error.calls == 0 and error.rows == 0 and error.wrong == 0
    assert all(module.training for module in of.module.modules())


def test_an_evaluation_prints_and_can_be_sent() -> None:
    of, clients = model(), drawn_clients(SIZES, 1)
    evaluate = learning.build_evaluation(of, MEASURED)
    assert "-> <loss=float32,accuracy=float32,fair=float32,confusion=int64[3,3]," in str(
        evaluate.type_signature
    )
    read = fl.framework.ConcreteComputation.from_bytes(evaluate.to_bytes())
    expected, found = evaluate(of.weights(), clients), read(of.weights(), clients)
    assert list(found) == list(expected)
    for name in ("loss", "accuracy", "fair", "confusion", "rows", "shares"):
        np.testing.assert_array_equal(found[name], expected[name])
    assert found["recall"]["whole"] == expected["recall"]["whole"]


def test_a_loss_of_ones_own() -> None:
    of = model()
    found = learning.build_evaluation(of, {"loss": metrics.SumThenFinalize(confusion)})
    assert str(found.type_signature.result) == "<loss=int64[3,3]>@SERVER"


def test_what_reads_the_module_reads_the_weights_that_are_evaluated() -> None:
    net = nn.Linear(4, 3)
    of = learning.Model(
        net,
        lambda outputs, labels: F.cross_entropy(outputs, labels) + net.weight.pow(2).sum(),
        inputs=fl.TensorType(np.float32, [None, 4]),
        labels=fl.TensorType(np.int64, [None]),
    )
    zeros = {name: np.zeros_like(array) for name, array in of.weights().items()}
    found = learning.build_evaluation(of)(zeros, drawn_clients((4,), 0))
    assert found["loss"] == pytest.approx(np.log(3))


class Kept(Summed):
    def __init__(self) -> None:
        super().__init__(scores=([], None))

    def update(self, outputs: Any, labels: Any) -> None: ...

    def compute(self) -> Any: ...


class Greatest(Summed):
    def __init__(self) -> None:
        def dim_zero_max(_: Any) -> Any: ...

        super().__init__(most=(torch.tensor(0.0), dim_zero_max))


class Counter:
    def update(self, outputs: Any, labels: Any) -> None: ...

    def compute(self) -> Any: ...


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (3, "metric `m` is 3"),
        (nn.Linear, "metric `m` is <class"),
        (Kept(), "keeps what it was given for each row"),
        (Greatest(), "`most`, reduced by dim_zero_max"),
        (Counter(), "nothing says what the state of Counter is"),
        (lambda outputs, labels: outputs.argmax(1) == labels, "a number for each row"),
        (metrics.SumThenFinalize(lambda outputs, labels: labels), "a number for each row"),
    ],
)
def test_what_is_no_metric_is_said(given: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        learning.build_evaluation(model(), {"m": given})


def test_what_decides_by_numbers_is_said() -> None:
    of, clients = model(), drawn_clients((5, 9, 20, 7), 0)
    given = {"read": lambda outputs, _: outputs.mean().item(), "mean": lambda y, _: y.mean()}
    found = learning.build_evaluation(of, given)(of.weights(), clients)
    assert found["read"] == found["mean"]
    with pytest.raises(ProgramError, match="a truth value"):
        learning.build_evaluation(of, {"m": lambda outputs, _: bool(outputs.sum().item())})
    for wrong in (metrics.Mean, metrics.SumThenFinalize):
        with pytest.raises(TypeError, match="is to be a function, not 3"):
            wrong(3)  # type: ignore[arg-type]


def test_objects_of_torchmetrics() -> None:
    torchmetrics = pytest.importorskip("torchmetrics")
    of, clients = model(), drawn_clients((5, 9, 20, 7), 0)
    given = {
        "f1": torchmetrics.classification.MulticlassF1Score(num_classes=3),
        "confusion": torchmetrics.classification.MulticlassConfusionMatrix(num_classes=3),
    }
    evaluate = learning.build_evaluation(of, given)
    found = evaluate(of.weights(), clients)
    for name, metric in given.items():
        metric.update(*whole(of, clients))
        np.testing.assert_allclose(found[name], metric.compute(), rtol=1e-5)
