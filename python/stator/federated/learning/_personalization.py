"""Personalisation: each client takes steps of its own from the server's weights, which it keeps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch

import stator.federated as fl
from stator._stator import federated as _native
from stator.federated.aggregators._factories import expect_count
from stator.federated.learning._evaluation import evaluation_of
from stator.federated.learning._models import Model, count_rows, rounded
from stator.federated.learning._processes import ClientOptimizer, checked, stepped, usual


@_native.hidden
def build_personalization(
    model: Model,
    metrics: Mapping[str, Any] | None = None,
    *,
    client_optimizer: ClientOptimizer | None = None,
    steps: int = 1,
) -> Any:
    """A computation that tells what personalisation would bring: `(<weights@SERVER,
    {<train=rows,test=rows>}@CLIENTS> -> <before=metrics,after=metrics>)`.

    Each client takes steps on its rows `train` from the server's weights, as `build_fed_avg` has
    them, and measures on its rows `test`: the server's weights (`before`), and its own (`after`),
    which it sends to nobody. A client without rows to train keeps the server's weights.

    metrics: as `build_evaluation` has them.
    """
    measure, merge = evaluation_of(model, metrics)
    steps = expect_count(steps, "steps", least=1)
    make = checked(client_optimizer or usual)

    def adapted(weights: Any, rows: Any) -> Any:
        parameters, _ = stepped(model, make, steps, weights, weights, rows)
        count = count_rows(rows)
        return OrderedDict(
            (name, torch.where(count > 0, tensor.detach(), weights[name]))
            for name, tensor in rounded(parameters, weights).items()
        )

    adapt = fl.local_computation(model.weights_type, model.rows_type)(adapted)
    of_client = fl.StructWithPythonType(
        [("train", model.rows_type), ("test", model.rows_type)], OrderedDict
    )

    def personalization(weights: Any, rows: Any) -> Any:
        sent = fl.federated_broadcast(weights)
        own = fl.federated_map(adapt, (sent, rows.train))
        return OrderedDict(
            before=merge(fl.federated_map(measure, (sent, rows.test))),
            after=merge(fl.federated_map(measure, (own, rows.test))),
        )

    return fl.federated_computation(
        personalization,
        fl.FederatedType(model.weights_type, fl.SERVER),
        fl.FederatedType(of_client, fl.CLIENTS),
    )
