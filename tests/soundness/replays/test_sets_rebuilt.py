"""A set that a trace made comes back with the order of iteration that plain Python gives it.

The order depends on the set's history: on what was removed, on collisions, and on how far its table has grown.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from differential.support import api

WORDS = ["a", "bb", "relu", "weight", "bias", "kq", "layer.0", "layer.1", "é", "w10", "w11", ""]
STEPS = [
    "s.add({one})",
    "s.discard({one})",
    "s.update([{many}])",
    "s |= {{{many}}}",
    "s.update(range({low}, {high}))",
    "s -= {{{many}}}",
    "s &= s | {{{many}}}",
    "s ^= {{{many}}}",
    "s.difference_update(range({high}))",
    "s = s | {{{many}}}",
    "s = {{e for e in s if e != {one}}}",
    "s = s - {{{many}}}",
    "s = set(sorted(s, key=str))",
    "s.pop() if s else None",
    "s = s.copy()",
]
STARTS = ["set()", "{1, 2, 3}", "set('hello')", "set(range(20))", "{i * 8 for i in range(7)}"]
RESULTS = ["s", "frozenset(s)", "(s, frozenset(s))", "{'k': s}", "[s, s | {3}]", "(s, list(s))"]


def _element(choose: random.Random) -> str:
    numbers = [choose.randrange(12), choose.randrange(-40, 40) * 8, 32 * choose.randrange(9)]
    pair = (choose.randrange(9), choose.choice(WORDS))
    others: list[Any] = [None, True, 1.5, 2.0, b"q", (), 2**61 - 1]
    return repr(choose.choice([*numbers, choose.choice(WORDS), pair, choose.choice(others)]))


def _program(seed: int) -> str:
    choose = random.Random(seed)
    lines = ["def fn(x):", f"    s = {choose.choice(STARTS)}"]
    for _ in range(choose.randrange(2, 14)):
        many = ", ".join(_element(choose) for _ in range(choose.randrange(1, 7)))
        low = choose.randrange(20)
        step = choose.choice(STEPS)
        lines.append(
            "    "
            + step.format(one=_element(choose), many=many, low=low, high=low + choose.randrange(25))
        )
    return "\n".join([*lines, f"    return {choose.choice(RESULTS)}, x + 1"])


def _listed(value: Any) -> Any:
    """With lists in place of sets."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return [_listed(item) for item in value.values()]
    return [_listed(item) for item in value] if isinstance(value, (tuple, list)) else _order(value)


def _order(value: Any) -> Any:
    return list(value) if isinstance(value, (set, frozenset)) else value


def _later(value: Any) -> Any:
    """What a program that goes on with the sets finds."""
    if isinstance(value, set):
        value.update(range(100, 103))
        value.discard(1)
        value.add(7)
        return [list(value), value.pop(), list(value)]
    if isinstance(value, dict):
        return [_later(item) for item in value.values()]
    return [_later(item) for item in value] if isinstance(value, (tuple, list)) else None


@pytest.mark.parametrize("seed", range(60))
def test_order_of_a_set_with_a_history(seed: int) -> None:
    scope: dict[str, Any] = {}
    source = _program(seed)
    exec(source, scope)
    fn = scope["fn"]
    api.reset()
    compiled = api.compile(fn)
    x = torch.ones(2)
    for _ in range(3):
        expected, found = fn(x), compiled(x)
        assert repr(_listed(found)) == repr(_listed(expected)), source
        assert repr(_later(found)) == repr(_later(expected)), source
    if not api.PLAIN:
        assert (api.hits(compiled), api.native(compiled)) == (2, 0), api.reason(compiled)


def test_order_behind_a_break() -> None:
    def fn(x: torch.Tensor, flag: bool) -> Any:
        s = {0, 8, 16, 24}
        s.discard(8)
        s.update((1, 9, 17, "k"))
        if flag:
            print(end="")
        if x.sum() > 0:
            s.add(x.shape[0])
        return list(s), s, s.pop()

    api.reset()
    compiled = api.compile(fn)
    for flag in (False, True):
        for x in (torch.ones(2), torch.ones(2), -torch.ones(2), torch.ones(33), torch.ones(33)):
            expected, found = fn(x, flag), compiled(x, flag)
            assert repr(_listed(found)) == repr(_listed(expected))


def test_tensors_in_a_set_are_found() -> None:
    def fn(x: torch.Tensor) -> Any:
        first, second = x + 1, x + 2
        s = {first, second, 3}
        s.discard(3)
        return s, first, second

    api.reset()
    compiled = api.compile(fn)
    for _ in range(3):
        s, first, second = compiled(torch.ones(2))
        assert len(s) == 2 and first in s and second in s and 3 not in s
