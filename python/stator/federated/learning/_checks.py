"""What is wrong with a round is said: which client it is, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stator._stator import federated as _native
from stator.federated import framework
from stator.federated._abstract import ChecksResult
from stator.federated.aggregators import AggregationFactory


class ClientError(ValueError):
    """A round that can't be taken. The state before it is as it was.

    client: the client with which something is wrong, counted from 0 in the order of the round;
        `None` if it isn't one.
    """

    def __init__(self, message: str, client: int | None = None) -> None:
        super().__init__(message)
        self.client = client


class Round(framework.ConcreteComputation, ChecksResult):
    """A round that raises `ClientError` rather than giving weights that aren't finite: a
    computation of a state and the clients' rows, whose first result is a state.

    train: the part of it that clients do; the first result is what a client sends.
    given: what `train` is given, of the state and the rows of one client. A function of a module.
    aggregator: of what clients send.
    clients: how many there are, where they have numbers (`client`).
    """

    def __init__(
        self,
        computation: Any,
        train: Any,
        given: Callable[[Any, Any], tuple[Any, ...]],
        aggregator: AggregationFactory,
        clients: int | None = None,
    ) -> None:
        super().__init__(
            computation_proto=computation.to_compiled_building_block(),
            context_stack=framework.get_context_stack(),
            annotated_type=computation.type_signature,
        )
        self._parts = computation, train, given, aggregator, clients

    @_native.hidden
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        _, _, _, aggregator, clients = self._parts
        named = {**dict(zip(("state", "rows"), args, strict=False)), **kwargs}
        rows = named.get("rows")
        # While it is traced as part of another computation, there are no rows.
        if isinstance(rows, (list, tuple)):
            _check_rows(rows, aggregator)
            if clients is not None:
                _check_numbers([field(of, "client") for of in rows], clients)
        result = super().__call__(*args, **kwargs)
        self.check_result(named, result)
        return result

    def check_result(self, named: Mapping[str, Any], result: Any) -> None:
        """Raises `ClientError` if a result has weights that aren't finite."""
        _, train, given, _, _ = self._parts
        rows = named.get("rows")
        if not isinstance(result, tuple) or not isinstance(result[0], Mapping):
            return
        if isinstance(rows, (list, tuple)) and not is_finite(result[0]["weights"]):
            state = named["state"]
            raise _explained(state, rows, lambda of: train(*given(state, of))[0])

    def __reduce__(self) -> Any:
        return Round, self._parts


def _check_rows(rows: Sequence[Any], aggregator: AggregationFactory) -> None:
    name = aggregator.name
    if not rows and aggregator.least_clients:
        raise ClientError("the round has no clients: give it the rows of at least one.")
    if len(rows) < aggregator.least_clients:
        raise ClientError(
            f"the round has {len(rows)} clients, where {name} needs at least "
            f"{aggregator.least_clients}: give it more, or lower what the aggregator is asked for."
        )
    if not aggregator.counts_clients:
        return
    for client, of in enumerate(rows):
        if _count(of) == 0:
            raise ClientError(
                f"client {client} has no rows, and {name} counts each client the same: leave it "
                "out of the round, or use an aggregator that weighs clients by their rows.",
                client,
            )


def _check_numbers(given: list[Any], count: int) -> None:
    seen: dict[int, int] = {}
    for client, number in enumerate(given):
        if np.asarray(number).dtype.kind not in "iu" or np.ndim(number):
            # What isn't of the type is the computation's to say.
            return
        number = int(number)
        if not 0 <= number < count:
            raise ClientError(
                f"client {client}: its number (`client`) is {number}, where there are {count} "
                "clients: numbers are from 0 on, and the process is built for a number of clients.",
                client,
            )
        if number in seen:
            raise ClientError(
                f"client {client} has the number {number} (`client`), as client {seen[number]} "
                "has: a client is in a round once.",
                client,
            )
        seen[number] = client


def _explained(state: Any, rows: Any, sent_by: Callable[[Any], Any]) -> ClientError:
    """Why a round has given weights that aren't finite."""
    if not is_finite(state["weights"]):
        return ClientError("the state's weights aren't finite: go on from an earlier state.")
    for client, of in enumerate(rows):
        for name in ("inputs", "labels"):
            if not is_finite(field(of, name)):
                return ClientError(
                    f"client {client}: its `{name}` hold NaN or infinity; remove or replace them, "
                    "or leave the client out of the round.",
                    client,
                )
    if all(_count(of) == 0 for of in rows):
        return ClientError("no client of the round has rows: leave the round out.")
    for client, of in enumerate(rows):
        if not is_finite(sent_by(of)):
            return ClientError(
                f"client {client}: what it sends isn't finite, though its rows are; take a smaller "
                "learning rate, or leave it out by `aggregators.zeroing_factory`.",
                client,
            )
    return ClientError(
        "the server's step gives weights that aren't finite, though all that clients send is: look "
        "at the aggregator and at the server's optimizer."
    )


def is_finite(value: Any) -> bool:
    """Whether all numbers in containers are."""
    if isinstance(value, Mapping):
        return all(is_finite(part) for part in value.values())
    if isinstance(value, (tuple, list)):
        return all(is_finite(part) for part in value)
    array = np.asarray(value)
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())


def field(of: Any, name: str) -> Any:
    """What a client has of this name, in whichever container; `None` if that isn't there, which is
    the computation's to say."""
    try:
        if isinstance(of, Mapping):
            return of.get(name)
        return getattr(of, name) if hasattr(of, name) else of[_FIELDS.index(name)]
    except (LookupError, TypeError):
        return None


_FIELDS = ("inputs", "labels", "client")


def _count(of: Any) -> int:
    """How many rows a client has; -1 if that can't be told."""
    labels = field(of, "labels")
    return len(labels) if hasattr(labels, "__len__") else -1
