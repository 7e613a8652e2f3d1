"""Evaluation: what clients measure is put together, and finalized at the server."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch

import stator.federated as fl
from stator._stator import federated as _native
from stator.federated.aggregators._factories import leaves
from stator.federated.learning._models import Model, count_rows, expect_model, if_any
from stator.federated.learning.metrics import Mean, Metric, metric_of, traceable

#: How what clients measure is put together.
_BY_ROWS, _BY_CLIENTS, _SUMS = "by_rows", "by_clients", "sums"


@_native.hidden
def build_evaluation(model: Model, metrics: Mapping[str, Any] | None = None) -> Any:
    """A computation of weights at the server and rows at clients: what is measured of the weights,
    by names. The module is in evaluation mode.

    metrics: functions of outputs and labels that give the mean over the rows, as a scalar or a
        tensor whose sizes are known: what comes is the mean over all rows. Or `metrics.Mean`,
        `metrics.SumThenFinalize`, or a `metrics.Metric` of your own, or objects of torchmetrics'
        whose states are sums. The loss comes in any case, as `loss`.
    """
    measure, merge = evaluation_of(model, metrics)

    def evaluate(weights: Any, rows: Any) -> Any:
        return merge(fl.federated_map(measure, (fl.federated_broadcast(weights), rows)))

    return fl.federated_computation(
        evaluate,
        fl.FederatedType(model.weights_type, fl.SERVER),
        fl.FederatedType(model.rows_type, fl.CLIENTS),
    )


def evaluation_of(
    model: Model, metrics: Mapping[str, Any] | None
) -> tuple[Any, Callable[[Any], Any]]:
    """What a client measures of weights and rows, and what the server makes of that."""
    expect_model(model)
    found = {name: metric_of(each, name) for name, each in (metrics or {}).items()}
    found = {"loss": found.pop("loss", Mean(model.loss)), **found}
    parts = {name: _part(each) for name, each in found.items()}

    with model.evaluating(), traceable(found.values()):
        measure = fl.local_computation(model.weights_type, model.rows_type)(
            _measuring(model, found, parts)
        )
    _check(measure.type_signature.result)
    merged = [
        (part, measure.type_signature.result[part])
        for part in (_BY_ROWS, _BY_CLIENTS, _SUMS)
        if part in parts.values()
    ]
    with traceable(found.values()):
        finish = fl.local_computation(fl.StructWithPythonType(merged, OrderedDict))(
            _finishing(found, parts)
        )

    def put_together(measured: Any) -> Any:
        merge: dict[str, Callable[[], Any]] = {
            _BY_ROWS: lambda: fl.federated_mean(measured.by_rows, weight=measured.rows),
            _BY_CLIENTS: lambda: fl.federated_mean(measured.by_clients, weight=measured.has_rows),
            _SUMS: lambda: fl.federated_sum(measured.sums),
        }
        total = OrderedDict((part, merge[part]()) for part, _ in merged)
        if list(total) == [_BY_ROWS]:
            return total[_BY_ROWS]
        return fl.federated_map(finish, fl.federated_zip(total))

    return measure, put_together


def _part(metric: Mean | Metric) -> str:
    if isinstance(metric, Mean):
        return _BY_ROWS if metric.weighted else _BY_CLIENTS
    return _SUMS


def _measuring(
    model: Model, metrics: Mapping[str, Mean | Metric], parts: Mapping[str, str]
) -> Callable[..., Any]:
    """What a client does."""

    def measured(module: Any, rows: Any) -> Any:
        outputs, labels, count = module(rows["inputs"]), rows["labels"], count_rows(rows)
        found: dict[str, Any] = {part: OrderedDict() for part in (_BY_ROWS, _BY_CLIENTS, _SUMS)}
        for name, metric in metrics.items():
            if isinstance(metric, Mean):
                value = metric.function(outputs, labels)
                if not isinstance(value, (torch.Tensor, bool, int, float)):
                    raise TypeError(
                        f"metric `{name}` gives a {type(value).__qualname__}, not a tensor."
                    )
                value = _tensor(value).to(torch.float32)
            else:
                value = metric.measure(outputs, labels)
            # Whoever has no rows has nothing to say.
            found[parts[name]][name] = _if_any(count, value)
        told = OrderedDict((part, each) for part, each in found.items() if each)
        return OrderedDict(**told, rows=count, has_rows=(count > 0).to(torch.float32))

    return lambda weights, rows: model.applied(weights, measured, rows)


def _finishing(
    metrics: Mapping[str, Mean | Metric], parts: Mapping[str, str]
) -> Callable[[Any], Any]:
    """What the server does with what was measured."""

    def finished(total: Any) -> Any:
        found: OrderedDict[str, Any] = OrderedDict()
        for name, metric in metrics.items():
            value = total[parts[name]][name]
            found[name] = value if isinstance(metric, Mean) else metric.finalize(value)
        return found

    return finished


def _tensor(value: Any) -> Any:
    """A number of Python's is a scalar."""
    if isinstance(value, torch.Tensor):
        return value
    return torch.full((), value, dtype=torch.float32 if isinstance(value, float) else torch.int64)


def _if_any(count: Any, value: Any) -> Any:
    """The sums in containers where there are rows, otherwise zeros."""
    if isinstance(value, Mapping):
        return OrderedDict((name, _if_any(count, part)) for name, part in value.items())
    if isinstance(value, (tuple, list)):
        return [_if_any(count, part) for part in value]
    return if_any(count, _tensor(value))


def _check(measured: Any) -> None:
    """Raises `TypeError` if something that was measured isn't the same for each number of rows."""
    for part, of in measured.items():
        if part in (_BY_ROWS, _BY_CLIENTS, _SUMS):
            for name, metric in of.items():
                for _, tensor in leaves(metric):
                    if tensor.shape is None or None in tensor.shape:
                        raise TypeError(
                            f"metric `{name}` has a number for each row, or of another size that "
                            f"isn't known\n  expected: a mean or a sum over the rows\n"
                            f"  found:    {metric}"
                        )
