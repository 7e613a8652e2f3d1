"""Numbers of `random`: drawn in order by replays, compared and computed with, never burned in.

Each program is called with many seeds; the results and the generators' states behind each call are those of the plain one.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

from ..objects import X

OWN, OTHER = random.Random(3), random.Random(4)
GENERATORS: list[Any] = [random, OWN, OTHER]
CALLS = 30


def seed(number: int) -> None:
    for offset, generator in enumerate(GENERATORS):
        generator.seed(number + 100 * offset)


def observed(fn: Callable[..., Any], number: int, *args: Any) -> Any:
    seed(number)
    # Another time in the state's table: some calls come to its end.
    for generator in GENERATORS:
        for _ in range(number * 43 % 640):
            generator.getrandbits(32)
    try:
        result: Any = fn(*args)
    except Exception as error:
        result = repr(error)
    return result, [generator.getstate() for generator in GENERATORS]


def equal(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor):
        return torch.equal(left, right)
    if isinstance(left, tuple):
        return all(map(equal, left, right))
    return type(left) is type(right) and bool(left == right)


def compare(fn: Callable[..., Any], compiled: Any, *args: Any, calls: int = CALLS) -> None:
    for number in range(calls):
        expected, states = observed(fn, number, *args)
        found, found_states = observed(compiled, number, *args)
        assert equal(found, expected), number
        assert found_states == states, number


def scaled(x: Tensor) -> Tensor:
    return x * random.uniform(0, 1)


def skipped(x: Tensor) -> Tensor:
    return x * 2 if random.random() < 0.5 else x


def given(x: Tensor) -> Any:
    first, second = random.random(), random.random()
    return x * first + second, first, second - first


def layers(x: Tensor) -> Tensor:
    for index in range(3):
        if random.random() > 0.3:
            x = x * 2 + index
    return x


def integers(x: Tensor) -> Any:
    bits = random.getrandbits(7)
    return x + bits, bits % 5, random.randint(0, 9), random.randrange(3, 100)


def distributions(x: Tensor) -> Tensor:
    x = x * random.expovariate(1.5) + random.triangular(0, 2, 1)
    return x + random.paretovariate(3)


def normal(x: Tensor) -> Tensor:
    return x + random.normalvariate(0, 1)


def own(x: Tensor) -> Tensor:
    return x + OWN.random()


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = OWN
        self.last = 0.0

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.generator.random()
        return x + self.last if self.last < 0.7 else x * self.generator.uniform(1, 2)


WHOLE = [scaled, skipped, given, layers, distributions, own, Layer()]


@pytest.mark.parametrize("fn", WHOLE, ids=lambda fn: getattr(fn, "__name__", "Layer"))
def test_draws_are_part_of_the_graph(fn: Callable[..., Any]) -> None:
    compiled = api.compile(fn, fullgraph=True, recompile_limit=64)
    compare(fn, compiled, X)
    if not api.PLAIN:
        assert api.hits(compiled) > CALLS // 2 and not api.breaks(compiled)


@pytest.mark.parametrize("fn", [integers, normal], ids=lambda fn: fn.__name__)
def test_draws_in_loops(fn: Callable[..., Any]) -> None:
    # One trace for each number of times around.
    compiled = api.compile(fn, recompile_limit=64)
    compare(fn, compiled, X, calls=60)
    if not api.PLAIN:
        assert api.hits(compiled) > 10


def chosen(x: Tensor) -> Tensor:
    return x + random.choice([1, 2, 3])


def shuffled(x: Tensor) -> Any:
    order = [1, 2, 3, 4]
    random.shuffle(order)
    return x * order[0], tuple(order)


def gauss(x: Tensor) -> Tensor:
    return x + random.gauss(0, 1)


def seeded(x: Tensor) -> Tensor:
    random.seed(5)
    return x + random.random()


def two_generators(x: Tensor) -> Tensor:
    return x * random.random() + OWN.random() * random.random()


def many_bits(x: Tensor) -> Any:
    return x, random.getrandbits(70)


def saved(x: Tensor) -> Any:
    state = random.getstate()
    first = random.random()
    random.setstate(state)
    return x + random.random() - first


def printed(x: Tensor) -> Any:
    return x, f"{random.random():.3f}"


def made_inside(x: Tensor) -> Tensor:
    return x * random.Random(7).random()


BREAKS = [
    chosen,
    shuffled,
    gauss,
    seeded,
    two_generators,
    many_bits,
    saved,
    printed,
    made_inside,
]


@pytest.mark.parametrize("fn", BREAKS, ids=lambda fn: fn.__name__)
def test_what_needs_the_number_breaks(fn: Callable[..., Any]) -> None:
    compare(fn, api.compile(fn), X)


def test_generators_that_are_one_at_another_call() -> None:
    def fn(x: Tensor, first: random.Random, second: random.Random) -> Tensor:
        return x * first.random() + second.random()

    compiled = api.compile(fn)
    for first, second in [(OWN, OTHER), (OWN, OWN), (OTHER, OWN), (OTHER, OTHER)] * 2:
        compare(fn, compiled, X, first, second, calls=3)


def test_a_subclass_with_a_source_of_its_own() -> None:
    class Fixed(random.Random):
        def random(self) -> float:
            return 0.25

    def fn(x: Tensor, generator: random.Random) -> Tensor:
        return x * generator.random()

    compiled = api.compile(fn)
    for generator in (OWN, Fixed(), OTHER, random.SystemRandom()):
        for _ in range(3):
            if isinstance(generator, random.SystemRandom):
                assert 0 <= float(compiled(torch.ones(()), generator)) < 1
            else:
                compare(fn, compiled, X, generator, calls=2)


def raising(x: Tensor, index: Tensor) -> Any:
    first = random.random()
    y = x * first
    y = y[index]
    return y + random.random()


def handled(x: Tensor, index: Tensor) -> Any:
    first = random.random()
    try:
        y = x[index]
    except IndexError:
        y = x - random.random()
    return y + first * random.random()


@pytest.mark.parametrize("fn", [raising, handled], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("first", ["fine", "raises"])
def test_operations_that_raise(fn: Callable[..., Any], first: str) -> None:
    fine, out = torch.tensor([0, 1]), torch.tensor([99])
    compiled = api.compile(fn)
    order = [fine, fine, out, fine, out, out, fine]
    for index in order if first == "fine" else reversed(order):
        compare(fn, compiled, X, index, calls=3)


@pytest.mark.skipif(api.PLAIN, reason="asks for a node of the graph")
@pytest.mark.parametrize("where", ["before", "behind", "between"])
def test_code_of_the_users_own_that_draws(where: str) -> None:
    @stator.allow_in_graph
    def draws(x: Tensor) -> Tensor:
        return x + random.random()

    def fn(x: Tensor) -> Tensor:
        if where != "behind":
            x = x * random.random()
        x = draws(x)
        return x if where == "before" else x * random.random()

    compare(fn, api.compile(fn), X)


def test_draws_behind_and_before_a_break() -> None:
    def fn(x: Tensor) -> Any:
        p = random.random()
        x = x * p
        stator.graph_break()
        return x + random.random() * p, p

    compiled = api.compile(fn)
    compare(fn, compiled, X)


@pytest.mark.parametrize("backend", ["eager", "fx"])
def test_backends_are_given_the_numbers(backend: str) -> None:
    compiled = api.compile(scaled, backend=backend, fullgraph=True)
    compare(scaled, compiled, X)


def test_threads_draw_different_numbers() -> None:
    """All threads together draw each number of the sequence once."""

    def fn(x: Tensor) -> Any:
        return x * 1, random.random()

    compiled = api.compile(fn)
    compiled(X), compiled(X)
    random.seed(11)
    wanted = sorted(random.random() for _ in range(400))
    random.seed(11)
    found: list[float] = []

    def work() -> None:
        for _ in range(100):
            found.append(compiled(X)[1])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == wanted


def test_the_guard_says_what_was_drawn() -> None:
    compiled = api.compile(skipped)
    seed(1)
    compiled(X)
    if not api.PLAIN:
        assert "random()" in str(compiled.guards())
