"""Autocast within programs: what they switch is part of them, what others switched isn't."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from programs.common import I64, check, random, spec

from stator.errors import ProgramError
from stator.programs import TensorProgram

SPECS = (spec(4, 3), spec(None, 4), spec(None, dtype=I64))
BF16 = torch.bfloat16


def in_a_block(w: Any, x: Any, y: Any) -> Any:
    with torch.autocast("cpu", dtype=BF16):
        out = x @ w
        loss = F.cross_entropy(out, y)
    return out, loss, x @ w


def nested(w: Any, x: Any, y: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.float16):
        with torch.autocast("cpu", enabled=False):
            exact = x @ w
        return exact, x @ w


@torch.autocast("cpu", dtype=BF16)
def decorated(w: Any, x: Any, y: Any) -> Any:
    return F.linear(x, w.T), x.sum(), F.softmax(x, -1)


def trained(w: Any, x: Any, y: Any) -> Any:
    """Copies of weights in 16 bits are made anew in each block: the steps change the weights."""
    w = w.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.5, momentum=0.9)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=BF16):
            loss = F.cross_entropy(x @ w, y) + (x @ w).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return w.detach(), *losses


def without_copies(w: Any, x: Any, y: Any) -> Any:
    w = w.clone().requires_grad_()
    with torch.amp.autocast("cpu", dtype=BF16, cache_enabled=False):
        loss = (x @ w).sum() + (x @ w).square().sum()
    return torch.autograd.grad(loss, w)[0], torch.tensor(float(torch.is_autocast_enabled("cpu")))


FUNCTIONS = [in_a_block, nested, decorated, trained, without_copies]


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_programs_switch_it(fn: Any) -> None:
    program = TensorProgram.trace(fn, SPECS)
    assert "set_autocast_enabled" in program.text
    for size in (3, 5, 1):
        check(program, fn, *random(*SPECS, size=size))
    assert is_as_before()


def is_as_before() -> bool:
    depth = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    return depth == 1 and not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_traced_within_a_block(fn: Any) -> None:
    with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
        within = TensorProgram.trace(fn, SPECS)
        assert torch.get_autocast_dtype("cpu") is torch.float16
        assert not torch.is_autocast_cache_enabled()
    assert within.text == TensorProgram.trace(fn, SPECS).text
    assert is_as_before()


def plain(w: Any, x: Any, y: Any) -> Any:
    return x @ w, (x @ w).sum()


@pytest.mark.parametrize("fn", [plain, *FUNCTIONS])
def test_a_callers_block_makes_no_difference(fn: Any) -> None:
    program = TensorProgram.trace(fn, SPECS)
    given = random(*SPECS, size=4)
    expected = program(*given)
    w = torch.randn(3, 3, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.float16):
        before = w @ w
        found = program(*given)
        assert torch.equal(w @ w, before) and before.dtype is torch.float16
        assert torch.get_autocast_dtype("cpu") is torch.float16
    assert all(map(torch.equal, found, expected))
    assert is_as_before()


def test_it_is_switched_back_after_an_error() -> None:
    def fn(x: Any, y: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.float16):
            return F.cross_entropy(x, y)

    program = TensorProgram.trace(fn, (spec(None, 3), spec(None, dtype=I64)))
    for _ in range(3):
        with pytest.raises(IndexError, match="out of bounds"):
            program(torch.zeros(2, 3), torch.tensor([0, 7]))
        assert is_as_before()
        assert torch.get_autocast_dtype("cpu") is torch.bfloat16


BLOCK = torch.autocast("cpu")


@BLOCK
def decides(x: Any) -> Any:
    return x if x.sum() > 0 else -x


def decides_within(x: Any) -> Any:
    with torch.autocast("cpu"), BLOCK:
        return x if x.sum() > 0 else -x


def raises(x: Any) -> Any:
    with BLOCK:
        raise KeyError("truth value")


@pytest.mark.parametrize("fn", [decides, decides_within, raises])
def test_errors_while_it_is_traced(fn: Any) -> None:
    before = dict(vars(BLOCK))
    for _ in range(2):
        with pytest.raises((ProgramError, KeyError), match="truth value"):
            TensorProgram.trace(fn, (spec(3),))
        assert is_as_before()
        assert vars(BLOCK) == before


def test_errors_that_the_function_catches() -> None:
    def fn(x: Any) -> Any:
        try:
            with BLOCK:
                x = x @ x
                raise KeyError("truth value")
        except KeyError:
            return x, x.float() @ x.float()

    program = TensorProgram.trace(fn, (spec(3, 3),))
    check(program, fn, *random(spec(3, 3)))
