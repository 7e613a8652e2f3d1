"""C code that asks tensors, runs generators or calls keys (`any`, `sorted(key=...)`): the trace is left before it where data answers otherwise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from differential.support.describe import describe_all, first_difference
from torch import Tensor, nn

import stator

LOG: list[Any] = []
COUNT = {"asked": 0}
MODEL = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
LIMIT = 1.0


def short_circuit(xs: list[Tensor]) -> Any:
    def flags() -> Iterator[Tensor]:
        for i, x in enumerate(xs):
            LOG.append(i)
            yield x.sum() > LIMIT

    it = flags()
    return any(it), [bool(f) for f in it], all(flags()), len(LOG)


def asked_within(xs: list[Tensor]) -> Any:
    positive = sum(1 for x in xs if x.sum() > 0)
    first = next((i for i, x in enumerate(xs) if x.max().item() > LIMIT), None)
    near = any(x.abs().max().item() < 0.5 for x in xs)
    return positive, first, near, [x * positive for x in xs]


def drawn_by_torch(xs: list[Tensor]) -> Any:
    found = any((x + torch.rand(())).sum() > LIMIT for x in xs)
    return found, torch.rand(())


def drawn_by_python(xs: list[Tensor]) -> Any:
    found = any(random.random() * 2 > x.sum().item() for x in xs)
    return found, random.random()


def drawn_by_numpy(xs: list[Tensor]) -> Any:
    found = any(x.sum().item() > np.random.rand() for x in xs)
    inverse = 1 / (xs[0].sum().item() + 9)
    drawn = np.random.rand()
    root = math.sqrt(drawn - 0.5) if drawn > 0.5 else -1.0
    return found, inverse, root, np.random.rand()


def sqrt_of_a_draw(xs: list[Tensor]) -> Any:
    inverse = 1 / (xs[0].sum().item() + 9)
    drawn = np.random.rand()
    try:
        root = math.sqrt(drawn - 0.5)
    except ValueError:
        root = -1.0
    return inverse, drawn, root


def written_within(xs: list[Tensor]) -> Any:
    found = any(x.add_(0.25).sum() > LIMIT for x in xs)
    return found, [x.clone() for x in xs]


def counted(xs: list[Tensor]) -> Any:
    def key(x: Tensor) -> Tensor:
        COUNT["asked"] += 1
        LOG.append(COUNT["asked"])
        return x.sum()

    best, worst = max(xs, key=key), min(xs, key=key)
    return best * 2, worst, COUNT["asked"], [float(x.sum()) for x in sorted(xs, key=key)]


def keys_of_kinds(xs: list[Tensor]) -> Any:
    scores = {f"n{i}": x.sum().item() for i, x in enumerate(xs)}
    ranked = sorted(scores, key=lambda n: scores[n], reverse=True)
    best = max(scores.items(), key=lambda pair: pair[1])
    words = sorted(["bb", "a", "ccc"], key=lambda w: (-len(w), w))
    short = min(("xx", "y"), key=lambda w: len(w))
    place = max(range(len(xs)), key=lambda i: xs[i].abs().max())
    ties = sorted(range(4), key=lambda i: (xs[i % 2].sum() > 0).float(), reverse=True)
    halves = sorted(range(3), key=lambda i: i / 2 if i else xs[0].sum().item())
    return ranked, best, words, short, place, ties, halves


def not_numbers(xs: list[Tensor]) -> Any:
    found = []
    for act in (
        lambda: max(xs, key=lambda x: None),
        lambda: sorted(xs, key=lambda x: x.shape if x.sum() > 0 else "text"),
        lambda: min(xs, key=lambda x: 1 / (x.sum() > 100).item()),
        lambda: sorted([1, "a"], key=lambda v: v),
        lambda: max([], key=lambda v: v),
        lambda: [x.shape for x in sorted(xs, key=lambda x: (x.sum().item(), 1))],
    ):
        try:
            found.append(act())
        except (TypeError, ValueError, ZeroDivisionError) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def listed_tensors(xs: list[Tensor]) -> Any:
    sums = [x.sum() for x in xs]
    return max(sums), min(s * 2 for s in sums), any(sums), all([s > 0 for s in sums])


def extended(xs: list[Tensor]) -> Any:
    kept: list[Any] = []
    kept.extend(i for i, x in enumerate(xs) if x.sum() > 0)
    LOG.extend(x.sum().item() for x in xs if x.sum() > LIMIT)
    table = dict((i, x * 2) for i, x in enumerate(xs) if (x > 0).any())
    return kept, list(table), {i for i, x in enumerate(xs) if x.sum() < 0}, tuple(kept)


def nested(xs: list[Tensor]) -> Any:
    rows = [x for x in xs if all((v > -LIMIT) for v in x)]
    return any(any(v > LIMIT for v in x) for x in xs), len(rows)


def raised_within(xs: list[Tensor]) -> Any:
    def checked() -> Iterator[Tensor]:
        for x in xs:
            if torch.isnan(x).any():
                raise ValueError(f"bad: {len(LOG)}")
            LOG.append(float(x.sum()))
            yield x.sum() > 100

    try:
        return any(checked())
    except ValueError as error:
        return str(error)


def until_small(xs: list[Tensor]) -> Any:
    xs, rounds = [x.clone() for x in xs], 0
    while any(x.abs().max() > 0.3 for x in xs):
        xs, rounds = [x / 2 for x in xs], rounds + 1
    return rounds, xs


class Gate:
    def __init__(self, x: Tensor) -> None:
        self.x = x

    @property
    def is_open(self) -> bool:
        return bool(self.x.sum() > LIMIT)


def questions_unseen(xs: list[Tensor]) -> Any:
    # What asks stands neither in the instructions of these generators nor in what runs them.
    gates = [Gate(x) for x in xs]
    opened = tuple(gate.x for gate in gates if gate.is_open is True)
    fed = list(flag for flag in (x.sum() > LIMIT for x in xs if x.min() < 0) if flag is not None)
    return opened, fed, any(gate.is_open is True for gate in gates)


def asking_nothing(xs: list[Tensor]) -> Any:
    gates = [Gate(x) for x in xs]
    are_tensors = all(isinstance(x, Tensor) for x in xs)
    kept = tuple(gate.x for gate in gates if gate.x is not xs[1])
    return are_tensors, kept, any(gate.x is None for gate in gates), xs[0].sum() > LIMIT


def over_modules(xs: list[Tensor]) -> Any:
    seen, order = set(), {}
    for module in MODEL.modules():
        seen.add(module)
        order[module] = len(order)
        if xs[0].sum() > LIMIT:
            LOG.append(len(seen))
        for p in module.parameters():
            if p.sum() > xs[1].sum():
                order[module] += 10
    return len(seen), list(order.values()), MODEL in seen, nn.Linear in seen


def assigned_data(xs: list[Tensor]) -> Any:
    y = xs[0] * 2
    y.data = y.data + LIMIT
    xs[1].data = xs[0].data.clone()
    return y, xs[1] + 1, y.t().stride(), y.shape[0]


def _tensors(index: int) -> list[Tensor]:
    torch.manual_seed(index)
    xs = [torch.randn(2) * scale for scale in (1.0, 2.0, 0.5)]
    if index % 5 == 3:
        xs[1][0] = math.nan
    if index % 7 == 4:
        xs[2] = xs[0].clone()
    return xs


def _observed(fn: Callable[..., Any], rounds: int, change: Callable[[int], None]) -> list[Any]:
    LOG.clear()
    COUNT["asked"] = 0
    random.seed(5)
    np.random.seed(5)
    lines = []
    for index in range(rounds):
        change(index)
        xs = _tensors(index)
        torch.manual_seed(index)
        result = fn(xs)
        state = {"xs": xs, "log": list(LOG), "rng": torch.rand(()), "python": random.random()}
        lines.append(describe_all({"result": result, **state, "numpy": np.random.rand()}))
    return lines


def _change(index: int) -> None:
    global LIMIT
    LIMIT = 1.0 if index < 9 else 0.25


PROGRAMS = [
    short_circuit,
    asked_within,
    drawn_by_torch,
    drawn_by_python,
    drawn_by_numpy,
    sqrt_of_a_draw,
    written_within,
    counted,
    keys_of_kinds,
    not_numbers,
    listed_tensors,
    extended,
    nested,
    raised_within,
    until_small,
    questions_unseen,
    asking_nothing,
    over_modules,
    assigned_data,
]


@pytest.mark.parametrize("is_dynamic", [None, False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_calls_agree_with_plain_python(
    program: Callable[..., Any], is_dynamic: bool | None
) -> None:
    plain = _observed(program, 14, _change)
    with stator.config.patch(skip_unprofitable=False):
        compiled = stator.compile(program, dynamic=is_dynamic)
        found = _observed(compiled, 14, _change)
    for index, (expected, got) in enumerate(zip(plain, found, strict=True)):
        difference = first_difference(expected, got)
        assert difference is None, f"call {index}: {difference}"


@pytest.mark.parametrize(
    "program", [asked_within, counted, listed_tensors, nested, until_small, asking_nothing]
)
def test_nothing_breaks(program: Callable[..., Any]) -> None:
    with stator.config.patch(skip_unprofitable=False):
        compiled = stator.compile(program)
        _observed(compiled, 3, _change)
    stats = stator.stats(compiled)
    assert (stats.breaks, stats.native) == (0, 0), stats.reason
