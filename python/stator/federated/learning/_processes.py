"""Processes: a computation that makes the first state, and one that takes a round."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

import stator.federated as fl
from stator._stator import federated as _native
from stator.federated.aggregators import (
    AggregationFactory,
    AggregationProcess,
    MeanFactory,
)
from stator.federated.aggregators._factories import (
    expect_count,
    expect_factory,
    expect_result,
    nothing,
)
from stator.federated.learning import _optimizers
from stator.federated.learning._checks import Round
from stator.federated.learning._client_privacy import DPSGD
from stator.federated.learning._models import (
    Model,
    all_wide,
    count_rows,
    expect_model,
    expect_real,
    if_any,
    rounded,
    updated,
    wide,
)
from stator.federated.learning._optimizers import ServerOptimizer, expect_server
from stator.federated.learning._private_steps import private_training

ClientOptimizer = Callable[[list[Any]], torch.optim.Optimizer]


@_native.hidden
@dataclasses.dataclass(frozen=True)
class IterativeProcess:
    """Training by rounds. Both parts are computations: they print, are sent elsewhere, and run in
    any context.

    initialize: `( -> state@SERVER)`.
    next: `(<state=state@SERVER,rows={rows}@CLIENTS> -> <state@SERVER,metrics@SERVER>)`. `rows` has
        a pair of inputs and labels for each client; the metrics are the loss before the round
        (`loss`), weighted by the clients' rows, the number of these (`rows`), and what the
        aggregator measures, if it does (`aggregator`). Raises `ClientError` if the new weights
        aren't finite.

    The state is a dictionary of the `weights`, what the server's `optimizer` and the `aggregator`
    remember, and the number of rounds (`round`).
    """

    initialize: Any
    next: Any

    def __post_init__(self) -> None:
        made = self.initialize.type_signature.result
        of = self.next.type_signature
        first = of.parameter
        if isinstance(first, fl.StructType):
            first = next(iter(first), None)
        gives = of.result
        if isinstance(gives, fl.StructType):
            gives = next(iter(gives), None)
        for found, what in ((first, "takes"), (gives, "gives")):
            if found is None or not found.is_assignable_from(made):
                raise TypeError(
                    f"`next` {what} a state of another type than `initialize` makes\n"
                    f"  expected: {made}\n  found:    {found}"
                )

    @property
    def state_type(self) -> Any:
        """The type of the state."""
        return self.initialize.type_signature.result.member

    @_native.hidden
    def run(self, state: Any, rounds: Iterable[Any]) -> tuple[Any, list[Any]]:
        """Takes a round with each of these rows of clients: the last state, and all metrics."""
        metrics = []
        for rows in rounds:
            state, found = self.next(state, rows)
            metrics.append(found)
        return state, metrics


@_native.hidden
def build_fed_avg(
    model: Model,
    *,
    client_optimizer: ClientOptimizer | None = None,
    server_optimizer: ServerOptimizer | None = None,
    steps: int = 1,
    model_aggregator: AggregationFactory | None = None,
    client_privacy: DPSGD | None = None,
) -> IterativeProcess:
    """Federated averaging: McMahan et al., Communication-Efficient Learning of Deep Networks from
    Decentralized Data, 2017 (arXiv 1602.05629).

    client_optimizer: given a list of parameters, an optimizer of PyTorch's that steps them; plain
        SGD with a rate of 0.1 where nothing is said.
    server_optimizer: what becomes of the clients' mean update; `sgd(1.0)`, so that the server has
        the mean of the clients' weights, where nothing is said.
    steps: how many steps a client takes in a round, each on all of its rows.
    model_aggregator: what is made of the clients' updates, by `stator.federated.aggregators`; their
        mean, weighted by the clients' rows, where nothing is said. With a private one the metrics
        are what that measures, and nothing else.
    client_privacy: clients' steps are along gradients with noise, each on a batch of their rows.
        There is no loss in the metrics then: it would tell of rows exactly.

    Statistics of the model's are averaged as the parameters are, whatever the server's optimizer
    makes of these.
    """
    if client_privacy is not None and not isinstance(client_privacy, DPSGD):
        raise TypeError(
            f"`client_privacy` is to be a learning.DPSGD or None, not {client_privacy!r}."
        )
    return _process(
        model,
        client_optimizer,
        server_optimizer,
        steps,
        model_aggregator,
        client_privacy=client_privacy,
    )


@_native.hidden
def build_fed_prox(
    model: Model,
    *,
    proximal_strength: float,
    client_optimizer: ClientOptimizer | None = None,
    server_optimizer: ServerOptimizer | None = None,
    steps: int = 1,
    model_aggregator: AggregationFactory | None = None,
) -> IterativeProcess:
    """FedProx: clients are held near the server's weights. Li et al., Federated Optimization in
    Heterogeneous Networks, 2020 (arXiv 1812.06127).

    proximal_strength: mu; half of it times the squared distance is added to a client's loss.
    """
    if not isinstance(proximal_strength, (int, float)) or not 0 <= proximal_strength < np.inf:
        raise ValueError(f"`proximal_strength` is 0 or more, not {proximal_strength!r}.")
    expect_model(model)
    expect_real(model.parameters(), "FedProx")
    return _process(
        model, client_optimizer, server_optimizer, steps, model_aggregator, proximal_strength
    )


@_native.hidden
def build_fed_sgd(
    model: Model,
    *,
    server_optimizer: ServerOptimizer | None = None,
    model_aggregator: AggregationFactory | None = None,
) -> IterativeProcess:
    """Federated SGD: the clients' mean gradient is the server's. By default a rate of 0.1."""
    server_optimizer = server_optimizer or _optimizers.sgd(0.1)
    return _process(model, _unit_steps, server_optimizer, 1, model_aggregator)


@_native.hidden
def build_fed_adagrad(
    model: Model,
    *,
    client_optimizer: ClientOptimizer | None = None,
    steps: int = 1,
    learning_rate: float = 0.1,
    model_aggregator: AggregationFactory | None = None,
) -> IterativeProcess:
    """Federated averaging with `adagrad` at the server."""
    server_optimizer = _optimizers.adagrad(learning_rate)
    return _process(model, client_optimizer, server_optimizer, steps, model_aggregator)


@_native.hidden
def build_fed_adam(
    model: Model,
    *,
    client_optimizer: ClientOptimizer | None = None,
    steps: int = 1,
    learning_rate: float = 0.1,
    model_aggregator: AggregationFactory | None = None,
) -> IterativeProcess:
    """Federated averaging with `adam` at the server."""
    server_optimizer = _optimizers.adam(learning_rate)
    return _process(model, client_optimizer, server_optimizer, steps, model_aggregator)


@_native.hidden
def build_fed_yogi(
    model: Model,
    *,
    client_optimizer: ClientOptimizer | None = None,
    steps: int = 1,
    learning_rate: float = 0.1,
    model_aggregator: AggregationFactory | None = None,
) -> IterativeProcess:
    """Federated averaging with `yogi` at the server."""
    server_optimizer = _optimizers.yogi(learning_rate)
    return _process(model, client_optimizer, server_optimizer, steps, model_aggregator)


def _unit_steps(parameters: list[Any]) -> torch.optim.Optimizer:
    """A step along the gradient: what a client's weights are reduced by is the gradient."""
    return torch.optim.SGD(parameters, lr=1.0)


def checked(make: Any) -> ClientOptimizer:
    """The function that a client optimizer is, which looks at what it gives."""
    if not callable(make):
        raise TypeError(
            "`client_optimizer` is to be a function that gives an optimizer for a list of "
            f"parameters, such as `lambda of: torch.optim.SGD(of, lr=0.1)`, not {make!r}."
        )

    def made(parameters: list[Any]) -> torch.optim.Optimizer:
        optimizer = make(parameters)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(
                f"`client_optimizer` gives a {type(optimizer).__qualname__}, not an optimizer of "
                "PyTorch's."
            )
        if isinstance(optimizer, torch.optim.LBFGS):
            raise TypeError(
                "`client_optimizer` gives an LBFGS, whose steps compute the loss as often as it "
                "decides by data: a program can't. All others of `torch.optim` can be."
            )
        return optimizer

    return made


def stepped(
    model: Model,
    make: ClientOptimizer,
    steps: int,
    own: Any,
    weights: Any,
    rows: Any,
    proximal_strength: float = 0.0,
) -> tuple[dict[str, Any], Any]:
    """The weights after a client's steps from `own`, and the loss before them; within a local
    computation."""
    kept = {name: weights[name].clone() for name in model._kept}
    # A client counts its own steps.
    counted = model.counters()
    trained = {
        name: tensor.clone().requires_grad_() for name, tensor in own.items() if name not in kept
    }
    optimizer = make(list(trained.values()))
    first: Any = None
    for _ in range(steps):
        optimizer.zero_grad()
        given = rounded({**trained, **kept}, weights)
        loss = model.loss_of({**given, **counted}, rows)
        first = loss.detach() if first is None else first
        if proximal_strength:
            pairs = [(wide(trained[name]), wide(weights[name])) for name in trained]
            away = [(parameter - weight).pow(2).sum() for parameter, weight in pairs]
            loss = loss + proximal_strength / 2 * sum(away)
        loss.backward()
        optimizer.step()
    return {**trained, **kept}, first


def trained_of(model: Model, weights: Any) -> Any:
    """Those of the weights that an optimizer steps."""
    return OrderedDict((name, weights[name]) for name in weights if name not in model._kept)


def usual(parameters: list[Any]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def _process(
    model: Model,
    client_optimizer: ClientOptimizer | None,
    server_optimizer: ServerOptimizer | None,
    steps: int,
    model_aggregator: AggregationFactory | None,
    proximal_strength: float = 0.0,
    client_privacy: DPSGD | None = None,
) -> IterativeProcess:
    expect_model(model)
    steps = expect_count(steps, "steps", least=1)
    factory = MeanFactory() if model_aggregator is None else model_aggregator
    aggregator = created(factory, model.update_type, np.float32)
    make = checked(client_optimizer or usual)
    server = expect_server(server_optimizer) or _optimizers.sgd()

    def local(weights: Any, rows: Any) -> Any:
        # Where what a client sends is its gradient, that is with all its digits.
        own = all_wide(weights) if client_optimizer is _unit_steps else weights
        parameters, first = stepped(model, make, steps, own, weights, rows, proximal_strength)
        count = count_rows(rows)
        # Whoever has no rows has no loss, and changes nothing.
        update = updated(weights, parameters, count)
        return update, count, if_any(count, first.to(torch.float32))

    def begin() -> Any:
        # The module's parameters, as they are now, are constants of the program.
        weights = model.constants()
        moments = server.initialize(trained_of(model, all_wide(weights)))
        return OrderedDict(
            weights=weights, optimizer=moments, round=torch.zeros((), dtype=torch.int32)
        )

    begin_locally = fl.local_computation(begin)

    def initialize() -> Any:
        started = fl.federated_eval(begin_locally, fl.SERVER)
        return _with_aggregator(started, aggregator.initialize())

    initially = fl.federated_computation(initialize)
    of_weights = model.weights_type
    if client_privacy is None:
        train = fl.local_computation(of_weights, model.rows_type)(local)
    else:
        train = private_training(model, make, steps, client_privacy)

    def advance(weights: Any, moments: Any, number: Any, update: Any) -> Any:
        own = all_wide(weights)
        moments, found = server.step(moments, trained_of(model, own), trained_of(model, update))
        # Whatever the optimizer does, statistics are the clients' mean.
        found = {**found, **{name: own[name] - update[name] for name in model._kept}}
        return OrderedDict(weights=rounded(found, weights), optimizer=moments, round=number + 1)

    started = begin_locally.type_signature.result
    advance_locally = fl.local_computation(
        of_weights, started["optimizer"], started["round"], model.update_type
    )(advance)

    def following(state: Any, rows: Any) -> Any:
        weights = fl.federated_broadcast(state.weights)
        trained = fl.federated_map(train, (weights, rows))
        weight = (trained[1],) if aggregator.is_weighted else ()
        aggregated = aggregator.next(state.aggregator, trained[0], *weight)
        metrics: OrderedDict[str, Any] = OrderedDict()
        if not factory.is_private:
            if client_privacy is None:
                metrics["loss"] = fl.federated_mean(trained[2], weight=trained[1])
            metrics["rows"] = fl.federated_sum(trained[1])
        if aggregator.measures:
            metrics["aggregator"] = aggregated.measurements
        advanced = fl.federated_map(
            advance_locally, (state.weights, state.optimizer, state.round, aggregated.result)
        )
        told = fl.federated_zip(metrics) if metrics else nothing()
        return _with_aggregator(advanced, aggregated.state), told

    of_clients = fl.FederatedType(model.rows_type, fl.CLIENTS)
    following_round = fl.federated_computation(
        following, initially.type_signature.result, of_clients
    )

    return IterativeProcess(initially, Round(following_round, train, _given, factory))


def _given(state: Any, rows: Any) -> tuple[Any, ...]:
    return state["weights"], rows


def created(given: Any, value_type: Any, weight_type: Any) -> AggregationProcess:
    """The process of an aggregator of updates."""
    factory = expect_factory(given, "model_aggregator")
    process = factory.create(value_type, weight_type if factory.is_weighted else None)
    if not isinstance(process, AggregationProcess):
        raise TypeError(f"{factory!r} creates no AggregationProcess, but {process!r}.")
    expect_result(factory, process, value_type)
    return process


def _with_aggregator(state: Any, remembered: Any) -> Any:
    """A state at the server, with what the aggregator remembers."""
    return fl.federated_zip(
        OrderedDict(
            weights=state.weights,
            optimizer=state.optimizer,
            round=state.round,
            aggregator=remembered,
        )
    )
