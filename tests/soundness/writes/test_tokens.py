"""Tokens of context variables that a graph break stands behind: reset in another trace than they were made in."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from ..worlds import World, agree


class Variables:
    def __init__(self) -> None:
        self.level: contextvars.ContextVar[Any] = contextvars.ContextVar("level", default=2)
        self.bare: contextvars.ContextVar[Any] = contextvars.ContextVar("bare")
        self.tokens: list[Any] = []

    def values(self) -> list[Any]:
        """What they hold, and whether a token was kept."""
        return [self.level.get("unset"), self.bare.get("unset"), len(self.tokens)]


def pause() -> None:
    """A break."""
    torch._dynamo.graph_break()


def around(x: Tensor, v: Variables) -> Any:
    token = v.level.set(7)
    y = x * v.level.get()
    pause()
    y = y + v.level.get()
    v.level.reset(token)
    return y * 2


def read_after(x: Tensor, v: Variables) -> Any:
    token = v.level.set(7)
    pause()
    v.level.reset(token)
    return x * 2 + v.level.get()


def nested(x: Tensor, v: Variables) -> Any:
    outer, inner = v.level.set(7), v.level.set(8)
    other = v.bare.set(9)
    pause()
    y = x * v.level.get()
    v.level.reset(inner)
    v.level.reset(outer)
    v.bare.reset(other)
    return y + 1


def inner_alone(x: Tensor, v: Variables) -> Any:
    v.level.set(7)
    inner = v.level.set(8)
    pause()
    y = x * v.level.get()
    v.level.reset(inner)
    return y + v.level.get()


def outer_first(x: Tensor, v: Variables) -> Any:
    outer = v.level.set(7)
    inner = v.level.set(8)
    pause()
    v.level.reset(outer)
    y = x * v.level.get()
    v.level.reset(inner)
    return y + v.level.get()


def used_between(x: Tensor, v: Variables) -> Any:
    outer = v.level.set([7])
    v.level.reset(v.level.set(8))
    v.level.get().append(9)
    inner = v.level.set(10)
    pause()
    y = x * v.level.get()
    v.level.reset(inner)
    same = inner.old_value is v.level.get()
    y = y + sum(v.level.get())
    v.level.reset(outer)
    return y, same, inner.old_value


def three_levels(x: Tensor, v: Variables) -> Any:
    tokens = [v.level.set(value) for value in (4, 5, 6)]
    pause()
    for token in reversed(tokens):
        x = x * v.level.get()
        v.level.reset(token)
    return x


def set_again(x: Tensor, v: Variables) -> Any:
    token = v.level.set(7)
    pause()
    y = x * 2
    v.level.reset(token)
    own = v.level.set(5)
    y = y + v.level.get()
    v.level.reset(own)
    v.level.set(6)
    return y


def set_before(x: Tensor, v: Variables) -> Any:
    token = v.level.set(7)
    pause()
    y = x * 2
    v.level.set(5)
    v.level.reset(token)
    return y + 1


def token_of_a_token(x: Tensor, v: Variables) -> Any:
    token = v.level.set(7)
    pause()
    y = x * 2
    v.level.reset(token)
    second = v.level.set(4)
    pause()
    v.level.reset(second)
    return y - 1


@contextlib.contextmanager
def level(v: Variables, value: Any) -> Iterator[None]:
    token = v.level.set(value)
    try:
        yield
    finally:
        v.level.reset(token)


def in_a_block(x: Tensor, v: Variables) -> Any:
    with level(v, 3), level(v, 4):
        y = x * v.level.get()
        pause()
        y = y + v.level.get()
    return y


def with_an_error(x: Tensor, v: Variables) -> Any:
    try:
        with level(v, 3):
            y = x * 2
            pause()
            y = y + v.level.get()
            raise ValueError(v.level.get())
    except ValueError as error:
        return y, str(error), v.level.get()


def raising(x: Tensor, v: Variables) -> Any:
    token = v.level.set(3)
    try:
        pause()
        raise ValueError(v.level.get())
    finally:
        v.level.reset(token)


def twice(x: Tensor, v: Variables) -> Any:
    token = v.level.set(3)
    pause()
    y = x + 1
    v.level.reset(token)
    try:
        v.level.reset(token)
    except RuntimeError as error:
        return y, "used" in str(error)


def twice_beyond_a_break(x: Tensor, v: Variables) -> Any:
    token = v.level.set(3)
    v.level.reset(token)
    pause()
    y = x + 1
    try:
        v.level.reset(token)
    except RuntimeError as error:
        return y, "used" in str(error)


def of_another(x: Tensor, v: Variables) -> Any:
    token = v.level.set(3)
    pause()
    y = x + 1
    try:
        v.bare.reset(token)
    except ValueError as error:
        return y, "different" in str(error)


def attributes(x: Tensor, v: Variables) -> Any:
    token = v.level.set(3)
    unset = v.bare.set(3)
    pause()
    missing = unset.old_value is contextvars.Token.MISSING
    return x + 1, token.old_value, token.var is v.level, missing


def kept(x: Tensor, v: Variables) -> Any:
    v.tokens.append(v.level.set(3))
    pause()
    y = x * 2
    v.level.reset(v.tokens.pop())
    return y


def from_outside(x: Tensor, v: Variables) -> Any:
    y = x * 2
    if v.tokens:
        v.level.reset(v.tokens.pop())
    else:
        v.tokens.append(v.level.set(11))
    return y + 1


def in_another_context(x: Tensor, v: Variables) -> Any:
    token = v.level.set(3)
    pause()
    y = x * 2
    try:
        contextvars.copy_context().run(v.level.reset, token)
    except ValueError as error:
        return y, "Context" in str(error), v.level.get()


FUNCTIONS = [
    around,
    read_after,
    nested,
    inner_alone,
    outer_first,
    used_between,
    three_levels,
    set_again,
    set_before,
    token_of_a_token,
    in_a_block,
    with_an_error,
    raising,
    twice,
    twice_beyond_a_break,
    of_another,
    attributes,
    kept,
    from_outside,
    in_another_context,
]


def _set(world: World) -> None:
    world.args[0].level.set(11)


def _others(world: World) -> None:
    world.args[0].bare.set(13)


def _alias(world: World) -> None:
    world.args[0].bare = world.args[0].level


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_tokens(fn: Callable[..., Any]) -> None:
    def make() -> World:
        variables = Variables()
        return World(fn, (variables,), variables.values)

    agree(make, _set, _others, _alias, _set, replays=False, again=4)


def test_a_reset_behind_a_break_is_part_of_a_trace() -> None:
    variables = Variables()
    compiled = api.compile(around)
    for _ in range(4):
        assert torch.equal(compiled(torch.ones(3), variables), around(torch.ones(3), variables))
    if not api.PLAIN:
        assert (compiled.stats.traces, compiled.stats.breaks) == (2, 1)
        lines = "\n".join("\n".join(lines) for lines in compiled.guards())
        assert ".reset(L['around.token']) is possible" in lines, lines


def test_each_context_has_its_own_tokens() -> None:
    variables = Variables()
    compiled = api.compile(around)
    x = torch.ones(3)
    contexts = [contextvars.copy_context() for _ in range(3)]
    for number, context in enumerate(contexts[:2]):
        context.run(variables.level.set, 10 + number)
    for _ in range(3):
        for context in contexts:
            assert torch.equal(
                context.run(compiled, x, variables), context.run(around, x, variables)
            )
            assert context.run(variables.level.get) == context.get(variables.level, 2)


@pytest.mark.skipif(api.PLAIN, reason="plain mode has no statistics")
def test_decisions_behind_nested_tokens_leave_the_trace_whole() -> None:
    import stator

    collected: contextvars.ContextVar[Any] = contextvars.ContextVar("collected", default=None)

    def inner(x: Tensor, names: list[str]) -> Tensor:
        token = collected.set({"inner": names})
        try:
            return x * 2 if (x > 0).all() else x - 1
        finally:
            collected.get()["inner"].append("seen")
            collected.reset(token)

    def outer(x: Tensor, names: list[str]) -> Tensor:
        token = collected.set({"outer": 1})
        try:
            return inner(x, names)
        finally:
            collected.reset(token)

    compiled = api.compile(outer)
    for value in (1.0, 2.0, -1.0, 3.0, -2.0):
        x, plain, found = torch.full((3,), value), ["a"], ["a"]
        expected, result = outer(x, plain), compiled(x, found)
        assert torch.equal(result, expected)
        assert found == plain and collected.get() is None
    stats = stator.stats(compiled)
    assert (stats.breaks, stats.native, stats.hits) == (0, 0, 4)
