"""What factories make, and what they share: states, measurements, structs of tensors."""

from __future__ import annotations

import abc
import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

import stator.federated as fl
from stator._stator import federated as _native


@_native.hidden
@dataclasses.dataclass(frozen=True)
class AggregationProcess:
    """Aggregation over rounds. Both parts are computations.

    initialize: `( -> S@SERVER)`.
    next: `(<state=S@SERVER,value={V}@CLIENTS> -> <state=S@SERVER,result=R@SERVER,
        measurements=M@SERVER>)`. A weighted process takes the clients' weights as well,
        `weight={W}@CLIENTS`.
    is_weighted: whether it does.
    """

    initialize: Any
    next: Any
    is_weighted: bool

    def __post_init__(self) -> None:
        state, of = self.initialize.type_signature.result, self.next.type_signature
        takes: Any = of.parameter if isinstance(of.parameter, fl.StructType) else ()
        wanted = "a state, values and weights" if self.is_weighted else "a state and values"
        if len(takes) != 2 + self.is_weighted:
            raise TypeError(
                f"`next` of an aggregation process takes something else\n  expected: {wanted}\n"
                f"  found:    {of.parameter}"
            )
        gives = of.result
        names = [name for name, _ in gives.items()] if isinstance(gives, fl.StructType) else []
        if not {"state", "result", "measurements"} <= set(names):
            raise TypeError(
                "`next` of an aggregation process gives something else\n"
                f"  expected: a struct of state, result and measurements\n  found:    {gives}"
            )
        for found, what in ((takes[0], "takes"), (gives["state"], "gives")):
            if not found.is_assignable_from(state):
                raise TypeError(
                    f"`next` of an aggregation process {what} a state of another type than "
                    f"`initialize` makes\n  expected: {state}\n  found:    {found}"
                )

    @property
    def state_type(self) -> Any:
        """The type of the state."""
        return self.initialize.type_signature.result.member

    @property
    def measures(self) -> bool:
        """Whether there are measurements."""
        of = self.next.type_signature.result["measurements"].member
        return not isinstance(of, fl.StructType) or len(of) > 0


class AggregationFactory(abc.ABC):
    """Makes an aggregation process for a type of values."""

    @property
    def name(self) -> str:
        """What makes it, for messages."""
        return type(self).__name__

    @property
    def is_weighted(self) -> bool:
        """Whether the clients' values have weights."""
        return False

    @property
    def counts_clients(self) -> bool:
        """Whether each client counts, also one that has nothing to say."""
        return False

    @property
    def is_private(self) -> bool:
        """Whether what it gives may be seen, and nothing else of the clients."""
        return False

    @property
    def least_clients(self) -> int:
        """How many clients a round has at least."""
        return 1

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @abc.abstractmethod
    def create(self, value_type: Any, weight_type: Any = None) -> AggregationProcess:
        """The process for values of a type, and weights of a type if it's weighted.

        Raises `TypeError` where it can't aggregate such values.
        """

    def _check(self, value_type: Any, weight_type: Any, kinds: str, what: str) -> Any:
        """The type of the values, if it's one of arrays of known sizes with elements of `kinds`."""
        name = self.name
        if self.is_weighted != (weight_type is not None):
            raise TypeError(
                f"{name} is {'' if self.is_weighted else 'not '}weighted: "
                f"`create` is called with{'' if self.is_weighted else 'out'} a `weight_type`."
            )
        value_type = fl.to_type(value_type)
        for path, of in leaves(value_type):
            known = isinstance(of, fl.TensorType) and of.shape is not None and None not in of.shape
            if not known or _kind(of.dtype) not in kinds:
                where = f"`{path}` of `value_type`" if path else "`value_type`"
                raise TypeError(
                    f"{name} aggregates arrays of {what}, of known sizes: {where} is {of}."
                )
        return value_type


def _kind(dtype: Any) -> str:
    """As NumPy has it, which doesn't know `bfloat16` for a floating-point number."""
    found = np.dtype(dtype)
    return "f" if found.name == "bfloat16" else found.kind


class Wrapping(AggregationFactory):
    """A factory that changes values and gives them to another one."""

    def __init__(self, inner: AggregationFactory) -> None:
        self._inner = expect_factory(inner, "inner")
        if self._inner.is_private:
            raise TypeError(
                f"{self._inner!r} is to stand outermost: what is around it would tell exactly what "
                "clients have."
            )

    @property
    def is_weighted(self) -> bool:
        return self._inner.is_weighted

    @property
    def counts_clients(self) -> bool:
        return self._inner.counts_clients

    @property
    def least_clients(self) -> int:
        return self._inner.least_clients

    def __repr__(self) -> str:
        return f"<{self.name} around {self._inner!r}>"


def expect_factory(factory: Any, argument: str) -> AggregationFactory:
    """The factory that an argument is."""
    if isinstance(factory, AggregationFactory):
        return factory
    given = factory.__name__ if isinstance(factory, type) else repr(factory)
    hint = "; it is to be called" if isinstance(factory, type) else ""
    raise TypeError(
        f"`{argument}` is to be an AggregationFactory, such as aggregators.MeanFactory(), "
        f"not {given}{hint}."
    )


def expect_result(
    factory: AggregationFactory, process: AggregationProcess, value_type: Any
) -> None:
    """Raises if what an aggregator makes of values can't take their place."""
    found = process.next.type_signature.result["result"]
    if not fl.FederatedType(value_type, fl.SERVER).is_assignable_from(found):
        raise TypeError(
            f"{factory!r} gives something else than values are\n"
            f"  expected: {value_type}@SERVER\n  found:    {found}"
        )


def expect_number(value: Any, argument: str, *, above: float, below: float | None = None) -> float:
    """The number that an argument is, between two others."""
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(
        value, bool
    )
    if is_number and np.isfinite(value) and above < value and (below is None or value < below):
        return float(value)
    bounds = f"above {above:g}" + ("" if below is None else f" and below {below:g}")
    raise ValueError(f"`{argument}` is to be a number {bounds}, not {value!r}.")


def expect_count(value: Any, argument: str, *, least: int) -> int:
    """The integer that an argument is, at least another one."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= least:
        return int(value)
    raise ValueError(f"`{argument}` is to be an integer, {least} or more, not {value!r}.")


def leaves(of: Any, path: str = "") -> list[tuple[str, Any]]:
    """The types in a type that aren't structs, with their places."""
    if not isinstance(of, fl.StructType):
        return [(path, of)]
    if len({name is None for name, _ in of.items()}) > 1:
        raise TypeError(f"either all fields of a struct have names or none has: {of}.")
    found = []
    for index, (name, field) in enumerate(of.items()):
        part = name if name is not None else str(index)
        found += leaves(field, f"{path}/{part}" if path else part)
    return found


def mapped(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """What a function gives for the tensors of structs, in the containers of the first one."""
    if isinstance(first, dict):
        return OrderedDict(
            (key, mapped(function, first[key], *(of[key] for of in others))) for key in first
        )
    if isinstance(first, (tuple, list)):
        parts = [mapped(function, *each) for each in zip(first, *others, strict=True)]
        if isinstance(first, list):
            return parts
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    return function(first, *others)


def widened(tensor: Any) -> Any:
    """Numbers with at least 32 bits: fewer have no room for sums over clients, nor for counts."""
    return tensor.float() if tensor.dtype.itemsize < 4 else tensor


def tensors(value: Any) -> list[Any]:
    """The tensors of a struct."""
    found: list[Any] = []
    mapped(found.append, value)
    return found


def nothing() -> Any:
    """An empty struct, at the server; within a federated computation."""
    return fl.federated_eval(_EMPTY, fl.SERVER)


_EMPTY = fl.local_computation(lambda: OrderedDict())


def stateless(
    aggregate: Callable[..., tuple[Any, Any]], value_type: Any, weight_type: Any
) -> AggregationProcess:
    """A process without a state. `aggregate` gives the result and the measurements."""

    def following(state: Any, value: Any, *weight: Any) -> Any:
        return state, *aggregate(value, *weight)

    initialize = fl.federated_computation(lambda: nothing())
    return process(initialize, following, value_type, weight_type)


def process(
    initialize: Any, following: Callable[..., Any], value_type: Any, weight_type: Any
) -> AggregationProcess:
    """A process of the function of a round, which gives state, result and measurements."""
    clients = fl.FederatedType(value_type, fl.CLIENTS)
    of_state = initialize.type_signature.result

    def named(state: Any, result: Any, measurements: Any) -> Any:
        return OrderedDict(state=state, result=result, measurements=measurements)

    def unweighted(state: Any, value: Any) -> Any:
        return named(*following(state, value))

    def weighted(state: Any, value: Any, weight: Any) -> Any:
        return named(*following(state, value, weight))

    if weight_type is None:
        step = fl.federated_computation(unweighted, of_state, clients)
    else:
        weights = fl.FederatedType(weight_type, fl.CLIENTS)
        step = fl.federated_computation(weighted, of_state, clients, weights)
    return AggregationProcess(initialize, step, weight_type is not None)
