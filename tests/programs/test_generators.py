"""Random generators that programs make for themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from programs.common import check, random, spec

from stator._program_tracing.batching import NotBatchableError
from stator.errors import ProgramError
from stator.programs import TensorProgram

DRAWS = {
    "randn": lambda x, g: torch.randn(3, generator=g),
    "randint": lambda x, g: torch.randint(0, 9, (3,), generator=g),
    "normal_": lambda x, g: torch.empty(3).normal_(0, 2, generator=g),
    "uniform_": lambda x, g: torch.zeros_like(x[0]).uniform_(-1, 1, generator=g),
    "bernoulli": lambda x, g: torch.bernoulli(torch.full((3,), 0.3), generator=g),
    "multinomial": lambda x, g: torch.multinomial(x.softmax(-1), 4, True, generator=g),
    "randperm": lambda x, g: x[torch.randperm(x.shape[0], generator=g)],
    "exponential_": lambda x, g: x.clone().exponential_(2.0, generator=g),
}


@pytest.mark.parametrize("draw", DRAWS)
def test_draws_are_the_same_in_each_run(draw: str) -> None:
    def fn(x: Any) -> Any:
        own = torch.Generator().manual_seed(11)
        other = torch.Generator(device="cpu")
        other.manual_seed(5)
        first, second = DRAWS[draw](x, own), DRAWS[draw](x, other)
        own.manual_seed(7)
        return first, second, DRAWS[draw](x, own), DRAWS[draw](x, own)

    program = TensorProgram.trace(fn, (spec(None, 3),))
    before = torch.get_rng_state()
    for size in (2, 5, 2, 1):
        check(program, fn, *random(spec(None, 3), size=size))
    # Nobody else's numbers are drawn.
    assert torch.equal(torch.get_rng_state(), before)


def test_a_device_and_a_seed_of_the_program() -> None:
    def fn(x: Any) -> Any:
        own = torch.Generator(torch.device("cpu"))
        return torch.rand(x.shape, generator=own.manual_seed(x.dim() + 2**40))

    check(TensorProgram.trace(fn, (spec(2, 3),)), fn, torch.zeros(2, 3))


OUTSIDE = torch.Generator().manual_seed(3)


def seeds_another(x: Any) -> Any:
    OUTSIDE.manual_seed(4)
    return x


def draws_of_another(x: Any) -> Any:
    return x + torch.rand(3, generator=OUTSIDE)


def seeds_all(x: Any) -> Any:
    torch.manual_seed(4)
    return x


def keeps_it(x: Any) -> Any:
    return x, torch.Generator()


@pytest.mark.parametrize("fn", [seeds_another, draws_of_another, seeds_all, keeps_it])
def test_others_are_left_alone(fn: Any) -> None:
    state, all_others = OUTSIDE.get_state(), torch.get_rng_state()
    with pytest.raises(ProgramError):
        TensorProgram.trace(fn, (spec(3),))
    assert torch.equal(OUTSIDE.get_state(), state)
    assert torch.equal(torch.get_rng_state(), all_others)


def test_a_seed_may_be_read() -> None:
    def fn(x: Any) -> Any:
        return torch.rand(3, generator=torch.Generator().manual_seed(int(x[0])))

    program = TensorProgram.trace(fn, (spec(3),))
    for seed in (1.0, 7.0):
        assert torch.equal(program(torch.full((3,), seed))[0], fn(torch.full((3,), seed)))


def test_rows_would_draw_the_same() -> None:
    def fn(x: Any) -> Any:
        return x + torch.rand(3, generator=torch.Generator().manual_seed(2))

    with pytest.raises(NotBatchableError, match="generator of its own"):
        TensorProgram.trace(fn, (spec(3),)).of_rows(shared=0, count=4)
