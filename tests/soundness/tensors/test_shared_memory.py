"""Inputs that share memory, or don't, with backends that keep values of their own."""

from __future__ import annotations

import pytest
import torch
from differential.support import api
from torch import Tensor

Pair = tuple[Tensor, Tensor]


def apart() -> Pair:
    return torch.ones(4), torch.ones(4)


def views() -> Pair:
    base = torch.ones(4)
    return base[:], base[:]


def overlapping() -> Pair:
    base = torch.ones(6)
    return base[:4], base[2:]


def touching() -> Pair:
    base = torch.ones(8)
    return base[:4], base[4:]


def numpy_shared() -> Pair:
    array = torch.ones(4).numpy()
    return torch.from_numpy(array), torch.from_numpy(array)


WAYS = [apart, views, overlapping, touching, numpy_shared]


def _sequences() -> list[list[int]]:
    return [[first, first, second, first] for first in range(5) for second in range(5)]


@pytest.mark.parametrize("backend", ["eager", "fx", "aot_eager"])
@pytest.mark.parametrize("order", _sequences(), ids=str)
def test_a_write_through_one(backend: str, order: list[int]) -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return y * 2

    compiled = api.compile(fn, backend=backend)
    for way in order:
        (a, b), (c, d) = WAYS[way](), WAYS[way]()
        assert torch.equal(compiled(a, b), fn(c, d)), WAYS[way].__name__
        assert torch.equal(a, c), WAYS[way].__name__
        assert torch.equal(b, d), WAYS[way].__name__
    assert api.PLAIN or (api.traces(compiled), api.native(compiled)) == (1, 0)


@pytest.mark.parametrize("backend", ["eager", "fx", "aot_eager"])
def test_the_same_tensors_come_to_share_memory(backend: str) -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return y * 2

    compiled = api.compile(fn, backend=backend)
    (a, b), (c, d) = apart(), apart()
    for step in range(9):
        if step == 3:
            b.set_(a)
            d.set_(c)
        elif step == 6:
            b.data, d.data = torch.ones(4), torch.ones(4)
        assert torch.equal(compiled(a, b), fn(c, d)), step
        assert torch.equal(a, c) and torch.equal(b, d), step


def test_nothing_is_made_again_for_graphs_that_only_read() -> None:
    made = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        made.append(gm)
        return gm

    compiled = api.compile(lambda x, y: x + y, backend=backend)
    for way in (apart, apart, views, overlapping):
        compiled(*way())
    assert api.PLAIN or len(made) == 1
