"""Rule 7: a value written by the trace is no outside read; one read before the write is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from differential.support.describe import describe_all, first_difference
from torch import Tensor, nn

X = torch.arange(1.0, 4.0)


class State:
    """What the functions below read and write."""

    def __init__(self) -> None:
        self.n = 1
        self.items: list[Any] = [1, 2]
        self.table: dict[str, Any] = {"a": 1}
        self.last: Any = None
        self.layer = nn.Linear(3, 3)
        with torch.no_grad():
            self.layer.weight.fill_(0.5)
            self.layer.bias.fill_(1.0)


def write_then_read(s: State, x: Tensor) -> Tensor:
    s.n = 7
    return x * s.n


def read_then_write(s: State, x: Tensor) -> Tensor:
    before = s.n
    s.n = 7
    return x * before + s.n


def read_then_write_same(s: State, x: Tensor) -> Tensor:
    before = s.n
    s.n = before
    return x * before


def count(s: State, x: Tensor) -> Tensor:
    s.n += 1
    return x * s.n


def count_twice(s: State, x: Tensor) -> Tensor:
    s.n += 1
    y = x * s.n
    s.n += 1
    return y + s.n


def count_without_using(s: State, x: Tensor) -> Tensor:
    s.n += 1
    return x + 1


def tensor_written_and_read(s: State, x: Tensor) -> Tensor:
    s.last = x * 2
    return s.last + 1


def tensor_read_and_written(s: State, x: Tensor) -> Tensor:
    before = s.last
    s.last = x * 2
    return x if before is None else x + before


def list_written_and_read(s: State, x: Tensor) -> Tensor:
    s.items.append(5)
    return x * s.items[-1]


def list_replaced_and_read(s: State, x: Tensor) -> Tensor:
    s.items = [3, 4]
    s.items.append(5)
    return x * sum(s.items)


def length_read_then_appended(s: State, x: Tensor) -> Tensor:
    n = len(s.items)
    s.items.append(n)
    return x * n


def dict_written_and_read(s: State, x: Tensor) -> Tensor:
    s.table["b"] = 4
    return x * s.table["b"] + s.table["a"]


def dict_missed_then_written(s: State, x: Tensor) -> Tensor:
    missing = s.table.get("b", 10)
    s.table["b"] = 4
    return x * missing + s.table["b"]


def dict_filled_once(s: State, x: Tensor) -> Tensor:
    if "mask" not in s.table:
        s.table["mask"] = torch.ones(3) * 2
    return x * s.table["mask"]


def deleted_and_missed(s: State, x: Tensor) -> Tensor:
    s.table.pop("a", None)
    return x * s.table.get("a", 3)


def attribute_made_and_deleted(s: State, x: Tensor) -> Tensor:
    s.fresh = 3  # type: ignore[attr-defined]
    y = x * s.fresh  # type: ignore[attr-defined]
    del s.fresh  # type: ignore[attr-defined]
    return y + hasattr(s, "fresh")


def parameter_written_in_place(s: State, x: Tensor) -> Tensor:
    with torch.no_grad():
        s.layer.weight.mul_(2)
    return s.layer(x)


def module_flag_switched(s: State, x: Tensor) -> Tensor:
    was = s.layer.training
    s.layer.eval()
    return s.layer(x) + was + s.layer.training


def write_through_alias(s: State, x: Tensor) -> Tensor:
    alias = s.items
    alias[0] = 9
    return x * s.items[0]


def swap_items(s: State, x: Tensor) -> Tensor:
    s.items[0], s.items[1] = s.items[1], s.items[0]
    return x * s.items[0]


def restored(s: State, x: Tensor) -> Tensor:
    before = s.n
    s.n = 100
    y = x * s.n
    s.n = before
    return y


def same_object_stored_twice(s: State, x: Tensor) -> Tensor:
    made = [x + 1]
    s.last = made
    s.table["made"] = made
    return x + len(made)


def write_then_raise_and_catch(s: State, x: Tensor) -> Tensor:
    try:
        s.n += 1
        raise ValueError(s.n)
    except ValueError as error:
        return x * error.args[0]


FUNCTIONS: list[Callable[[State, Tensor], Tensor]] = [
    write_then_read,
    read_then_write,
    read_then_write_same,
    count,
    count_twice,
    count_without_using,
    tensor_written_and_read,
    tensor_read_and_written,
    list_written_and_read,
    list_replaced_and_read,
    length_read_then_appended,
    dict_written_and_read,
    dict_missed_then_written,
    dict_filled_once,
    deleted_and_missed,
    attribute_made_and_deleted,
    parameter_written_in_place,
    module_flag_switched,
    write_through_alias,
    swap_items,
    restored,
    same_object_stored_twice,
    write_then_raise_and_catch,
]


def _disturb(state: State, step: int) -> None:
    """What others do to the state between calls."""
    if step == 3:
        state.n = 50
    elif step == 5:
        state.items.clear()
        state.items.extend([8, 9, 10])
    elif step == 7:
        state.table.clear()
        state.table["a"] = 6
    elif step == 9:
        state.last = None
        state.layer.train()


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("disturbed", [False, True], ids=["left alone", "disturbed"])
def test_effects_of_each_call(fn: Callable[[State, Tensor], Tensor], disturbed: bool) -> None:
    compiled = api.compile(fn)
    plain_state, our_state = State(), State()
    for step in range(12):
        if disturbed:
            _disturb(plain_state, step)
            _disturb(our_state, step)
        x = X + step
        expected = describe_all({"result": fn(plain_state, x.clone()), "state": plain_state})
        found = describe_all({"result": compiled(our_state, x.clone()), "state": our_state})
        difference = first_difference(expected, found)
        assert difference is None, f"call {step}\n{difference}\nreason: {api.reason(compiled)}"


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_fresh_state_each_call(fn: Callable[[State, Tensor], Tensor]) -> None:
    compiled = api.compile(fn)
    for step in range(4):
        plain_state, our_state = State(), State()
        x = X + step
        expected = describe_all({"result": fn(plain_state, x.clone()), "state": plain_state})
        found = describe_all({"result": compiled(our_state, x.clone()), "state": our_state})
        assert first_difference(expected, found) is None


@pytest.mark.skipif(api.PLAIN, reason="plain mode has no statistics")
@pytest.mark.parametrize("fn", [write_then_read, restored, count_without_using])
def test_own_writes_do_not_cause_recording_for_ever(fn: Callable[[State, Tensor], Tensor]) -> None:
    compiled = api.compile(fn)
    state = State()
    for _ in range(10):
        compiled(state, X)
    # A function that counts may need an entry per value until integers become symbols, or run
    # natively; one that doesn't look at what it writes needs one.
    if fn is write_then_read:
        assert api.traces(compiled) <= 2
