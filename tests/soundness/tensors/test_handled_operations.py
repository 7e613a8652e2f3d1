"""Operations that raise while they are recorded: what they say of metadata is handled in the trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from ..probe import Probe

A, B = torch.ones(2, 3), torch.full((2, 3), 2.0)
GOOD = torch.ones(3, 2)


def matrix(x: Tensor, y: Tensor) -> Tensor:
    try:
        z = x @ y
    except RuntimeError:
        z = x @ y.t()
    return z + 1


def text(x: Tensor, y: Tensor) -> tuple[Tensor, str, int]:
    try:
        return x @ y, "", 0
    except RuntimeError as error:
        return x * 2, str(error), len(error.args)


def inner(x: Tensor, y: Tensor) -> Tensor:
    def multiply(a: Tensor, b: Tensor) -> Tensor:
        return torch.matmul(a, b) + 1

    try:
        return multiply(x * 2, y)
    except (ValueError, RuntimeError):
        return x - 1


def in_place(x: Tensor, y: Tensor) -> Tensor:
    z = x.clone()
    try:
        z += y.view(-1)[:2]
    except RuntimeError:
        z -= 1
    finally:
        z *= 2
    return z


def index(x: Tensor, y: Tensor) -> Tensor:
    try:
        return x[2] + 1
    except IndexError:
        return y * 3


def types(x: Tensor, y: Tensor) -> Tensor:
    try:
        return x + "text"  # type: ignore[operator]
    except TypeError:
        return y + x.shape[0]


def several(x: Tensor, y: Tensor) -> tuple[Tensor, int]:
    count = 0
    for size in (4, 5, 6, 7):
        try:
            x = x.view(size)
        except RuntimeError:
            count += 1
    return x, count


def manager(x: Tensor, y: Tensor) -> Tensor:
    z = x
    try:
        with torch.no_grad():
            z = x * 3
            z = torch.cat([x, y.view(-1)])
    except RuntimeError:
        z = z + 1
    return z + (1 if torch.is_grad_enabled() else 2)


def again(x: Tensor, y: Tensor) -> Tensor:
    try:
        try:
            return x @ y
        except RuntimeError as error:
            raise ValueError("mine") from error
    except ValueError as error:
        return x + len(str(error.__cause__))


CASES = [matrix, text, inner, in_place, index, types, several, manager, again]


@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
def test_the_trace_goes_on(fn: Callable[..., Any]) -> None:
    probe = Probe(fn)
    probe.right(A, B)
    probe.steady(A, B)
    probe.steady(B, A)
    if not api.PLAIN:
        assert (api.breaks(probe.compiled), api.native(probe.compiled)) == (0, 0)
    for other in (
        (A, GOOD),
        (GOOD, A),
        (torch.ones(3, 3), torch.ones(3, 3)),
        (A.double(), B.double()),
    ):
        probe.right(*other)
        probe.right(*other)
    probe.right(A, B)


def test_data_is_tried_again() -> None:
    def fn(x: Tensor, index: Tensor) -> Tensor:
        y = x * 2
        try:
            return y[index] + 1
        except IndexError:
            return y

    probe = Probe(fn)
    for number in (9, 9, 1, 9, 1, 1):
        probe.right(torch.arange(4.0), torch.tensor([number]))


def test_symbolic_sizes() -> None:
    probe = Probe(matrix, dynamic=True)
    for rows in (2, 4, 5, 3, 3, 6):
        probe.right(torch.ones(rows, 3), torch.ones(rows, 3))


def break_in_the_handler(x: Tensor, y: Tensor) -> Tensor:
    try:
        z = x @ y
    except RuntimeError as error:
        print("oh no", error)
        z = x @ y.t()
    return z + 1


def break_in_a_leaf(x: Tensor, y: Tensor) -> Tensor:
    try:
        z = torch.nn.functional.interpolate(x, scale_factor=y.dim())
    except (NotImplementedError, ValueError, RuntimeError) as error:
        print("oh no", type(error))
        z = x
    return z + 1


@pytest.mark.parametrize("fn", [break_in_the_handler, break_in_a_leaf])
def test_a_break_while_it_is_handled(
    fn: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    compiled = api.compile(fn)
    for step in range(5):
        expected = fn(A + step, B)
        printed = capsys.readouterr().out
        assert torch.equal(compiled(A + step, B), expected)
        assert capsys.readouterr().out == printed
    if not api.PLAIN:
        assert api.hits(compiled) >= 2  # type: ignore[operator]


def test_unhandled() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        return x @ y

    probe = Probe(fn)
    for _ in range(3):
        probe.right(A, B)
    probe.right(A, GOOD)
    probe.steady(A, GOOD)
    probe.right(A, B)


def test_returned() -> None:
    def fn(x: Tensor, y: Tensor) -> Any:
        try:
            return x @ y
        except RuntimeError as error:
            return x + 1, error.args

    probe = Probe(fn)
    probe.right(A, B)
    probe.steady(A, B)
    probe.right(A, GOOD)


@pytest.mark.parametrize("backend", ["fx", "aot_eager"])
def test_other_backends(backend: str) -> None:
    probe = Probe(matrix, backend=backend)
    for _ in range(4):
        probe.right(A, B)
    probe.right(A, GOOD)
