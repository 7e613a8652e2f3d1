"""SCAFFOLD: clients' steps are corrected by how their gradients differ from those of all.

Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, 2020
(arXiv 1910.06378), with the second way of updating control variates.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import torch

import stator.federated as fl
from stator._stator import federated as _native
from stator.federated.aggregators import AggregationFactory, UnweightedMeanFactory
from stator.federated.aggregators._factories import expect_count, expect_number
from stator.federated.learning import _optimizers
from stator.federated.learning._checks import Round, field
from stator.federated.learning._models import (
    Model,
    all_wide,
    count_rows,
    expect_model,
    expect_no_statistics,
    if_any,
    rounded,
    updated,
    wide,
)
from stator.federated.learning._optimizers import ServerOptimizer, expect_server
from stator.federated.learning._processes import IterativeProcess, created

_ID = fl.TensorType(np.int32)


@_native.hidden
def build_scaffold(
    model: Model,
    *,
    clients: int,
    client_learning_rate: float = 0.1,
    server_optimizer: ServerOptimizer | None = None,
    steps: int = 1,
    model_aggregator: AggregationFactory | None = None,
) -> IterativeProcess:
    """SCAFFOLD: each client keeps a control variate, what its gradients were at last, and the
    server the mean of them. A client's step is along its gradient plus the server's control variate
    minus its own, so that steps of clients with different rows don't lead apart.

    What a client has is `inputs`, `labels` and its number (`client`), by which it is known from
    round to round. The state has the server's control variate (`control`) and those of all clients
    (`controls`), in the order of their numbers: memory is that of clients times model. Each client
    of a round is sent its own one alone.

    clients: how many clients there are; their numbers are below that.
    client_learning_rate: of the clients' steps, which are plain SGD.
    server_optimizer: what becomes of the clients' mean update; `sgd(1.0)` where nothing is said.
    steps: how many steps a client takes in a round, each on all of its rows.
    model_aggregator: what is made of the clients' updates; their mean, in which each client of the
        round counts the same, where nothing is said.
    """
    expect_model(model)
    expect_no_statistics(model, "SCAFFOLD")
    count = expect_count(clients, "clients", least=1)
    rate = expect_number(client_learning_rate, "client_learning_rate", above=0)
    steps = expect_count(steps, "steps", least=1)
    server = expect_server(server_optimizer) or _optimizers.sgd()
    factory = UnweightedMeanFactory() if model_aggregator is None else model_aggregator
    if isinstance(factory, AggregationFactory) and factory.is_private:
        raise TypeError(
            "SCAFFOLD can't be private: the server sees the clients' control variates, and "
            f"{factory!r} makes noise for updates alone. Use `build_fed_avg`."
        )
    of_weights, of_update = model.weights_type, model.update_type
    aggregator = created(factory, of_update, np.float32)
    of_rows = fl.StructWithPythonType([*model.rows_type.items(), ("client", _ID)], OrderedDict)

    train = fl.local_computation(of_weights, of_update, of_update, of_rows)(
        _training(model, rate, steps)
    )

    def begin() -> Any:
        weights = model.constants()
        like = all_wide(weights)
        return OrderedDict(
            weights=weights,
            optimizer=server.initialize(like),
            round=torch.zeros((), dtype=torch.int32),
            control=_mapped(torch.zeros_like, like),
            controls=_mapped(lambda of: of.new_zeros((count, *of.shape)), like),
        )

    begin_locally = fl.local_computation(begin)
    started = begin_locally.type_signature.result

    def initialize() -> Any:
        state = fl.federated_eval(begin_locally, fl.SERVER)
        fields = OrderedDict((name, getattr(state, name)) for name, _ in started.items())
        return fl.federated_zip(OrderedDict(**fields, aggregator=aggregator.initialize()))

    def advance(weights: Any, moments: Any, number: Any, update: Any) -> Any:
        moments, found = server.step(moments, all_wide(weights), update)
        return rounded(found, weights), moments, number + 1

    initially = fl.federated_computation(initialize)
    advance_locally = fl.local_computation(of_weights, started["optimizer"], _ID, of_update)(
        advance
    )
    own_of = _selection(started["controls"], count)
    remember = _remembering(of_update, started["controls"], count)

    def following(state: Any, rows: Any) -> Any:
        own = own_of(state.controls, rows.client)
        sent = (fl.federated_broadcast(state.weights), fl.federated_broadcast(state.control))
        trained = fl.federated_map(train, (*sent, own, rows))
        weight = (trained[3],) if aggregator.is_weighted else ()
        aggregated = aggregator.next(state.aggregator, trained[0], *weight)
        control, controls = remember(state.control, state.controls, rows.client, trained[1])
        metrics = OrderedDict(
            loss=fl.federated_mean(trained[2], weight=trained[3]),
            rows=fl.federated_sum(trained[3]),
        )
        if aggregator.measures:
            metrics["aggregator"] = aggregated.measurements
        advanced = fl.federated_map(
            advance_locally, (state.weights, state.optimizer, state.round, aggregated.result)
        )
        state = OrderedDict(
            weights=advanced[0],
            optimizer=advanced[1],
            round=advanced[2],
            control=control,
            controls=controls,
            aggregator=aggregated.state,
        )
        return fl.federated_zip(state), fl.federated_zip(metrics)

    of_clients = fl.FederatedType(of_rows, fl.CLIENTS)
    following_round = fl.federated_computation(
        following, initially.type_signature.result, of_clients
    )

    return IterativeProcess(initially, Round(following_round, train, _given, factory, count))


def _given(state: Any, rows: Any) -> tuple[Any, ...]:
    own = _mapped(lambda table: table[int(field(rows, "client"))], state["controls"])
    return state["weights"], state["control"], own, rows


def _training(model: Model, rate: float, steps: int) -> Any:
    """What a client does: its update, the change of its control variate, its loss and its rows."""

    def local(weights: Any, control: Any, own: Any, rows: Any) -> Any:
        parameters = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
        first: Any = None
        for _ in range(steps):
            loss = model.loss_of(parameters, rows)
            first = loss.detach() if first is None else first
            found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
            # What the loss doesn't depend on stays as it is.
            gradients = [
                torch.zeros_like(tensor) if gradient is None else gradient
                for gradient, tensor in zip(found, parameters.values(), strict=True)
            ]
            parameters = {
                name: (wide(tensor) - rate * (wide(gradient) - own[name] + control[name]))
                .to(tensor.dtype)
                .detach()
                .requires_grad_()
                for (name, tensor), gradient in zip(parameters.items(), gradients, strict=True)
            }
        count = count_rows(rows)
        update = updated(weights, parameters, count)
        change = OrderedDict(
            (name, if_any(count, update[name] / (steps * rate) - control[name])) for name in weights
        )
        # An aggregator may put up with an update that isn't finite; sums of changes don't.
        fit = torch.stack([torch.isfinite(tensor).all() for tensor in change.values()]).all()
        change = _mapped(lambda tensor: torch.where(fit, tensor, torch.zeros_like(tensor)), change)
        return update, change, if_any(count, first.to(torch.float32)), count

    return local


def _selection(of_controls: Any, count: int) -> Any:
    """A function that gives clients their own control variates, within a federated computation."""

    def row(controls: Any, number: Any) -> Any:
        return _mapped(lambda table: table[number], controls)

    select = fl.local_computation(of_controls, _ID)(row)
    # A client asks for one: the sum of the sequence it gets is that.
    only = fl.federated_computation(
        lambda found: fl.sequence_sum(found), fl.SequenceType(select.type_signature.result)
    )
    as_keys = fl.local_computation(_ID)(lambda number: number.reshape(1))

    def own_of(controls: Any, numbers: Any) -> Any:
        greatest = fl.federated_value(count - 1, fl.SERVER)
        keys = fl.federated_map(as_keys, numbers)
        return fl.federated_map(only, fl.federated_select(keys, greatest, controls, select))

    return own_of


def _remembering(of_update: Any, of_controls: Any, count: int) -> Any:
    """A function that gives the server's new control variate and the clients', likewise."""

    def added(controls: Any, changes: Any) -> Any:
        numbers, change = changes
        return _mapped(
            lambda table, rows: table.index_add(0, numbers.to(torch.int64), rows), controls, change
        )

    def moved(control: Any, change: Any) -> Any:
        return _mapped(lambda tensor, by: tensor + by / count, control, change)

    of_change = fl.StructWithPythonType([(None, _ID), (None, of_update)], tuple)
    add = fl.local_computation(of_controls, fl.SequenceType(of_change))(added)
    move = fl.local_computation(of_update, of_update)(moved)

    def remember(control: Any, controls: Any, numbers: Any, change: Any) -> tuple[Any, Any]:
        changes = fl.federated_collect((numbers, change))
        control = fl.federated_map(move, (control, fl.federated_sum(change)))
        return control, fl.federated_map(add, (controls, changes))

    return remember


def _mapped(function: Any, first: Any, *others: Any) -> Any:
    """What a function gives for the tensors of dictionaries."""
    return OrderedDict(
        (name, function(tensor, *(of[name] for of in others))) for name, tensor in first.items()
    )
