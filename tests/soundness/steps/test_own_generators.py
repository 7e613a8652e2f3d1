"""`random.Random(seed)` made within a trace: a node makes it, and nodes draw from it."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

from .results import agree, copied, runs_whole

HELD = SimpleNamespace(seed=3, generator=random.Random(1), kept=None, share=0.5)
NAMES = ["a", "b", "c", "d"]


def split(x: Tensor, i: int) -> Any:
    generator = random.Random(HELD.seed)
    order = list(range(len(x)))
    generator.shuffle(order)
    count = int(len(x) * HELD.share)
    return x[order[:count]], x[order[count:]], order


def drawn(x: Tensor, i: int) -> Any:
    generator = random.Random(i)
    return x * generator.random() + generator.uniform(-1, 1), generator.randint(1, 6)


def of_texts(x: Tensor, i: int) -> Any:
    return x + random.Random(f"seed-{i % 2}").random(), random.Random(0.5 + i).getrandbits(7)


def decided(x: Tensor, i: int) -> Any:
    generator = random.Random(i)
    rows = [row * 2 if generator.random() < 0.5 else row for row in x]
    return torch.stack(rows), generator.random()


def chosen(x: Tensor, i: int) -> Any:
    generator = random.Random(i)
    return x * generator.choice([1.0, 2.0, 3.0]), x[generator.randrange(len(x))]


def named(x: Tensor, i: int) -> Any:
    return random.Random(i).choice(NAMES), x + 1


def normal(x: Tensor, i: int) -> Any:
    generator = random.Random(i)
    return x + generator.gauss(0, 1), generator.gauss(1, 2), generator.gauss(0, 1)


def sampled(x: Tensor, i: int) -> Any:
    generator = random.Random(i)
    return x[generator.sample(range(len(x)), 3)], generator.choices([1, 2, 3], k=2)


def returned(x: Tensor, i: int) -> Any:
    generator = random.Random(i)
    y = x * generator.random() + generator.gauss(0, 1)
    return y, generator.getstate() if i > 8 else None, [generator, generator]


def kept(x: Tensor, i: int) -> Any:
    HELD.kept = random.Random(i)
    return x * HELD.kept.random()


def kept_and_used(x: Tensor, i: int) -> Any:
    if HELD.kept is None or i % 3 == 0:
        HELD.kept = random.Random(i)
    return x * HELD.kept.random()


def beside_others(x: Tensor, i: int) -> Any:
    first = HELD.generator.random()
    own = random.Random(i)
    return x * first + own.random(), own.random(), HELD.generator.random()


def two(x: Tensor, i: int) -> Any:
    first, second = random.Random(i), random.Random(i)
    return x * first.random(), second.random() == first.random(), second.random()


def seeded_again(x: Tensor, i: int) -> Any:
    generator = random.Random(i)
    a = generator.random()
    generator.seed(i + 1)
    b = generator.random()
    generator.seed(i)
    return x * a + b, generator.random() == a


def behind_a_break(x: Tensor, i: int) -> Any:
    generator = random.Random(i)
    a = generator.gauss(0, 1)
    stator.graph_break()
    return x * a + generator.gauss(0, 1), generator.random()


def in_a_generator(x: Tensor, i: int) -> Any:
    def batches() -> Any:
        generator = random.Random(HELD.seed + i)
        order = list(range(len(x)))
        generator.shuffle(order)
        for at in range(0, len(order), 2):
            yield order[at : at + 2]

    return [x[batch].sum() for batch in batches()]


def read(x: Tensor, i: int) -> Any:
    generator = random.Random(int(x.sum().item()))
    return x + generator.random(), generator.random()


def told_by_data(x: Tensor, i: int) -> Any:
    generator = random.Random(i)
    p = generator.random()
    if x.sum() > 0:
        p = p + generator.random()
    return x * p, generator.random()


def refused(x: Tensor, i: int) -> Any:
    try:
        return x, random.Random([i])  # type: ignore[arg-type]
    except TypeError as error:
        return x + 1, str(error)


class Counted(random.Random):
    """A class with a source of its own."""

    def random(self) -> float:
        return super().random() / 2


def of_a_class(x: Tensor, i: int) -> Any:
    return x * Counted(i).random()


FUNCTIONS: list[Callable[[Tensor, int], Any]] = [
    split,
    drawn,
    of_texts,
    decided,
    chosen,
    named,
    normal,
    sampled,
    returned,
    kept,
    kept_and_used,
    beside_others,
    two,
    seeded_again,
    behind_a_break,
    in_a_generator,
    read,
    told_by_data,
    refused,
    of_a_class,
]
WHOLE = {
    split,
    drawn,
    decided,
    chosen,
    normal,
    sampled,
    kept,
    two,
    seeded_again,
    in_a_generator,
    read,
}


def seen(value: Any) -> Any:
    """What a result shows: of a generator its state."""
    if isinstance(value, random.Random):
        return (*value.getstate(), id(value) > 0)
    if isinstance(value, (list, tuple)):
        is_one = len(value) > 1 and value[0] is value[1]
        return (*map(seen, value), is_one)
    return copied(value)


def run(fn: Callable[[Tensor, int], Any]) -> list[Any]:
    random.seed(5)
    HELD.seed, HELD.kept, HELD.share, HELD.generator = 3, None, 0.5, random.Random(1)
    found = []
    for i, seed in enumerate([0, 0, 1, 2, 1, 3, 4, 0]):
        x = torch.randn(6 if i != 3 else 4, generator=torch.Generator().manual_seed(seed))
        if i == 5:
            HELD.seed, HELD.share = 4, 0.34
        if i == 6:
            random.Random.random_ = random.Random.random  # type: ignore[attr-defined]
            del random.Random.random_  # type: ignore[attr-defined]
        result = seen(fn(x, [0, 0, 1, 1, 2, 3, 0, 5][i]))
        found.append((result, seen(HELD.kept), HELD.generator.getstate(), random.random()))
    return found


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_calls(fn: Callable[[Tensor, int], Any]) -> None:
    api.reset()
    expected = run(fn)
    compiled = api.compile(fn)
    found = run(compiled)
    agree(expected, found)
    if fn in WHOLE:
        runs_whole(compiled, 3)


@pytest.mark.parametrize("name", ["seed", "__init__"])
def test_methods_that_are_replaced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another `seed` is heard of."""
    api.reset()
    own = getattr(random.Random, name)

    def other(self: random.Random, given: Any = None) -> None:
        own(self, 7)

    def fn(x: Tensor) -> Any:
        return x * random.Random(3).random()

    compiled = api.compile(fn)
    x = torch.ones(3)
    for _ in range(3):
        assert torch.equal(fn(x), compiled(x))
    with monkeypatch.context() as patch:
        patch.setattr(random.Random, name, other)
        for _ in range(3):
            assert torch.equal(fn(x), compiled(x))
    for _ in range(3):
        assert torch.equal(fn(x), compiled(x))
