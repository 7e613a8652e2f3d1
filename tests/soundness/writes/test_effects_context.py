"""Context variables read and written: recorded, replayed, and in other contexts."""

from __future__ import annotations

import contextvars
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from differential.support import api
from torch import Tensor

from ..worlds import World, agree, guard_lines


class Variables:
    """Context variables, each world its own."""

    def __init__(self) -> None:
        self.level: contextvars.ContextVar[Any] = contextvars.ContextVar("level", default=2)
        self.other: contextvars.ContextVar[Any] = contextvars.ContextVar("other", default=3)
        self.bare: contextvars.ContextVar[Any] = contextvars.ContextVar("bare")
        self.made: contextvars.ContextVar[Any] = contextvars.ContextVar("made", default=[1])

    def values(self) -> list[Any]:
        """What they hold."""
        variables = (self.level, self.other, self.bare, self.made)
        return [variable.get("unset") for variable in variables]


def read(x: Tensor, v: Variables) -> Any:
    return x * v.level.get() + v.other.get(5)


def read_default(x: Tensor, v: Variables) -> Any:
    return x * v.bare.get(7) + len(v.made.get())


def set_and_read(x: Tensor, v: Variables) -> Any:
    before = v.level.get()
    v.level.set(9)
    return x * v.level.get() + before


def set_a_tensor(x: Tensor, v: Variables) -> Any:
    v.bare.set([x, x * 2])
    return x + 1


def set_and_reset(x: Tensor, v: Variables) -> Any:
    token = v.level.set(7)
    y = x * v.level.get()
    v.level.reset(token)
    return y + v.level.get()


def reset_without_reading(x: Tensor, v: Variables) -> Any:
    token = v.bare.set(7)
    inner = v.bare.set(8)
    y = x * v.bare.get()
    v.bare.reset(inner)
    y = y + v.bare.get()
    v.bare.reset(token)
    v.other.set(1)
    return y


def reset_to_an_own_value(x: Tensor, v: Variables) -> Any:
    v.level.set(4)
    token = v.level.set(5)
    v.level.reset(token)
    return x * v.level.get()


def two_variables(x: Tensor, v: Variables) -> Any:
    v.level.set(4)
    return x * v.other.get()


def in_turn(x: Tensor, v: Variables) -> Any:
    v.level.set(4)
    v.other.set(5)
    v.level.set(6)
    return x + 1


def default_is_known(x: Tensor, v: Variables) -> Any:
    v.made.get().append(2)
    return x + 1


def give_the_token_back(x: Tensor, v: Variables) -> Any:
    return x + 1, type(v.level.set(3)).__name__


FUNCTIONS = [
    read,
    read_default,
    set_and_read,
    set_a_tensor,
    set_and_reset,
    reset_without_reading,
    reset_to_an_own_value,
    two_variables,
    in_turn,
    default_is_known,
    give_the_token_back,
]


def _set(world: World) -> None:
    world.args[0].level.set(11)
    world.args[0].made.set([1, 2, 3])


def _set_others(world: World) -> None:
    world.args[0].other.set(12)
    world.args[0].bare.set(13)


def _alias(world: World) -> None:
    world.args[0].other = world.args[0].level


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_variables(fn: Callable[..., Any]) -> None:
    def make() -> World:
        variables = Variables()
        return World(fn, (variables,), variables.values)

    agree(make, _set, _set_others, _alias, _set)


def test_each_context_has_its_own_value() -> None:
    variables = Variables()
    compiled = api.compile(read)
    x = torch.ones(3)
    contexts = [contextvars.copy_context() for _ in range(3)]
    for number, context in enumerate(contexts[:2]):
        context.run(variables.level.set, 10 + number)
    for _ in range(2):
        for context in contexts:
            found = context.run(compiled, x, variables)
            assert torch.equal(found, context.run(read, x, variables))
    if not api.PLAIN:
        assert compiled.stats.traces == 3, guard_lines(compiled)
        assert compiled.stats.hits == 3


def test_a_missing_value_raises() -> None:
    def fn(x: Tensor, v: Variables) -> Any:
        try:
            return x * v.bare.get()
        except LookupError:
            return x - 1

    def fill(world: World) -> None:
        world.args[0].bare.set(3)

    agree(lambda: World(fn, (Variables(),)), fill, replays=False)


def test_a_token_from_outside() -> None:
    def fn(x: Tensor, v: Variables, tokens: list[Any]) -> Any:
        if tokens:
            v.level.reset(tokens.pop())
        return x * v.level.get()

    def make() -> World:
        variables = Variables()
        tokens = [variables.level.set(5), variables.level.set(6)]
        return World(fn, (variables, tokens), variables.values)

    agree(make, replays=False)


FORMAT: contextvars.ContextVar[int] = contextvars.ContextVar("FORMAT", default=1)


def array_beside_a_variable(x: Tensor, number: int) -> Any:
    token = FORMAT.set(number)
    try:
        return x * np.sqrt(number), np.sqrt(x.detach().numpy() + number)
    finally:
        FORMAT.reset(token)


def array_behind_a_variable(x: Tensor, number: int) -> Any:
    FORMAT.set(number)
    return x * np.sqrt(number), np.log(x.detach().numpy() - number)


def test_numbers_that_a_variable_is_set_to_vary() -> None:
    """They are only moved."""
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable", default=None)

    def scaled(x: Tensor, number: int) -> Any:
        token = variable.set({"by": number, "half": number / 2})
        try:
            y = x * variable.get()["by"] + variable.get(0)["half"]
        finally:
            variable.reset(token)
        variable.set((number, variable.get()))
        return y, variable.get()[0]

    def run(call: Callable[..., Any]) -> list[str]:
        found = []
        for number in [2, 3, 4, 5, 6, 5, 7, 8]:
            variable.set(number % 2)
            found.append(repr((call(torch.ones(2), number), variable.get())))
        return found

    api.reset()
    compiled = api.compile(scaled)
    alone = contextvars.copy_context()
    assert alone.run(run, compiled) == contextvars.copy_context().run(run, scaled)
    assert api.breaks(compiled) in (None, 0)
    assert (api.hits(compiled) or 5) >= 4


def array_where_errors_are_heard(x: Tensor, number: int) -> Any:
    with np.errstate(all="raise"):
        return np.log(x.detach().numpy() - number)


@pytest.mark.parametrize(
    "fn", [array_beside_a_variable, array_behind_a_variable, array_where_errors_are_heard]
)
def test_arrays_are_computed_where_variables_are_set(fn: Callable[..., Any]) -> None:
    def run(call: Callable[..., Any]) -> list[str]:
        seen = []
        for number in (3, 3, 3, 0, 5):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                try:
                    found = repr(call(torch.arange(1.0, 4.0), number))
                except FloatingPointError as error:
                    found = repr(error)
            seen.append(f"{found} {FORMAT.get()} {[str(it.message) for it in told]}")
        return seen

    def alone(call: Callable[..., Any]) -> list[str]:
        return contextvars.copy_context().run(run, call)

    api.reset()
    compiled = api.compile(fn)
    assert alone(compiled) == alone(fn)
    if fn is not array_where_errors_are_heard:
        assert api.breaks(compiled) in (None, 0)
