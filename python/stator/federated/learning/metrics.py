"""What is measured of a model: means over rows or clients, and sums that the server finalizes.

learning.build_evaluation(model, {
    "accuracy": accuracy,                                # a mean over all rows
    "fair accuracy": metrics.Mean(accuracy, weighted=False),  # each client counts the same
    "confusion": metrics.SumThenFinalize(confusion),     # a sum over all clients
    "f1": torchmetrics.F1Score("multiclass", num_classes=10),
})
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

import torch

from stator._stator import federated as _native
from stator.errors import ProgramError

__all__ = ["Mean", "Metric", "SumThenFinalize"]


@runtime_checkable
class Metric(Protocol):
    """Something that is measured: sums over rows, which are added up over clients, and what is made
    of their total. Both are traced, so they are PyTorch code."""

    def measure(self, outputs: Any, labels: Any) -> Any:
        """The sums of a client: a tensor, or containers of tensors, whose sizes are known."""

    def finalize(self, total: Any) -> Any:
        """What is told of the sums of all clients: a tensor, or containers of tensors."""


@_native.hidden
@dataclasses.dataclass(frozen=True)
class Mean:
    """A mean over clients of what a function gives for each.

    function: of outputs and labels, which gives the mean over a client's rows: a number, or a
        tensor whose sizes are known.
    weighted: whether clients count by their rows, which makes it the mean over all rows. Otherwise
        each client counts the same, but for those without rows, which don't.
    """

    function: Callable[[Any, Any], Any]
    weighted: bool = True

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"`function` is to be a function, not {self.function!r}.")


def _as_it_is(total: Any) -> Any:
    return total


@_native.hidden
@dataclasses.dataclass(frozen=True)
class SumThenFinalize:
    """A `Metric` of two functions.

    measure: of outputs and labels: the sums of a client.
    finalize: of the sums of all clients; where nothing is said these are told as they are.
    """

    measure: Callable[[Any, Any], Any]
    finalize: Callable[[Any], Any] = _as_it_is

    def __post_init__(self) -> None:
        for name in ("measure", "finalize"):
            if not callable(getattr(self, name)):
                raise TypeError(f"`{name}` is to be a function, not {getattr(self, name)!r}.")


class _Stateful:
    """A `Metric` of an object of torchmetrics', or one that declares its state likewise: `update`
    adds to states, of which `compute` makes the metric. The object itself stays as it is."""

    def __init__(self, given: Any, name: str) -> None:
        self._kind = type(given)
        self._states: dict[str, Any] = given._defaults
        for state, default in self._states.items():
            reduction = given._reductions.get(state)
            if not isinstance(default, torch.Tensor):
                raise TypeError(
                    f"metric `{name}`: {self._kind.__name__} keeps what it was given for each row "
                    f"(`{state}`)\n  expected: states that are sums\n"
                    "  hint:     many metrics have sums if they are given `thresholds=`"
                )
            if getattr(reduction, "__name__", None) not in _SUMS or default.any():
                raise TypeError(
                    f"metric `{name}`: states of {self._kind.__name__} can't be added up over "
                    f'clients\n  expected: sums that begin with zero (`dist_reduce_fx="sum"`)\n'
                    f"  found:    `{state}`, reduced by {getattr(reduction, '__name__', reduction)}"
                )
        # What the object puts around its own methods counts calls, which isn't part of a metric.
        without = {"update", "compute", *self._states}
        self._others = {key: each for key, each in vars(given).items() if key not in without}

    def measure(self, outputs: Any, labels: Any) -> Any:
        zeros = {name: torch.zeros_like(default) for name, default in self._states.items()}
        own = self._with(zeros)
        self._kind.update(own, outputs, labels)
        return OrderedDict((name, getattr(own, name)) for name in self._states)

    def finalize(self, total: Any) -> Any:
        return self._kind.compute(self._with(total))

    def _with(self, states: Any) -> Any:
        """An object with such states."""
        own = object.__new__(self._kind)
        vars(own).update(self._others)
        vars(own).update(states)
        return own


_SUMS = {"dim_zero_sum", "sum"}


@contextlib.contextmanager
def traceable(metrics: Iterable[Mean | Metric]) -> Iterator[None]:
    """Has objects of torchmetrics' do what can be traced, where there are some."""
    if not any(isinstance(metric, _Stateful) for metric in metrics):
        yield
        return
    # It looks which packages there are where it needs one first, and takes note.
    asked = sys.modules.get("torchmetrics.utilities.imports")
    for each in list(vars(asked).values()) if asked is not None else ():
        if type(each).__name__ == "RequirementCache":
            bool(each)
    # It counts by comparisons then, whose results are as large as the number of classes says, and
    # by `bincount` otherwise, whose result is as large as data says.
    before = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    except ProgramError as error:
        error.add_note(
            "hint: objects of torchmetrics' decide on data where they look at what they are given: "
            "`validate_args=False`. Where they do elsewhere, write the metric as "
            "metrics.SumThenFinalize."
        )
        raise
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warns)


def metric_of(given: Any, name: str) -> Mean | Metric:
    """What somebody has given as a metric."""
    if isinstance(given, (Mean, Metric)) and not isinstance(given, type):
        return given
    if hasattr(given, "_defaults") and hasattr(given, "_reductions"):
        return _Stateful(given, name)
    if callable(getattr(given, "update", None)) and callable(getattr(given, "compute", None)):
        raise TypeError(
            f"metric `{name}`: nothing says what the state of {type(given).__name__} is\n"
            "  expected: a function, metrics.Mean, metrics.SumThenFinalize, or an object of "
            "torchmetrics'\n"
            "  hint:     give its `measure` and `finalize` as metrics.SumThenFinalize has them"
        )
    if callable(given) and not isinstance(given, type):
        return Mean(given)
    raise TypeError(
        f"metric `{name}` is {given!r}\n"
        "  expected: a function of outputs and labels, metrics.Mean, metrics.SumThenFinalize, or "
        "an object of torchmetrics'"
    )
