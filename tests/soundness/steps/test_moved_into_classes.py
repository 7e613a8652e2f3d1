"""Numbers that were read in dictionaries and lists of classes of the program's own, and NumPy's numbers in texts."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from differential.support import api
from torch import Tensor

from .results import agree, copied

COUNT = SimpleNamespace(steps=0, kept=[2.0, 4.0])


class Metrics(dict[str, Any]):
    """A dictionary whose entries are attributes, too."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class Written(dict[str, Any]):
    """A dictionary that is told of what is put into it, but not by its constructor."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, (value, COUNT.steps))


class Row(list[Any]):
    pass


def by_names(x: Tensor) -> Any:
    found = Metrics(loss=x.sum().item(), mean=x.mean().item())
    found["double"] = found.loss * 2
    return found, x * found.mean


def by_a_dictionary(x: Tensor) -> Any:
    found = Metrics({"loss": x.sum().item(), "n": int(x.max())}, mean=x.mean().item())
    return found, found.loss + found["mean"], f"{found.n}"


def by_another(x: Tensor) -> Any:
    # Of another class than `dict` it isn't known how it's read.
    first = Metrics(loss=x.sum().item())
    return Metrics(first, more=1), first


def by_pairs(x: Tensor) -> Any:
    return Metrics([("loss", x.sum().item()), ("n", 2)]), x + 1


def counted(x: Tensor) -> Any:
    COUNT.steps += 1
    found = Written(loss=x.sum().item(), step=COUNT.steps)
    found["again"] = x.mean().item()
    return found


def rows(x: Tensor) -> Any:
    found = Row([x.sum().item(), 2])
    found.append(x.mean().item())
    return found, Row((x.max().item(), "a")), Row(), found[0] * 2


def keys(x: Tensor) -> Any:
    number = x.argmax().item()
    return Metrics({number: 1, str(number): 2}), x + 1


def refused(x: Tensor) -> Any:
    try:
        return Metrics({"a": x.sum().item()}, {"b": 1})  # type: ignore[call-arg]
    except TypeError as error:
        return str(error)


def percent(x: Tensor) -> Any:
    COUNT.steps += 1
    losses = [x.sum().item(), 2.0]
    return "step %d: %.4f +- %.2e" % (COUNT.steps, np.mean(losses), np.std(losses)), x + 1  # noqa: UP031


def percent_alone(x: Tensor) -> Any:
    return "%.3f" % np.mean([x.sum().item(), 2.0]), "%5.1f" % np.max([x.mean().item()])  # noqa: UP031


def percent_of_arrays(x: Tensor) -> Any:
    array = np.array([x.sum().item(), 2.0], dtype=np.float32)
    count = np.argmax(array)
    return "%d of %d, %g" % (count, array.sum(), array.mean()), "%i" % count  # noqa: UP031


def percent_of_texts(x: Tensor) -> Any:
    return "%s and %r" % (np.mean([x.sum().item(), 2.0]), np.float32(0.1)), x + 1  # noqa: UP031


def formatted(x: Tensor) -> Any:
    COUNT.steps += 1
    losses = [x.sum().item(), 2.0]
    return "{} {:.3f} {}".format(COUNT.steps, np.std(losses), np.mean(losses)), x + 1


def formatted_tensors(x: Tensor) -> Any:
    COUNT.steps += 1
    return "{} {:.3f} {}".format(COUNT.steps, x.sum(), x.mean()), x + 1


def formatted_integers(x: Tensor) -> Any:
    array = np.array([x.sum().item(), 2.0])
    return "{:>4}|{:05d}".format(np.argmax(array), array.argmin()), "{0!r}".format(array.max())  # noqa: UP030


def not_a_number(x: Tensor) -> Any:
    found = []
    for text in ("%d", "%.2f", "%5d"):
        try:
            found.append(text % np.mean([x.log().sum().item(), 2.0]))
        except (ValueError, OverflowError) as error:
            found.append((type(error).__name__, str(error)))
    return found


PROGRAMS: list[Callable[[Tensor], Any]] = [
    by_names,
    by_a_dictionary,
    by_another,
    by_pairs,
    counted,
    rows,
    keys,
    refused,
    percent,
    percent_alone,
    percent_of_arrays,
    percent_of_texts,
    formatted,
    formatted_tensors,
    formatted_integers,
    not_a_number,
]
# One trace serves all numbers; a count becomes a symbol in the second one.
CARRIED = {
    by_names,
    by_a_dictionary,
    counted,
    rows,
    percent,
    percent_alone,
    formatted,
    formatted_tensors,
}


def play(program: Callable[[Tensor], Any]) -> list[Any]:
    COUNT.steps, seen = 0, []
    for call in range(10):
        x = torch.tensor([1.5, 2.0, float(call)]) * (call + 1)
        if call == 8:
            COUNT.steps = -5
        if call == 9:
            x = x * float("inf")
        try:
            result = program(x)
        except (OverflowError, ValueError) as error:
            result = (type(error).__name__, str(error))
        seen.append((copied_of_class(result), repr(result), COUNT.steps))
    return seen


def copied_of_class(result: Any) -> Any:
    """What there is of it, without its classes: `repr` says these."""
    if isinstance(result, dict):
        return {key: copied_of_class(value) for key, value in result.items()}
    if isinstance(result, (list, tuple)):
        return [copied_of_class(it) for it in result]
    return copied(result)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda it: it.__name__)
def test_results_are_plain_ones(program: Callable[[Tensor], Any]) -> None:
    expected = play(program)
    compiled = api.compile(program, backend="eager")
    agree(expected, play(compiled))
    if program in CARRIED and not api.PLAIN:
        assert api.breaks(compiled) == 0, api.reason(compiled)
        assert (api.hits(compiled) or 0) >= 6, api.traces(compiled)
