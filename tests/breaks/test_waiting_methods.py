"""A break among the arguments of a method call: the method and its receiver wait on the stack."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

CALLS = 8


class Loud(list[float]):
    """A list that says of itself what it takes."""

    def append(self, value: float) -> None:
        super().append(value)
        super().append(value)


def appends(x: Tensor, log: Any) -> Any:
    y = torch.relu(x) * 2
    log.append(y.sum().item())
    return y + 1


def appends_twice(x: Tensor, log: Any) -> Any:
    y = torch.relu(x) * 2
    log.append(y.sum().item())
    z = y + 1
    log.append(float(z.mean()))
    return z


def appends_then_asks(x: Tensor, log: Any) -> Any:
    y = torch.relu(x) * 2
    log.append(y.sum().item())
    return y + len(log)


def appends_then_reads(x: Tensor, log: Any) -> Any:
    y = torch.relu(x) * 2
    log.append(y.sum().item())
    return y + log[-1] + log[0]


def appends_an_int(x: Tensor, log: Any) -> Any:
    y = torch.relu(x) * 2
    log.append(int(y.sum().item() * 100))
    return y * log[-1]


def extends(x: Tensor, log: Any) -> Any:
    y = torch.relu(x) * 2
    log.extend([y.sum().item(), y.mean().item()])
    return y + 1


def inserts(x: Tensor, log: Any) -> Any:
    y = torch.relu(x) * 2
    log.insert(0, y.sum().item())
    return y + 1


def stores(x: Tensor, log: Any) -> Any:
    y = torch.relu(x) * 2
    found = {"all": log}
    found.setdefault("last", log).append(y.sum().item())
    return y + 1, len(found)


def writes_text(x: Tensor, log: Any) -> Any:
    y = torch.relu(x) * 2
    log.append("{:.3f} of {}".format(y.sum().item(), "loss").upper())
    return y + 1


def computes_on_the_stack(x: Tensor, log: Any) -> Any:
    y = torch.relu(x) * 2
    log.append(1.0 + y.sum().item() * 0.5)
    return y + (2.0 * y.mean().item() + 1.0)


def calls_class_methods(x: Tensor, log: Any) -> Any:
    """What is bound to a class waits as what is bound to an object does."""
    y = torch.relu(x) * 2
    found = dict.fromkeys(["last", "first"], y.sum().item())
    more = OrderedDict.fromkeys(["mean"], y.mean().item())
    log.append(found["first"])
    return y + found["last"] + more["mean"]


FUNCTIONS: list[Callable[[Tensor, Any], Any]] = [
    appends,
    appends_twice,
    appends_then_asks,
    appends_then_reads,
    appends_an_int,
    extends,
    inserts,
    stores,
    writes_text,
    computes_on_the_stack,
    calls_class_methods,
]
MAKERS: list[Callable[[], Any]] = [list, lambda: [3.0], lambda: deque([1.0], 30), Loud]


@pytest.mark.parametrize("make", MAKERS, ids=["empty", "list", "deque", "own"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_equals_plain(function: Callable[[Tensor, Any], Any], make: Callable[[], Any]) -> None:
    compiled = stator.compile(function, backend="eager")
    ours, plain = make(), make()
    with stator.config.patch(skip_unprofitable=False):
        for call in range(CALLS):
            if call == 5:
                # What the method belongs to has changed since.
                ours, plain = [7.0, 8.0], [7.0, 8.0]
            x = torch.randn(3, generator=torch.Generator().manual_seed(call))
            found, expected = compiled(x, ours), function(x, plain)
            assert repr(found) == repr(expected)
            assert list(ours) == list(plain)


@pytest.mark.parametrize(
    "function", [appends, appends_twice, extends, computes_on_the_stack], ids=lambda f: f.__name__
)
def test_what_only_grows_is_not_traced_again(function: Callable[[Tensor, Any], Any]) -> None:
    compiled = stator.compile(function, backend="eager")
    log: list[float] = []
    with stator.config.patch(skip_unprofitable=False):
        for call in range(CALLS):
            compiled(torch.randn(3), log)
            if call == 2:
                before = stator.stats(compiled).traces
    stats = stator.stats(compiled)
    assert stats.native == 0
    assert stats.hits == CALLS - 1
    assert stats.traces == before


def test_a_class_method_that_waits_ends_no_trace() -> None:
    compiled = stator.compile(calls_class_methods, backend="eager")
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            compiled(torch.ones(3), [])
    stats = stator.stats(compiled)
    assert (stats.native, stats.hits) == (0, 2)
