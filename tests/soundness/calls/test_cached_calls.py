"""Functions under `functools.lru_cache`: results, counters, which result is dropped, and errors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

X = torch.ones(2)


class Cached:
    """A cached function that notes for what it ran, and a program that calls it."""

    def __init__(self, wrap: Callable[[Any], Any], program: Callable[..., Any]) -> None:
        self.ran: list[Any] = []

        def table(n: Any, scale: int = 1) -> list[Any]:
            self.ran.append((n, scale))
            return [n, scale]

        self.table = wrap(table)
        self.program = lambda x, n: program(x, self.table, n)

    def state(self) -> Any:
        return tuple(self.table.cache_info()), list(self.ran)


def once(x: Tensor, table: Any, n: int) -> Any:
    return x * table(n)[0], table(n)


def by_name(x: Tensor, table: Any, n: int) -> Any:
    return x * table(scale=n, n=3)[1], table(3, scale=n)


def others_too(x: Tensor, table: Any, n: int) -> Any:
    first = table(1)
    return x * table(n)[0] + first[0], table("a"), table(1) is first


def told(x: Tensor, table: Any, n: int) -> Any:
    found = table(n)
    return x * found[0], table.cache_info(), table(n)


WRAPS = {
    "unbounded": functools.cache,
    "two": functools.lru_cache(2),
    "three": functools.lru_cache(3),
    "many": functools.lru_cache,
    "none": functools.lru_cache(0),
    "typed": functools.lru_cache(4, typed=True),
}
NUMBERS = [1, 1, 1, 2, 1, 1, 3, 3, 2, 2, 1, 4, 1, 1, 2, 3, 3, 3]


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("program", [once, by_name, others_too, told])
@pytest.mark.parametrize("options", [{}, {"dynamic": True}], ids=["", "dynamic"])
def test_hits_and_drops(wrap: str, program: Callable[..., Any], options: dict[str, Any]) -> None:
    plain, ours = Cached(WRAPS[wrap], program), Cached(WRAPS[wrap], program)
    compiled = api.compile(ours.program, **options)
    for at, n in enumerate(NUMBERS):
        (y, *expected), (found, *others) = plain.program(X, n), compiled(X, n)
        assert torch.equal(found, y) and others == expected
        assert ours.state() == plain.state(), (at, n)
        if at == 9:
            plain.table.cache_clear()
            ours.table.cache_clear()


def test_hits_are_replayed() -> None:
    cached = Cached(functools.lru_cache(2), once)
    compiled = api.compile(cached.program, fullgraph=True)
    for _ in range(5):
        compiled(X, 1)
    assert cached.table.cache_info().hits == 9
    if not api.PLAIN:
        assert compiled.stats.hits == 4 and compiled.stats.breaks == 0


def test_calls_by_code_within_a_node() -> None:
    cached = Cached(functools.lru_cache(2), once)

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * cached.table(2)[0]

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * cached.table(3)[0]

    def step(x: Tensor) -> Tensor:
        y: Tensor = Scaled.apply(x * cached.table(1)[0])
        return torch.autograd.grad(y.sum(), x)[0] + cached.table(1)[0]

    def run(call: Callable[..., Tensor]) -> list[Any]:
        cached.table.cache_clear()
        cached.ran.clear()
        results = [call(torch.ones(2, requires_grad=True)).tolist() for _ in range(4)]
        return [results, cached.state()]

    assert run(api.compile(step)) == run(step)


def test_errors_are_raised_anew() -> None:
    def make() -> tuple[Callable[[Tensor], Any], Callable[[], Any]]:
        ran: list[int] = []

        @functools.lru_cache
        def late(n: int) -> int:
            ran.append(n)
            if len(ran) < 4:
                raise ValueError(n)
            return 5

        def program(x: Tensor) -> Any:
            try:
                return x + late(1)
            except ValueError as error:
                return x - 1, error.args

        return program, lambda: (list(ran), tuple(late.cache_info()))

    (plain, state), (ours, our_state) = make(), make()
    compiled = api.compile(ours)
    for _ in range(7):
        assert str(compiled(X)) == str(plain(X))
        assert our_state() == state()


def test_types_in_keys_are_known() -> None:
    """With `typed=True` a key has the types of what was given."""
    cached = Cached(functools.lru_cache(4, typed=True), once)

    def program(x: Tensor, n: Any) -> Any:
        return x * cached.table(n)[0], cached.table("a", scale=n)[1]

    compiled = api.compile(program)
    for n in (1, 1, True, 1.0, 1, True, 1.0, 2, 1):
        (y, scale), (found, own) = program(X, n), compiled(X, n)
        assert torch.equal(y, found) and type(own) is type(scale) and own == scale
    assert {type(n) for n, _ in cached.ran} == {int, bool, float, str}
    compiled = api.compile(program)
    for _ in range(6):
        compiled(X, 1)
    if not api.PLAIN:
        assert compiled.stats.breaks == 0 and compiled.stats.hits == 5
