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
    # Loops in loops would make it huge, and lists of that length.
    "k = min(k * 2 - 1, 99)",
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

# With tensors that are as large as data says: `c` is one, `q` a mask of its first dimension. What makes it larger
# stands in loops in loops: large ones don't grow.
SIZED = (
    "c = x[x > m]",
    "c = state[a > b]",
    "c = a.masked_select(a < b); q = c > 0",
    "c = torch.stack([a, b], 1)[a > 0]; q = c[:, 0] > 0",
    "c = c[q]; q = c.flatten() > 0",
    "c = c[c > 0]",
    "q = c > 0.5",
    "c[q] = 0.5",
    "c[c < 0] *= -1",
    "c = c * 2 + 1",
    "c = c + c.sum()",
    "c = c * c.clone()",
    "c = c + a",
    "c = c * a[:1]",
    "c = c - c[:1]",
    "c = c[1:]",
    "c = c[:2]",
    "c = c[-1:]",
    "c = c[:k]",
    "c = c.flatten()",
    "c = c.t().contiguous(); c.add_(1)",
    "c = c.reshape(-1)",
    "c = c.unsqueeze(0)",
    "c.unsqueeze_(-1)",
    "c = c.squeeze()",
    "c = c.view(-1, 1)",
    "c = c.expand(2, *c.shape) if c.numel() < 99 else c",
    "c = torch.cat([c, c]) if c.numel() < 99 else c",
    "c = torch.cat([c, a]) if c.dim() == 1 else c",
    "c = torch.stack([c, c + 1]) if c.numel() < 99 else c",
    "c = c.sort(0).values",
    "c = c.cumsum(0)",
    "c = torch.unique(c.round())",
    "c = c.nonzero().float()",
    "c = torch.where(c > 0)[0].float()",
    "c = torch.nn.functional.pad(c, (0, 1)) if c.numel() < 99 else c",
    "c = torch.repeat_interleave(a, (a > 0).long() + 1)",
    "a = a + c.sum()",
    "a = a * c.mean() if len(c) else a",
    "a = a.index_add(0, torch.where(a > 0)[0], c[:1].sum().expand((a > 0).sum()))",
    "b = torch.zeros_like(b).masked_scatter(b > 0, c.flatten())",
    "k = c.shape[0]",
    "k = len(c)",
    "k = c.numel() - 1 if c.numel() < 99 else 1",
    "m = c.sum().item()",
    "m = c.max().item()",
    # Numbers that were read, as sizes, bounds and indices.
    "k = (c > 0).sum().item()",
    "k = int(q.sum()) - 1",
    "k = min(k, len(c))",
    "k = max(k, 1)",
    "k = max(a.long().tolist())",
    "k = min(c.shape[0], 2, k)",
    "k = len(c) - k",
    "k = min(sum((a > 0).long().tolist()) * k, 30)",
    "c = torch.arange(k)",
    "c = torch.arange(k, len(c) + 2).float()",
    "c = torch.arange(min(k, 20), 0, -2) + m",
    "c = torch.ones(k) * m",
    "c = torch.zeros((2, k)); c[0] = 1",
    "c = x[: k + 1]",
    "c = a[-k:]",
    "c = a[k:].clone()",
    "c = a[k]",
    "c = c[k - 1]",
    "c = c[..., :k]",
    "c = c.narrow(0, 0, k)",
    "c = c.narrow(-1, k, 1)",
    "c = c.select(0, k)",
    "c = a.repeat(abs(k) % 7, 1)",
    "c = c.repeat_interleave(min(k, 3)) if c.numel() < 99 else c",
    "c = a.expand(min(k, 30), 3)",
    "c = a[None].expand(min(k, 30), -1).reshape(-1)",
    "c = c.view(k, -1)",
    "c = c.reshape(-1, k).t()",
    "c = c.roll(k)",
    "c = torch.nn.functional.pad(c, (0, min(k, 9)))",
    "c = torch.nn.functional.pad(c, (k, 3 - k))",
    "c = torch.nn.functional.one_hot(a.abs().long(), min(k, 30) + 1).float()",
    "c = torch.cat(c.split([k, len(c) - k]))",
    "c = torch.cat([p + 1 for p in a.split((a > a.max() - 1).long().tolist())])",
    "c = torch.nn.utils.rnn.pad_sequence([a[:k], b, c.flatten()[:9]], batch_first=True)",
    "c = torch.stack([torch.nn.functional.pad(t, (0, 4 - len(t))) for t in (a[:k], b)])",
    "c = c.topk(k).values",
    "c = torch.eye(min(k, 9))",
    "c = torch.full((k,), m)",
    "c = c[: (a > 0).sum()]",
    "c = c[a.argmax() :]",
    "c[k] = 1",
    "c[:k] = m",
    "c[k:] += 1",
    "a[: min(k, 2)] = 0.5",
    "c = c[: max(k, 0)] + torch.ones(max(k, 0))",
    "told.append((k, torch.arange(k % 5)))",
    "told.append(c)",
    "told.append(c.shape)",
    "told.append((c.stride(), c.is_contiguous()))",
    "told.append(c.tolist())",
    "told.append(torch.ones(c.shape[0], 2))",
    "told.append(torch.arange(len(c)) * 2)",
    "told.append([part * 2 for part in c])",
    "told.append(c.split(1))",
    "told.append(c.shape == q.shape)",
    "held.last = c",
    "held.number = c.shape",
    "return c",
)
SIZE_CONDITIONS = (
    "c.shape[0] == 0",
    "len(c) > 1",
    "c.numel() == 1",
    "c.shape == a.shape",
    "(c > 0).any()",
    "c.shape[0] > k",
    "c.dim() > 1",
    "not c.shape[0]",
    "k < len(c)",
    "k == c.shape[0]",
    "k >= 0",
    "c.shape[-1:] == (k,)",
)

BLOCKS = (
    "if {condition}:\n{body}else:\n{other}",
    "if {condition}:\n{body}",
    "for i in range(3):\n{body}{inner}if {condition}: break\n",
    "for i in range(3):\n{inner}if {condition}: continue\n{body}",
    "for part in (a, b):\n{body}{inner}if {condition}: break\n",
    "for i, part in enumerate([a, b, a], 1):\n{inner}if {condition}: continue\n{body}{inner}told.append(i)\n",
    "for i, part in zip(range(9, 0, -3), reversed((a, b, b))):\n{body}{inner}if {condition}: break\n",
    "for i, part in {{1: a, 2: b, 3: x}}.items():\n{inner}if {condition}: k = i\n{body}",
    "for part in table.values():\n{inner}if {condition}: told.append(part)\n{body}",
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


class Choice(random.Random):
    """Chooses what stands in a program."""

    statements: tuple[str, ...] = STATEMENTS
    conditions: tuple[str, ...] = CONDITIONS


class SizedChoice(Choice):
    """The same, of tensors whose sizes data decides."""

    statements = (*STATEMENTS, *SIZED * 3)
    conditions = (*CONDITIONS, *SIZE_CONDITIONS * 3)


def block(choose: Choice, depth: int) -> str:
    indent = "    " * depth
    lines = []
    for _ in range(choose.randrange(1, 4 if depth > 1 else 6)):
        if depth < 4 and choose.random() < 0.4:
            text = choose.choice(BLOCKS).format(
                tries=f"tries{depth}",
                condition=choose.choice(choose.conditions),
                indent=indent,
                inner=indent + "    ",
                body=block(choose, depth + 1),
                other=block(choose, depth + 1),
            )
            # Lines behind a template's own first one stand where it stands.
            text = text.replace("\nelse:", f"\n{indent}else:")
            lines.append(indent + text)
        else:
            lines.append(f"{indent}{choose.choice(choose.statements)}\n")
    return "".join(lines)


# Loops that data ends, or doesn't; their counts differ from call to call.
LOOPS = (
    "for i in range(int(limit)):\n{body}        if {condition} and i > limit / 2: break\n",
    "left = limit * 1\n    while left > 0:\n        left = left - 1\n{body}",
    "left = limit * 1\n    while True:\n        if left < 0: break\n        left = left - 1\n{body}",
    "for i, part in enumerate(list(x) * 40):\n        if i > limit: break\n{body}    else:\n{other}",
    "for part, i in zip([a, b] * 60, reversed(range(120))):\n{body}        if {condition} and i < limit: break\n",
    "items = iter([x, x + 1] * 50)\n    for part in items:\n{body}        if {condition}: grown.append(next(items, None))\n",
)
LENGTHS = (0, 3, 150, 40, 0, 70, 1, 120)


def source(seed: int, choice: type[Choice], loops: bool = False) -> str:
    choose = choice(seed)
    body = block(choose, 1)
    if loops:
        inner, other = block(choose, 2), block(choose, 2)
        loop = choose.choice(LOOPS)
        body = loop.format(body=inner, other=other, condition=choose.choice(CONDITIONS))
        body = f"    {body}"
    sized = "    c, q = a[a > 0], b > 0\n" if choice is SizedChoice else ""
    return (
        "def step(x, told, limit):\n    a, b, grown = x, x.flip(0) - 0.5, []\n    m, k = 0.0, 1\n"
        f"{sized}{body}    return a, b, m, k, grown\n{HELPERS}"
    )


def play(
    seed: int,
    choice: type[Choice],
    wrap: Callable[[Any], Any],
    calls: int = 8,
    loops: bool = False,
) -> list[Any]:
    held = types.SimpleNamespace(count=0, last=None, number=0.0, items=[])
    table: dict[str, Any] = {}
    state = torch.zeros(3)
    names: dict[str, Any] = {"torch": torch, "held": held, "table": table, "state": state}
    exec(source(seed, choice, loops), names)
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


@pytest.mark.parametrize("choice", [Choice, SizedChoice])
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.filterwarnings("ignore::stator.RecompileLimitWarning")
def test_random_programs_end_as_plain_ones_do(seed: int, choice: type[Choice]) -> None:
    expected = play(seed, choice, lambda step: step)
    found = play(seed, choice, lambda step: api.compile(step, backend="eager"))
    for call, (left, right) in enumerate(zip(expected, found, strict=True)):
        assert same(left, right), f"{source(seed, choice)}\ncall {call}: {right}, not {left}"


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.filterwarnings("ignore::stator.RecompileLimitWarning")
def test_random_loops_end_as_plain_ones_do(seed: int) -> None:
    expected = play(seed, Choice, lambda step: step, loops=True)
    found = play(seed, Choice, lambda step: api.compile(step, backend="eager"), loops=True)
    for call, (left, right) in enumerate(zip(expected, found, strict=True)):
        assert same(left, right), f"{source(seed, Choice, True)}\ncall {call}: {right}, not {left}"
