"""Programs that nobody has thought of, whose ways depend on data: branches, loops and handlers in any order."""

from __future__ import annotations

import os
import random
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api

from .results import copied, same

CONDITIONS = (
    "a.sum() > 0",
    "(a > b).any()",
    "not (a < b).all()",
    "a[0] > b[1] and b.mean() > 0",
    "a.max() > 1 or m > 0.5",
    "m > 0",
    "k > 1",
    "k == 2",
    "k",
    "m",
    "m < k",
    "bool(a.min() < -1)",
    "a.sum() > m",
    "held.count > 3",
    "len(told) > 2",
    "torch.equal(a, b)",
    "torch.is_grad_enabled()",
    "max(m, 0.25) > 0.5",
    "a.sum().item() > 0 > b.sum().item()",
    "x is a",
)

STATEMENTS = (
    "a = a + 1",
    "a = a * b",
    "b = b - a.mean()",
    "a, b = b, a",
    "a.add_(0.5)",
    "b.mul_(-1)",
    "x.sub_(0.25)",
    "a = a.clone()",
    "m = a.sum().item()",
    "m = float(b.max())",
    "m = m * 0.5 + 1",
    "m = -m",
    "m = abs(m) ** 0.5",
    "m = 1 / m",
    "m = m / (k + 1)",
    "m = 0.9 ** k",
    "m += k",
    "k = int((a > 0).sum())",
    "k = a.argmax().item()",
    "k = k + 1",
    "k = k * 2 - 1",
    "k = k // 2",
    "k = k % 3",
    "k = 7 % (k + 1)",
    "a = a * m",
    "b = b + k",
    "a = torch.where(b > m, a, b)",
    "b = b.clamp(max=m)",
    "told.append(m)",
    "told.append(a)",
    "told.append((k, m, b.detach()))",
    "told.append(f'{m:.2f}')",
    "told.append(str(k))",
    "told.append(type(m).__name__)",
    "told.append([0] * k)",
    "told.append(x[:k])",
    "told.append(x[min(k, 2)])",
    "told.append(torch.ones(abs(k) % 4))",
    "told.extend(range(k))",
    "told.append(sorted([m, k, 0.5]))",
    "told.append({'m': m, 'a': a})",
    "told.append(a.tolist())",
    "held.count += 1",
    "held.last = a",
    "held.number = m",
    "held.items.append(k)",
    "table['k'] = k",
    "table.pop('k', None)",
    "told.append(table.get('k'))",
    "told.append(held.count)",
    "a = helper(a, m)",
    "m = ask(a, b)",
    "told.append([part for part in a if part > 0])",
    "told.append(any(part > 1 for part in b))",
    "told.append(sum(part.item() for part in a))",
    "n = k; add = lambda t: t + n; a = add(a)",
    "state.add_(a)",
    "told.append(state.clone())",
    "grown.append(a)",
    "grown.append(b); a = a * 0.5",
    "told.append(grown)",
    "told.append(len(grown) % 5)",
    "a = grown[-1] if grown else a",
    "a.add_(0.125); grown.extend([a, b])",
    "b = torch.stack(grown).mean(0) if grown else b",
    "told.append(grown.pop() if len(grown) > 2 else None)",
    "grown = list(grown[-3:])",
    "grown, other = [], grown; told.append(other)",
    "a = a.requires_grad_(False)",
    "assert a.sum() > -50, 'too small'",
    "raise ValueError(k)",
    "return a, m",
)

BLOCKS = (
    "if {condition}:\n{body}else:\n{other}",
    "if {condition}:\n{body}",
    "for i in range(3):\n{body}{inner}if {condition}: break\n",
    "for i in range(3):\n{inner}if {condition}: continue\n{body}",
    "for part in (a, b):\n{body}{inner}if {condition}: break\n",
    "{tries} = 0\n{indent}while ({condition}) and {tries} < 4:\n{inner}{tries} += 1\n{body}",
    "try:\n{body}{indent}except (ValueError, ZeroDivisionError, AssertionError) as error:\n"
    "{inner}told.append(str(error))\n{other}",
    "try:\n{body}{indent}finally:\n{other}",
    "with torch.no_grad():\n{body}",
)

HELPERS = """
def helper(t, m):
    held.count += 1
    if t.sum() > m:
        return t * 0.5
    return t - 0.5

def ask(a, b):
    first = a.sum().item()
    if first > 1:
        return first
    return b.sum().item() + first
"""


def block(choose: random.Random, depth: int) -> str:
    indent = "    " * depth
    lines = []
    for _ in range(choose.randrange(1, 4 if depth > 1 else 6)):
        if depth < 4 and choose.random() < 0.4:
            text = choose.choice(BLOCKS).format(
                tries=f"tries{depth}",
                condition=choose.choice(CONDITIONS),
                indent=indent,
                inner=indent + "    ",
                body=block(choose, depth + 1),
                other=block(choose, depth + 1),
            )
            # Lines behind a template's own first one stand where it stands.
            text = text.replace("\nelse:", f"\n{indent}else:")
            lines.append(indent + text)
        else:
            lines.append(f"{indent}{choose.choice(STATEMENTS)}\n")
    return "".join(lines)


# Loops that data ends, or doesn't; their counts differ from call to call.
LOOPS = (
    "for i in range(int(limit)):\n{body}        if {condition} and i > limit / 2: break\n",
    "left = limit * 1\n    while left > 0:\n        left = left - 1\n{body}",
    "left = limit * 1\n    while True:\n        if left < 0: break\n        left = left - 1\n{body}",
    "for i, part in enumerate(list(x) * 40):\n        if i > limit: break\n{body}    else:\n{other}",
)
LENGTHS = (0, 3, 150, 40, 0, 70, 1, 120)


def source(seed: int, loops: bool = False) -> str:
    choose = random.Random(seed)
    body = block(choose, 1)
    if loops:
        inner, other = block(choose, 2), block(choose, 2)
        loop = choose.choice(LOOPS)
        body = loop.format(body=inner, other=other, condition=choose.choice(CONDITIONS))
        body = f"    {body}"
    return (
        "def step(x, told, limit):\n    a, b, grown = x, x.flip(0) - 0.5, []\n    m, k = 0.0, 1\n"
        f"{body}    return a, b, m, k, grown\n{HELPERS}"
    )


def play(seed: int, wrap: Callable[[Any], Any], calls: int = 8, loops: bool = False) -> list[Any]:
    held = types.SimpleNamespace(count=0, last=None, number=0.0, items=[])
    table: dict[str, Any] = {}
    state = torch.zeros(3)
    names: dict[str, Any] = {"torch": torch, "held": held, "table": table, "state": state}
    exec(source(seed, loops), names)
    step = wrap(names["step"])
    results: list[Any] = []
    for call in range(calls):
        generator = torch.Generator().manual_seed(seed * 31 + call % 5)
        x = (torch.randn(3, generator=generator) * 2).round(decimals=1)
        told: list[Any] = []
        try:
            result: Any = step(x, told, torch.tensor(float(LENGTHS[call % len(LENGTHS)])))
        except Exception as error:
            result = type(error).__name__, str(error), lines_of(error)
        results.append(copied([result, told, x, vars(held), table, state, torch.is_grad_enabled()]))
    return results


def lines_of(error: BaseException) -> list[tuple[str, int]]:
    """Where an error came from: the program's own frames."""
    found, entry = [], error.__traceback__
    while entry is not None:
        code = entry.tb_frame.f_code
        if code.co_filename == "<string>":
            found.append((code.co_name, entry.tb_lineno))
        entry = entry.tb_next
    return found


SEEDS = int(os.environ.get("STATOR_STEPS", "150"))


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.filterwarnings("ignore::stator.RecompileLimitWarning")
def test_random_programs_end_as_plain_ones_do(seed: int) -> None:
    expected = play(seed, lambda step: step)
    found = play(seed, lambda step: api.compile(step, backend="eager"))
    for call, (left, right) in enumerate(zip(expected, found, strict=True)):
        assert same(left, right), f"{source(seed)}\ncall {call}: {right}, not {left}"


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.filterwarnings("ignore::stator.RecompileLimitWarning")
def test_random_loops_end_as_plain_ones_do(seed: int) -> None:
    expected = play(seed, lambda step: step, loops=True)
    found = play(seed, lambda step: api.compile(step, backend="eager"), loops=True)
    for call, (left, right) in enumerate(zip(expected, found, strict=True)):
        assert same(left, right), f"{source(seed, True)}\ncall {call}: {right}, not {left}"
