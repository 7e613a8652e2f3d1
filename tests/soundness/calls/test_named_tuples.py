"""Named tuples with numbers that are carried: `_replace`, texts, `_make` and classes on top of them."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import stator


class State(NamedTuple):
    step: int
    loss: float = 0.0
    best: float = 9.0


class Doubled(collections.namedtuple("Doubled", "x y")):  # noqa: PYI024
    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        return iter([2 * part for part in tuple.__iter__(self)])


class Made(collections.namedtuple("Made", "x y")):  # noqa: PYI024
    __slots__ = ()
    made: list[Any] = []  # noqa: RUF012

    @classmethod
    def _make(cls, iterable: Any) -> Any:
        Made.made.append("made")
        return super()._make(iterable)


def stepped(x: Tensor, state: State) -> Any:
    loss = x.sum().item()
    state = state._replace(loss=loss, step=state.step + 1)
    if loss < state.best:
        state = state._replace(best=loss)
    return x * 2, state


def shown(x: Tensor, state: State) -> Any:
    state = state._replace(best=round(x.sum().item(), 3), step=state.step + 1)
    return x, state, f"{state}", str(state), "%d %.2f %s" % state, repr([state.step])


def unknown_field(x: Tensor, state: State) -> Any:
    try:
        return x, state._replace(step=1, lost=x.sum().item())
    except (TypeError, ValueError) as error:  # The latter until 3.12.
        return x, state._replace(step=state.step + 1), str(error)


def by_keywords(x: Tensor, state: State) -> Any:
    given = {"loss": x.mean().item()}
    return x, State._replace(state, step=x.shape[0], **given), state._replace()


def with_classes(x: Tensor, state: State) -> Any:
    loss = x.sum().item()
    doubled, made = Doubled(loss, 1)._replace(y=3), Made(loss, 1)._replace(y=x.shape[0])
    return (
        x,
        state._replace(step=state.step + 1),
        tuple.__repr__(doubled),
        list(made),
        len(Made.made),
    )


PROGRAMS = [stepped, shown, unknown_field, by_keywords, with_classes]


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_replace(program: Callable[..., Any], forced: bool) -> None:
    settings = {"skip_unprofitable": False} if forced else {}
    compiled = stator.compile(program)
    seen = []
    for function in (program, compiled):
        state, found = State(0), []
        Made.made.clear()
        torch.manual_seed(0)
        with stator.config.patch(**settings):
            for call in range(10):
                if call == 6:
                    state = State(7, 1.0, -50.0)
                x, state, *rest = function(torch.randn(2 + call % 2), state)
                found.append((x.tolist(), state, type(state), repr(rest)))
        seen.append(found)
    assert seen[0] == seen[1]
    if forced and program in (stepped, shown, by_keywords):
        stats = stator.stats(compiled)
        assert stats.breaks == 0, stats.reason
        assert stats.hits >= 4


def test_a_class_that_changes() -> None:
    class Pair(collections.namedtuple("Pair", "x y")):  # noqa: PYI024
        pass

    def program(x: Tensor) -> Any:
        pair = Pair(x.sum().item(), 2)
        return pair._replace(y=x.shape[0])

    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(8):
            if call == 3:
                Pair.__iter__ = lambda self: iter((1, 2))  # type: ignore[method-assign]
            if call == 5:
                del Pair.__iter__
                Pair._make = classmethod(lambda cls, parts: cls(*reversed([*parts])))  # type: ignore[method-assign, assignment]
            x = torch.full((2,), float(call))
            assert tuple.__eq__(compiled(x), program(x)), call
