"""Texts of tensors with one element: those of the number that the tensor holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

from .results import copied, same


def f_string(x: Tensor) -> Any:
    norm, loss = x.norm(), (x * x).mean()
    return f"norm {norm:.3f}, loss {loss}", f"{loss:>12.2e}|{norm:+.1%}", x + 1


def f_string_of_integers(x: Tensor) -> Any:
    return f"best {x.argmax()} of {x.numel()}: {x.argmax():03d}", x + 1


def f_string_of_a_truth(x: Tensor) -> Any:
    return f"up: {x.sum() > 0}", x + 1


def format_function(x: Tensor) -> Any:
    return format(x.sum(), ".4f"), format(x.argmin(), ">5"), format(x.mean()), x + 1


def format_method(x: Tensor) -> Any:
    loss = x.sum()
    return (
        "{:.2f} {} {n:.1f}".format(loss, x.argmax(), n=x.mean()),
        "{0:.3f} {0}".format(loss),
        x + 1,
    )


def percent(x: Tensor) -> Any:
    loss = x.sum()
    return "loss %.3f" % loss, "%d of %s: %5.2f%%" % (x.argmax(), "x", x.mean()), x + 1


def percent_of_floats(x: Tensor) -> Any:
    """It raises for some."""
    return "%d" % (100 * x.sum()), x + 1


def with_numbers(x: Tensor) -> Any:
    lines = []
    for i in range(3):
        lines.append(f"step {i}: {(x + i).sum():.3f} {(x + i).mean().item():.2f}")
    return lines, ", ".join(lines), x + 1


def of_one_dimension(x: Tensor) -> Any:
    """Others with one element print as tensors do, and take a format as objects do."""
    return f"{x[:1]}", "%.2f" % x[:1], x + 1


def of_parameters(x: Tensor) -> Any:
    """So do instances of subclasses."""
    return f"{torch.nn.Parameter(x.sum())}", x + 1


def conversions(x: Tensor) -> Any:
    loss = x.sum()
    return f"{loss!r} {loss!s:>20}", str(loss), repr(loss), "{!r}".format(loss), "%s" % loss, x + 1


def of_attributes(x: Tensor) -> Any:
    return "{0.shape}".format(x.sum()), "{0.ndim:d}".format(x.sum()), x + 1


def raising(x: Tensor) -> Any:
    try:
        return f"{x.sum():d}", x
    except ValueError as error:
        return str(error), x + 1


def width_of_data(x: Tensor) -> Any:
    return f"{x.sum():.{x.argmax().item() + 1}f}", x + 1


def outcome(program: Callable[[Tensor], Any], x: Tensor) -> Any:
    try:
        return copied(program(x))
    except (OverflowError, ValueError) as error:
        return str(error)


# How many traces there are where no graph breaks.
PROGRAMS: dict[Callable[[Tensor], Any], int | None] = {
    f_string: 1,
    f_string_of_integers: 1,
    f_string_of_a_truth: 2,
    format_function: 1,
    format_method: None,
    percent: 1,
    percent_of_floats: None,
    with_numbers: 1,
    of_one_dimension: None,
    of_parameters: None,
    conversions: None,
    of_attributes: None,
    raising: None,
    width_of_data: None,
}


@pytest.mark.parametrize("program", list(PROGRAMS), ids=lambda it: it.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_texts(program: Callable[[Tensor], Any], dtype: torch.dtype) -> None:
    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(8):
            x = torch.randn(4, generator=torch.Generator().manual_seed(call)).to(dtype)
            if call == 6:
                x[0] = float("nan")
            if call == 7:
                x[1] = float("inf")
            assert same(outcome(program, x), outcome(compiled, x)), call
    stats = stator.stats(compiled)
    if PROGRAMS[program] is not None:
        assert (stats.traces, stats.breaks, stats.native) == (PROGRAMS[program], 0, 0), stats.reason


def test_other_backends() -> None:
    compiled = stator.compile(f_string, backend="fx")
    for call in range(3):
        x = torch.randn(4, generator=torch.Generator().manual_seed(call))
        assert same(copied(f_string(x)), copied(compiled(x)))


def test_how_tensors_are_printed_is_asked() -> None:
    """What `Tensor.__format__` says of a tensor without dimensions doesn't ask the print options."""
    compiled = stator.compile(f_string)
    x = torch.randn(4)
    with stator.config.patch(skip_unprofitable=False):
        first = compiled(x)
        torch.set_printoptions(precision=1)
        try:
            assert same(copied(compiled(x)), copied(first))
        finally:
            torch.set_printoptions(profile="default")
