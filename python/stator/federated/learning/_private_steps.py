"""What a client does whose steps are private: one program for each step, applied again and again.

A program of many steps would be as long as they are many. Here a first step makes the optimizer's
state, and another program takes a step from such a state. It is applied by functions that apply
each other twice, so what is written down grows with the logarithm of the number of steps alone.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

import stator.federated as fl
from stator.federated import framework
from stator.federated.learning._client_privacy import DPSGD
from stator.federated.learning._models import Model, count_rows, trainable, updated

_LOG = logging.getLogger("stator.federated")

_Optimizer = Callable[[list[Any]], torch.optim.Optimizer]


class _NotApartError(Exception):
    """The steps of an optimizer can't be taken apart."""


def private_training(model: Model, make: _Optimizer, steps: int, privacy: DPSGD) -> Any:
    """A computation of weights and rows: a client's update, and how many rows it has."""
    gradients = privacy.gradients(model)

    def take(parameters: dict[str, Any], optimizer: torch.optim.Optimizer, rows: Any) -> None:
        for name, gradient in gradients(parameters, rows).items():
            parameters[name].grad = gradient.to(parameters[name].dtype)
        optimizer.step()

    def changed(weights: Any, parameters: Any, rows: Any) -> Any:
        count = count_rows(rows)
        return updated(weights, parameters, count), count

    def whole(weights: Any, rows: Any) -> Any:
        parameters = trainable(weights)
        optimizer = make(list(parameters.values()))
        for _ in range(steps):
            optimizer.zero_grad()
            take(parameters, optimizer, rows)
        return changed(weights, parameters, rows)

    def first(weights: Any, rows: Any) -> Any:
        parameters = trainable(weights)
        optimizer = make(list(parameters.values()))
        _check(optimizer)
        take(parameters, optimizer, rows)
        return _told(parameters, optimizer)

    def again(carried: Any, rows: Any) -> Any:
        parameters = trainable(carried["parameters"])
        optimizer = make(list(parameters.values()))
        _put(optimizer, parameters, carried.get("state", {}))
        take(parameters, optimizer, rows)
        return _told(parameters, optimizer)

    def last(weights: Any, carried: Any, rows: Any) -> Any:
        return changed(weights, carried["parameters"], rows)

    of_weights, of_rows = model.weights_type, model.rows_type
    if steps > 1:
        try:
            begin = fl.local_computation(of_weights, of_rows)(first)
            of_carried = begin.type_signature.result
            try:
                go_on = fl.local_computation(of_carried, of_rows)(again)
            except Exception as error:
                # As the first step could be traced, it is the state that is in the way.
                why = str(error).partition("\n")[0]
                raise _NotApartError(f"a later step can't be traced alone: {why}") from error
            if go_on.type_signature.result != of_carried:
                raise _NotApartError("its state changes its form from step to step")
            finish = fl.local_computation(of_weights, of_carried, of_rows)(last)
            return _composed(begin, go_on, steps - 1, finish)
        except _NotApartError as error:
            _LOG.info("%d private steps of a client are one program: %s", steps, error)
    return fl.local_computation(of_weights, of_rows)(whole)


def _check(optimizer: Any) -> None:
    """Raises `_NotApartError` if something may be remembered beyond the optimizer's `state`."""
    if not type(optimizer).__module__.startswith("torch.optim."):
        raise _NotApartError(f"{type(optimizer).__name__} may remember more than its `state`")
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise _NotApartError("the optimizer has hooks")


def _told(parameters: dict[str, Any], optimizer: torch.optim.Optimizer) -> Any:
    """What is carried from a step to the next one."""
    state: OrderedDict[str, Any] = OrderedDict()
    for place, parameter in enumerate(parameters.values()):
        for key, value in optimizer.state[parameter].items():
            if not isinstance(value, torch.Tensor):
                raise _NotApartError(f"`{key}` in the optimizer's state is no tensor")
            state[f"{place}.{key}"] = value.detach()
    carried = OrderedDict(
        parameters=OrderedDict((name, each.detach()) for name, each in parameters.items())
    )
    if state:
        carried["state"] = state
    return carried


def _put(optimizer: torch.optim.Optimizer, parameters: dict[str, Any], state: Any) -> None:
    leaves = list(parameters.values())
    for group in optimizer.param_groups:
        if "capturable" in group:
            # How many steps there were is read from a tensor, and not by Python.
            group["capturable"] = True
    for name, value in state.items():
        place, _, key = name.partition(".")
        # Steps write to it.
        optimizer.state[leaves[int(place)]][key] = value.clone()


def _composed(begin: Any, go_on: Any, times: int, finish: Any) -> Any:
    """`begin`, so many times `go_on`, and `finish`: a function of weights and rows."""
    of_argument = begin.type_signature.parameter
    of_carried = begin.type_signature.result
    of_step = fl.FunctionType(of_carried, of_carried)
    argument = framework.Reference("client", of_argument)
    weights = framework.Selection(argument, index=0)
    rows = framework.Selection(argument, index=1)
    carried = framework.Reference("carried", of_carried)

    def called(computation: Any, *given: Any) -> Any:
        names = [name for name, _ in computation.type_signature.parameter.items()]
        block = computation.to_compiled_building_block()
        return framework.Call(block, framework.Struct(list(zip(names, given, strict=True))))

    def step(doublings: int) -> Any:
        return framework.Reference(f"steps_{2**doublings}", of_step)

    local = [("steps_1", framework.Lambda("carried", of_carried, called(go_on, carried, rows)))]
    for doublings in range(1, times.bit_length()):
        before = step(doublings - 1)
        twice = framework.Call(before, framework.Call(before, carried))
        local.append((step(doublings).name, framework.Lambda("carried", of_carried, twice)))
    found: Any = called(begin, weights, rows)
    for doublings in range(times.bit_length()):
        if times >> doublings & 1:
            found = framework.Call(step(doublings), found)
    result = framework.Block(local, called(finish, weights, found, rows))
    client = framework.Lambda("client", of_argument, result)
    return framework.ConcreteComputation.from_building_block(client)
