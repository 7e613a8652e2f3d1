"""Labels for profilers that begin before a graph break and end behind it: each as in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function

LABELS = ("outer", "inner", "own", "late")


class Owner:
    """Its label is made once, and begun again and again."""

    def __init__(self) -> None:
        self.label = record_function("own")
        self.calls = 0


def breaks(x: Tensor, owner: Owner) -> Any:
    with record_function("outer"):
        y = x * 2
        print(end="")
        return y + 1


def nested(x: Tensor, owner: Owner) -> Any:
    with record_function("outer"), record_function("inner"):
        print(end="")
        y = x.relu()
    with record_function("late"):
        return y * 2


def decides(x: Tensor, owner: Owner) -> Any:
    with record_function("outer"):
        with record_function("inner"):
            y = x * 2 if x.sum() > 3 else x - 1
        return y + 1


def of_an_object(x: Tensor, owner: Owner) -> Any:
    with owner.label as label:
        owner.calls += 1
        print(end="")
        y = x + owner.calls
    return y, label is owner.label


def switched_off(x: Tensor, owner: Owner) -> Any:
    label = record_function("outer")
    with label:
        print(end="")
        y = x + 1
        # As `_call_end_callbacks_on_future` does.
        label.run_callbacks_on_exit = False
    label.run_callbacks_on_exit = True
    label.__exit__(None, None, None)
    return y


def raises(x: Tensor, owner: Owner) -> Any:
    try:
        with record_function("outer"):
            print(end="")
            x[7]
    except IndexError as error:
        return str(error), x * 3
    return x


def returns_within(x: Tensor, owner: Owner) -> Any:
    for at in range(3):
        with record_function("inner"):
            print(end="")
            if at == 1:
                return x * at
    return x


PROGRAMS = [breaks, nested, decides, of_an_object, switched_off, raises, returns_within]


def labels(call: Callable[[], Any]) -> tuple[Any, list[tuple[str, int]]]:
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
        result = call()
    found = {event.key: event.count for event in profiler.key_averages()}
    return result, [(name, found[name]) for name in LABELS if name in found]


def play(fn: Any) -> list[Any]:
    owner, seen = Owner(), []
    for x in [torch.ones(4)] * 3 + [torch.zeros(4)] * 3 + [torch.ones(2)] * 2:
        result, found = labels(lambda x=x: fn(x, owner))
        seen.append((str(result), found, owner.calls))
    return seen


@pytest.mark.parametrize("fn", PROGRAMS)
def test_they_are_plain_ones(fn: Any) -> None:
    api.reset()
    expected = play(fn)
    assert any(found for _, found, _ in expected)
    assert play(api.compile(fn)) == expected


@pytest.mark.parametrize("has_break", [True, False])
def test_a_label_from_outside_keeps_what_was_begun(has_break: bool) -> None:
    def fn(x: Tensor, label: record_function) -> Tensor:
        with label:
            if has_break:
                print(end="")
            y = x + 1
        return y

    api.reset()
    compiled = api.compile(fn)
    for value in range(4):
        label, x = record_function("own"), torch.full((3,), float(value))
        assert torch.equal(compiled(x, label), x + 1)
        assert label.record is not None


def test_a_label_behind_a_break_is_part_of_the_trace() -> None:
    api.reset()
    compiled = api.compile(breaks)
    for _ in range(3):
        compiled(torch.ones(4), Owner())
    assert api.PLAIN or (api.breaks(compiled), api.traces(compiled)) == (1, 2)


def test_a_step_that_decides() -> None:
    """PyTorch puts a label around each step of an optimizer."""
    api.reset()
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.RAdam(model.parameters(), 1e-2)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = api.compile(step)
    for _ in range(14):
        compiled(torch.ones(2, 4))
    assert api.PLAIN or api.breaks(compiled) == 0
