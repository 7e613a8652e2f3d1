"""What Python reads of tensors of every dtype: numbers that are carried, and those that end the trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

from .results import same

DTYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex32, torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
]

Read = Callable[[Tensor], Any]
READS: dict[str, Read] = {
    "item": lambda t: t.item(),
    "item of a sum": lambda t: (t.sum().item(), 1),
    "part of a list": lambda t: [t.item(), "b"],
    "computed with": lambda t: torch.ones(2) * (t.item() + 1),
    "compared": lambda t: "one" if t.item() == 1 else "other",
    "type": lambda t: type(t.item()),
    "tolist": lambda t: t.reshape(1).tolist(),
    "float": lambda t: float(t),
    "int": lambda t: int(t),
    "bool": lambda t: bool(t),
    "complex": lambda t: complex(t),
    "truth": lambda t: "yes" if t else "no",
    "text": lambda t: f"{t.item()} {t.item()!r}",
}


def ended(read: Read, value: Tensor) -> Any:
    try:
        return read(value)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.filterwarnings("ignore:ComplexHalf:UserWarning")
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_numbers(read: Read, dtype: torch.dtype) -> None:
    compiled = api.compile(read)
    for value in (2, 2, 0, 1, 3, 2):
        for shape in ((), (1,)):
            tensor = torch.tensor(value).to(dtype).reshape(shape)
            expected, found = ended(read, tensor), ended(compiled, tensor)
            assert same(found, expected), (value, shape, found, expected)


TRUTHS: dict[str, Read] = {
    "index": lambda t: [0.5, 2.5][int(t)] * torch.ones(2),
    "sum": lambda t: int(t) + int(~t) + 1.5,
    "float": lambda t: torch.full((2,), float(t)),
    "kept": lambda t: {"right": int(t.all()), "share": float(t.any()) / 2},
}


@pytest.mark.parametrize("read", TRUTHS.values(), ids=TRUTHS)
def test_numbers_of_truths_break_nothing(read: Read) -> None:
    """`int()` and `float()` of a truth value are numbers like others."""
    with stator.config.patch(skip_unprofitable=False):
        compiled = api.compile(read)
        for value in (True, True, False, True, False, False, True):
            tensor = torch.tensor(value)
            assert same(compiled(tensor), read(tensor))
    if not api.PLAIN:
        stats = stator.stats(compiled)
        assert stats.breaks == 0 and stats.hits > 0, stats.reason
