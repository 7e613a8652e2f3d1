"""Numbers that are given as tensors and fill tensors: in the graph where no number of the type can raise."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from stator import _stator

REAL = """bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32
float64""".split()


def dtype(name: str) -> torch.dtype:
    found = getattr(torch, name)
    assert isinstance(found, torch.dtype)
    return found


def extremes(name: str) -> list[Tensor]:
    kind = dtype(name)
    if name == "bool":
        numbers: list[Any] = [True, False]
    elif kind.is_floating_point:
        info = torch.finfo(kind)
        numbers = [info.max, info.min, info.tiny, 0.5, float("inf"), -float("inf"), float("nan")]
    else:
        numbers = [torch.iinfo(kind).max, torch.iinfo(kind).min]
    return [torch.tensor(number, dtype=kind) for number in numbers]


def raises(call: Callable[[], Any]) -> bool:
    try:
        call()
    except RuntimeError:
        return True
    return False


@pytest.mark.parametrize("number", REAL)
def test_the_table_of_types_is_pytorchs(number: str) -> None:
    """It is exact: each type that doesn't fit has a number that raises."""
    for element in REAL:
        wanted = dtype(element)
        found = any(raises(lambda t=t: torch.full((2,), t, dtype=wanted)) for t in extremes(number))
        assert _stator._fits(number, element) is not found, element


@pytest.mark.parametrize("number", REAL)
def test_what_fits_can_be_the_end_of_a_range(number: str) -> None:
    for element in ("float32", "float64", "int64", "bfloat16"):
        if _stator._fits(number, element):
            for start, end in itertools.product(extremes(number), repeat=2):
                torch.linspace(start, end, 4, dtype=dtype(element))


def test_complex_numbers() -> None:
    assert _stator._fits("complex64", "complex128") and _stator._fits("float32", "complex64")
    assert not _stator._fits("complex64", "float64") and not _stator._fits("float64", "complex64")
    assert not _stator._fits("qint8", "float32")


def full(t: Tensor) -> Any:
    return torch.full((2,), t), torch.full((3,), fill_value=t, dtype=torch.float64)


def like(t: Tensor) -> Any:
    x = torch.zeros(2, 3)
    return torch.full_like(x, t), x.new_full((2,), t), x.new_full(size=(1,), fill_value=t)


def scalar(t: Tensor) -> Any:
    return torch.scalar_tensor(t)


def span(t: Tensor) -> Any:
    return torch.linspace(t, t + 1, 5), torch.linspace(0, end=t, steps=3), torch.linspace(t, 9, 2)


WHOLE = [full, like, scalar, span]
NUMBERS = [torch.tensor(2.0), torch.tensor(-7.5), torch.tensor(3e38), torch.tensor(float("nan"))]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, (tuple, list)):
        return all(map(same, left, right))
    return left.dtype == right.dtype and torch.equal(left.nan_to_num(), right.nan_to_num())


@pytest.mark.parametrize("fn", WHOLE, ids=lambda fn: fn.__name__)
def test_numbers_that_fit_are_part_of_the_graph(fn: Callable[..., Any]) -> None:
    compiled = api.compile(fn, fullgraph=True)
    for t in NUMBERS:
        assert same(compiled(t), fn(t))
    if not api.PLAIN:
        assert api.traces(compiled) == 1 and api.hits(compiled) == len(NUMBERS) - 1


@pytest.mark.parametrize("fn", [full, like], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("number", ["bool", "int64", "int8"])
def test_integers(fn: Callable[..., Any], number: str) -> None:
    compiled = api.compile(fn, fullgraph=True)
    for t in (1, 0, 1):
        assert same(
            compiled(torch.tensor(t, dtype=dtype(number))), fn(torch.tensor(t).to(dtype(number)))
        )


def narrow(t: Tensor) -> Any:
    try:
        return torch.full((2,), t)
    except RuntimeError:
        return t.new_zeros(2)


def small(t: Tensor) -> Any:
    try:
        return torch.zeros(2, dtype=torch.int8).new_full((2,), t)
    except RuntimeError:
        return torch.zeros(2, dtype=torch.int8)


def between(t: Tensor) -> Any:
    try:
        return torch.linspace(t, 1, 3)
    except RuntimeError:
        return t.new_zeros(2)


@pytest.mark.parametrize("fn", [narrow, small, between], ids=lambda fn: fn.__name__)
def test_numbers_that_may_raise(fn: Callable[..., Any]) -> None:
    compiled = api.compile(fn)
    large, little = torch.tensor(1e300, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64)
    for t in (little, large, little, large, large):
        assert same(compiled(t), fn(t))


def test_the_default_type_is_asked() -> None:
    compiled = api.compile(narrow)
    t = torch.tensor(1e300, dtype=torch.float64)
    for default in (torch.float64, torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(default)
        try:
            assert same(compiled(t), narrow(t))
        finally:
            torch.set_default_dtype(torch.float32)


def sizes(t: Tensor) -> Any:
    return torch.linspace(0, 1, t), torch.full((t, 2), 1.0), torch.zeros(2).new_full((t,), 1)


def test_sizes_are_read() -> None:
    compiled = api.compile(sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for t in (3, 5, 3, 0):
            assert same(compiled(torch.tensor(t)), sizes(torch.tensor(t)))


def test_other_backends_read_the_number() -> None:
    compiled = api.compile(full, backend="fx")
    for t in NUMBERS:
        assert same(compiled(t), full(t))
