"""Numbers given as tensors: a sweep over PyTorch's operator database.

Each number among an operator's sample inputs (positional, by name, in lists and slices) is given as a
tensor of no dimensions. The call is recorded with one value and replayed with others: each time the
result, and the shapes that the function saw of it, must be plain Python's.

All slots take minutes: `make test-sweep`, or STATOR_SWEEP=all. Otherwise a tenth of the operators is
looked at, another one each day; STATOR_SWEEP=0 to 9 chooses.
"""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor
from torch.utils._pytree import tree_leaves

from soundness.operator_database import (
    Call,
    Slot,
    by_name,
    calls,
    copied,
    more_calls,
    operator_database,
    replaced,
    slots,
)

TENTHS = 10
# Slots that look alike in an operator's samples are tried so often, with different samples.
PER_SLOT = 2
# Values that a number is replaced by, if plain Python takes them.
OTHERS = 2

# What these give, or add to a tensor, is whatever was in memory.
UNDEFINED = ("empty", "resize_", "resize_as_")

WHICH = os.environ["STATOR_SWEEP"]

SHARDS = 20 if WHICH == "all" else 2


def is_chosen(name: str) -> bool:
    return WHICH == "all" or zlib.crc32(name.encode()) % TENTHS == int(WHICH)


def as_tensor(number: Any) -> Tensor:
    return torch.tensor(number, dtype=torch.int64 if type(number) is int else None)


def other_numbers(number: Any) -> list[Any]:
    if isinstance(number, bool):
        return [not number]
    if isinstance(number, int):
        near = [number + 1, number - 1, number + 2, number * 2, 0, 1, 2, 3, -1]
        return [n for n in dict.fromkeys(near) if n != number]
    return [number * 2, number + 1.0, number / 2, 0.25]


def described(call: Call) -> Any:
    """The call, with what plain Python sees of its result: replays must not take that from a trace."""
    function = call.function

    def fn(args: Any, kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        seen = []
        pending = [result]
        while pending:
            leaf = pending.pop()
            if isinstance(leaf, Tensor):
                seen.append((leaf.shape, leaf.dtype))
            elif isinstance(leaf, (list, tuple)):
                seen.append(len(leaf))
                pending.extend(leaf)
        return result, seen

    return fn


def outcome(fn: Any, call: Call, slot: Slot, number: Any) -> Any:
    arguments = replaced((call.args, call.kwargs), slot.path, as_tensor(number))
    args, kwargs = copied(arguments)
    # `torch.manual_seed` looks for the caller each time, which takes longer than the call.
    torch.default_generator.manual_seed(0)
    try:
        return fn(args, kwargs)
    except Exception as error:
        return type(error).__name__


def same(a: Any, b: Any, values: bool = True) -> bool:
    """Whether two results are equal: their tensors' metadata, and `values` if they are compared."""
    if isinstance(a, Tensor):
        if not isinstance(b, Tensor) or a.layout != b.layout or a.shape != b.shape:
            return False
        if a.dtype != b.dtype or a.requires_grad != b.requires_grad:
            return False
        if a.layout != torch.strided or a.is_quantized or a.is_meta or not values:
            return True
        return torch.allclose(a.detach(), b.detach(), rtol=0, atol=0, equal_nan=True)
    if isinstance(a, (list, tuple)):
        return (
            type(a) is type(b)
            and len(a) == len(b)
            and all(same(*pair, values) for pair in zip(a, b, strict=True))
        )
    known = isinstance(a, (int, float, str, torch.dtype))
    return type(a) is type(b) and (not known or a == b or a != a)


def is_defined(plain: Any, call: Call, slot: Slot, number: Any) -> bool:
    """Whether the operator says what is in its result: not so `empty`, nor an unknown mode of `grid_sampler`."""
    if any(name in call.name for name in UNDEFINED):
        return False
    expected = outcome(plain, call, slot, number)
    for rubbish in (1e30, -7.0):
        for leaf in tree_leaves(expected):
            if isinstance(leaf, Tensor) and leaf.layout == torch.strided and not leaf.is_meta:
                torch.full((leaf.numel() * leaf.element_size() // 4,), rubbish)
        if not same(outcome(plain, call, slot, number), expected):
            return False
    return True


class Sweep:
    def __init__(self) -> None:
        self.slots = 0
        self.taken = 0
        self.problems: list[str] = []

    def calls(self, given: Iterable[Call]) -> None:
        tried: dict[Any, int] = {}
        for call in given:
            for slot in slots((call.args, call.kwargs)):
                key = (call.name, slot.path, type(slot.number))
                tried[key] = tried.get(key, 0) + 1
                if tried[key] > PER_SLOT:
                    continue
                self.slots += tried[key] == 1
                self.slot(call, slot, is_first=tried[key] == 1)

    def slot(self, call: Call, slot: Slot, is_first: bool) -> None:
        plain = described(call)
        expected = outcome(plain, call, slot, slot.number)
        values = is_defined(plain, call, slot, slot.number)
        numbers = [slot.number, slot.number]
        self.taken += is_first and not isinstance(expected, str)
        valid = 0
        for number in other_numbers(slot.number):
            if valid == OTHERS:
                break
            if not isinstance(outcome(plain, call, slot, number), str):
                numbers.append(number)
                valid += 1
        numbers.append(slot.number)
        # One that plain Python refuses, perhaps.
        numbers.append(other_numbers(slot.number)[-1])
        compiled = api.compile(plain)
        for count, number in enumerate(numbers):
            expected = outcome(plain, call, slot, number)
            found = outcome(compiled, call, slot, number)
            if not same(found, expected, values) and not (
                same(found, expected, False) and not is_defined(plain, call, slot, number)
            ):
                self.problems.append(
                    f"{call.name} {'.'.join(map(str, slot.path))}: {number} after {numbers[:count]}: "
                    f"{str(found)[-300:]} instead of {str(expected)[-300:]}"
                )
                break


def chosen() -> Iterator[Iterable[Call]]:
    """The calls of each operator that is looked at today."""
    for op in operator_database():
        if is_chosen(op.name):
            yield calls(op)
    for index, call in enumerate(more_calls()):
        if is_chosen(f"{call.name} {index}"):
            yield (call, *filter(None, [by_name(call)]))


@pytest.mark.skipif(api.PLAIN, reason="asks what is recorded")
@pytest.mark.parametrize("shard", range(SHARDS))
def test_numbers_given_as_tensors(shard: int) -> None:
    sweep = Sweep()
    operators = list(chosen())[shard::SHARDS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for given in operators:
            sweep.calls(given)
    print(
        f"STATOR_SWEEP={WHICH}: {len(operators)} operators, {sweep.slots} numbers, "
        f"{sweep.taken} of them taken as tensors"
    )
    assert not sweep.problems, "\n".join(sweep.problems)
    assert sweep.taken
