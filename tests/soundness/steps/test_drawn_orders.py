"""Orders that generators of Python's draw: numbers in them are carried, other objects are put in order behind a break."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from .results import agree, copied, same

OWN = random.Random(7)
HELD = SimpleNamespace(order=[], rows=[], size=6, count=3, generator=OWN, weights=[1.0, 2.0])


class Counted(random.Random):
    """A generator with a source of its own."""

    calls = 0

    def random(self) -> float:
        self.calls += 1
        return super().random()

    def getrandbits(self, bits: int) -> int:
        self.calls += 1
        return super().getrandbits(bits)


def shuffled(x: Tensor) -> Any:
    order = list(range(len(x)))
    random.shuffle(order)
    return x[order], order, x[torch.tensor(order)]


def batches(x: Tensor) -> Any:
    order = list(range(len(x)))
    random.shuffle(order)
    return [x[torch.tensor(order[at : at + 3])].sum() for at in range(0, len(x), 3)]


def shuffled_where_it_stands(x: Tensor) -> Any:
    random.shuffle(HELD.order)
    return x * HELD.order[0], list(HELD.order)


def shuffled_floats(x: Tensor) -> Any:
    rates = [0.1, 0.2, 0.3, 0.4, 0.5]
    random.shuffle(rates)
    return x * rates[0], rates


def shuffled_read(x: Tensor) -> Any:
    numbers = x[:4].tolist()
    random.shuffle(numbers)
    return numbers, x + numbers[1]


def shuffled_indices(x: Tensor) -> Any:
    numbers = [n.item() for n in x[:4].argsort()]
    OWN.shuffle(numbers)
    return numbers, x[numbers[0]]


def sampled(x: Tensor) -> Any:
    return x[random.sample(range(len(x)), 3)], x * random.sample([2, 4, 6, 8], 2)[0]


def sampled_of_many(x: Tensor) -> Any:
    found = random.sample(range(10, 20000, 3), k=4)
    return x + found[0], found, f"{found[1]}"


def sampled_of_as_many(x: Tensor) -> Any:
    return random.sample(range(HELD.size), HELD.count), x + 1


def chosen(x: Tensor) -> Any:
    return x[random.choices(range(len(x)), k=4)], random.choices((0.5, 1.5), k=2)


def chosen_one(x: Tensor) -> Any:
    return x, random.choices(range(100)), random.choices([1, 2, 3, 4])[0] + 1


def chosen_by_weight(x: Tensor) -> Any:
    return x, random.choices([1, 2], weights=HELD.weights, k=3)


def drawn_before_and_behind(x: Tensor) -> Any:
    first, order = random.random(), list(range(6))
    random.shuffle(order)
    y = x * random.uniform(0, 1) if random.random() < 0.5 else x
    return y * first, order, random.random()


def of_two(x: Tensor) -> Any:
    order = list(range(6))
    HELD.generator.shuffle(order)
    return order, x * OWN.random()


def of_two_behind(x: Tensor) -> Any:
    first, order = OWN.random(), list(range(6))
    HELD.generator.shuffle(order)
    return order, x * first


def seeded(x: Tensor) -> Any:
    random.seed(len(x))
    return x[random.sample(range(len(x)), 2)], random.random()


def objects_shuffled(x: Tensor) -> Any:
    random.shuffle(HELD.rows)
    for row in HELD.rows:
        x = x * 0.5 + row
    return x


def objects_sampled(x: Tensor) -> Any:
    found = random.sample(HELD.rows, 4)
    return x + torch.stack(found).sum(0)


def few_objects(x: Tensor) -> Any:
    layers = [torch.relu, torch.neg, torch.sin]
    random.shuffle(layers)
    for layer in layers:
        x = layer(x)
    return x


def a_deque(x: Tensor) -> Any:
    return x + torch.stack(random.sample(deque(HELD.rows), 3)).sum(0)


def decided_behind(x: Tensor) -> Any:
    order = list(range(6))
    random.shuffle(order)
    if order[0] > 2:
        x = x + order[1]
    return x, order.index(3), random.random()


def raising(x: Tensor) -> Any:
    found = []
    for call in (
        lambda: random.sample(range(3), 5),
        lambda: random.sample([1, 2, 3], -1),
        lambda: random.choices([1, 2, 3], 2),
        lambda: random.choices([1, 2, 3], cum_weights=2),
        lambda: random.sample([1, 2, 3], counts=2),
        lambda: random.shuffle((1, 2, 3)),
        lambda: random.choices([], k=1),
    ):
        try:
            found.append(call())
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return x, found


PROGRAMS: list[Callable[[Tensor], Any]] = [
    shuffled,
    batches,
    shuffled_where_it_stands,
    shuffled_floats,
    shuffled_read,
    shuffled_indices,
    sampled,
    sampled_of_many,
    sampled_of_as_many,
    chosen,
    chosen_one,
    chosen_by_weight,
    drawn_before_and_behind,
    of_two,
    of_two_behind,
    seeded,
    objects_shuffled,
    objects_sampled,
    few_objects,
    a_deque,
    decided_behind,
    raising,
]

# One trace serves all orders.
CARRIED = {
    shuffled,
    batches,
    shuffled_floats,
    shuffled_read,
    shuffled_indices,
    sampled,
    sampled_of_many,
    chosen,
    chosen_one,
    drawn_before_and_behind,
    seeded,
}


def play(program: Callable[[Tensor], Any]) -> list[Any]:
    random.seed(3)
    OWN.seed(4)
    HELD.order, HELD.size, HELD.count, HELD.weights = list(range(5)), 6, 3, [1.0, 2.0]
    HELD.rows = [torch.full((6,), float(at)) for at in range(6)]
    HELD.generator = OWN
    seen: list[Any] = []
    for call in range(12):
        if call == 5:
            HELD.order, HELD.size = [7, 8, 9], 9
            HELD.rows = HELD.rows[1:]
        if call == 7:
            HELD.generator, HELD.count, HELD.weights = random.Random(2), 2, [3.0, 0.5]
        if call == 9:
            HELD.order, HELD.rows = ["a", "b", "c"], [*HELD.rows, torch.ones(6)]
        try:
            result = program(torch.arange(6.0) + call)
        except Exception as error:
            result = (type(error).__name__, str(error))
        states = [hash(it.getstate()) for it in (random._inst, OWN, HELD.generator)]  # type: ignore[attr-defined]
        seen.append((copied(result), list(HELD.order), copied(HELD.rows), states))
    return seen


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda it: it.__name__)
def test_orders_are_plain_ones(program: Callable[[Tensor], Any], backend: str) -> None:
    if backend != "eager" and api.PLAIN:
        pytest.skip("plain mode has no backends")
    expected = play(program)
    compiled = api.compile(program, backend=backend)
    agree(expected, play(compiled))
    if program in CARRIED and backend == "eager" and not api.PLAIN:
        assert api.breaks(compiled) == 0, api.reason(compiled)
        assert (api.hits(compiled) or 0) >= 9


@pytest.mark.skipif(api.PLAIN, reason="plain mode has no statistics")
@pytest.mark.parametrize("program", [objects_shuffled, objects_sampled])
def test_objects_are_put_in_order_behind_one_break(program: Callable[[Tensor], Any]) -> None:
    compiled = api.compile(program, backend="eager")
    play(compiled)
    traces, breaks = api.traces(compiled), api.breaks(compiled)
    assert traces is not None and breaks is not None
    assert traces <= 8 and breaks <= 4, (traces, breaks)


def test_generators_with_a_source_of_their_own() -> None:
    def program(x: Tensor, generator: random.Random) -> Any:
        order = list(range(6))
        generator.shuffle(order)
        return x[order], generator.sample(range(9), 2)

    compiled = api.compile(program, backend="eager")
    plain, own = [Counted(3), random.Random(5)], [Counted(3), random.Random(5)]
    for call in range(8):
        at = int(call in (2, 3, 5, 6))
        x = torch.arange(6.0) + call
        assert same(copied(compiled(x, own[at])), copied(program(x, plain[at]))), call
    assert plain[0].calls == own[0].calls  # type: ignore[attr-defined]


def test_a_method_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = api.compile(shuffled, backend="eager")
    for call in range(6):
        if call == 3:
            monkeypatch.setattr(random.Random, "shuffle", lambda self, x: x.reverse())
            monkeypatch.setattr(random, "shuffle", OWN.shuffle)
        x = torch.arange(6.0) + call
        random.seed(call)
        expected = copied(shuffled(x))
        random.seed(call)
        assert same(copied(compiled(x)), expected), call
