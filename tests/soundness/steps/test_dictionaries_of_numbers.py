"""Dictionaries that are made of others, of pairs and of `zip`: numbers in them are carried, texts that are keys decide."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

from .results import same

Program = Callable[[Tensor, int], Any]
PROGRAMS: list[Program] = []
# Those whose keys are texts of numbers: each number has a trace of its own.
SPELT: list[Program] = []


def carried(program: Program) -> Program:
    PROGRAMS.append(program)
    return program


def spelt(program: Program) -> Program:
    SPELT.append(program)
    return program


@carried
def of_a_defaultdict(x: Tensor, n: int) -> Any:
    metrics = collections.defaultdict(list)
    metrics["loss"].append(x.sum().item())
    metrics["n"].append(n)
    return dict(metrics)


@carried
def of_sums(x: Tensor, n: int) -> Any:
    totals: dict[str, float] = collections.defaultdict(float)
    totals["loss"] += x.sum().item() * n
    return dict(totals), dict(totals, n=n)


@carried
def of_an_ordered_dict(x: Tensor, n: int) -> Any:
    found = collections.OrderedDict(loss=x.sum().item(), n=n)
    found.move_to_end("loss")
    return dict(found), collections.OrderedDict(found), list(dict(found))


@carried
def of_a_zip(x: Tensor, n: int) -> Any:
    found = dict(zip("abc", x.tolist(), strict=False))
    return found, found["a"] + n, collections.OrderedDict(zip(["k", "l"], [n, n + 1], strict=True))


@carried
def of_a_short_zip(x: Tensor, n: int) -> Any:
    return dict(zip(("a", "b", "c", "d", "e"), x.tolist(), strict=False)), n


@carried
def of_pairs(x: Tensor, n: int) -> Any:
    return dict([("loss", x.sum().item()), ("n", n)]), dict((("n", n), ("m", n * 2)))


@spelt
def of_pairs_with_texts(x: Tensor, n: int) -> Any:
    name = f"{int(x[0].item())}"
    found = dict([("1", 10.0), (name, x[1].item())])
    return found["1"], len(found), f"{n}"


@spelt
def of_a_tuple_with_texts(x: Tensor, n: int) -> Any:
    found = dict((("1", 10), (f"{n}", 20)))
    return found["1"], len(found), "2" in found, x * 2


@spelt
def ordered_with_texts(x: Tensor, n: int) -> Any:
    found = collections.OrderedDict([("1", 10), (f"{n}", n)])
    return list(found.items()), found["1"], x * 2


@spelt
def of_a_zip_with_texts(x: Tensor, n: int) -> Any:
    found = dict(zip(["1", f"{int(x[0].item())}"], x.tolist(), strict=False))
    return found["1"], len(found), n


@spelt
def of_numbers_in_a_zip(x: Tensor, n: int) -> Any:
    found = dict(zip([1, n], x.tolist(), strict=False))
    return found[1], len(found)


class Shouting(collections.OrderedDict[str, Any]):
    """Its keys are others than its entries'."""

    def keys(self) -> Any:
        return [key.upper() for key in super().keys()]

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key.lower()) + 1


@spelt
def of_a_subclass(x: Tensor, n: int) -> Any:
    return dict(Shouting(loss=x.sum().item(), n=n))


@pytest.mark.parametrize("floor", [False, True], ids=["every trace", "default"])
@pytest.mark.parametrize("program", [*PROGRAMS, *SPELT], ids=lambda program: program.__name__)
def test_equal_plain_python(program: Program, floor: bool) -> None:
    compiled = api.compile(program, recompile_limit=64)
    with stator.config.patch(skip_unprofitable=floor):
        for call in range(16):
            n = (call * 7 + call // 3) % 3
            x = torch.tensor([float(n), 0.5 * call, -1.0])
            assert same(compiled(x, n), program(x, n)), call


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_numbers_are_carried(program: Program) -> None:
    compiled = api.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(8):
            compiled(torch.tensor([1.0, 0.5 * call, -1.0]), 3 + call)
    assert (api.breaks(compiled), api.traces(compiled)) == (0, 2), api.reason(compiled)
