"""Texts of tensors in programs that say how tensors are printed: what they have written holds for the texts behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._tensor_str as printing
from torch import Tensor

import stator


def said(x: Tensor) -> Any:
    before = f"{x}"
    torch.set_printoptions(precision=2)
    within = f"{x}", repr(x * 2), "%s" % x
    torch.set_printoptions(precision=4)
    return before, within, str(x)


def in_a_block(x: Tensor) -> Any:
    with printing.printoptions(precision=1, threshold=2, edgeitems=1):
        within = f"{x}", "{}".format(x)
    return within, f"{x}", x + 1


def by_its_field(x: Tensor) -> Any:
    printing.PRINT_OPTS.precision = 1
    within = str(x)
    printing.PRINT_OPTS.precision = 4
    return within, str(x)


def by_another_function(x: Tensor) -> Any:
    own = printing._str
    printing._str = lambda tensor, **options: "replaced"  # type: ignore[assignment]
    try:
        within = f"{x} {x!r}"
    finally:
        printing._str = own
    return within, f"{x}"


def left_sideways(x: Tensor) -> Any:
    texts = [f"{x}"]
    with printing.printoptions(precision=2):
        if x.sum() > 0:
            texts.append(f"{x}")
        texts.append(f"{x * 3}")
    return texts, f"{x}"


PROGRAMS: list[Callable[[Tensor], Any]] = [
    said,
    in_a_block,
    by_its_field,
    by_another_function,
    left_sideways,
]


@pytest.mark.parametrize("settings", [{}, {"skip_unprofitable": False}], ids=["default", "all"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_texts_behind_what_was_written(
    program: Callable[[Tensor], Any], settings: dict[str, Any]
) -> None:
    compiled = stator.compile(program)
    inputs = [torch.tensor([sign * 0.123456, 1.0, 2.0]) * 3 for sign in (1, -50, 1, 2, -40, 3)]
    with stator.config.patch(**settings):
        for x in inputs:
            assert repr(compiled(x)) == repr(program(x))
        texts = []
        for function in (program, compiled):
            with printing.printoptions(precision=3):
                texts.append(repr(function(inputs[0])))
        assert texts[0] == texts[1]
        assert repr(compiled(inputs[1])) == repr(program(inputs[1]))


def test_other_writes_are_no_obstacle() -> None:
    counts = {"calls": 0}

    def program(x: Tensor) -> str:
        counts["calls"] += 1
        return f"{x}"

    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(4):
            x = torch.full((2,), float(call))
            assert compiled(x) == f"{x}"
    assert counts["calls"] == 4
    assert stator.stats(compiled).breaks == 0
