"""Functions that write to what outlives them: two equal worlds, one plain and one compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from differential.support import api
from differential.support.describe import describe_all, first_difference

X = torch.arange(1.0, 4.0)


@dataclass
class World:
    """A function with what it reads and writes."""

    fn: Callable[..., Any]
    """Called as `fn(x, *args)`."""
    args: tuple[Any, ...] = ()
    state: Any = None
    """What is compared after each call, besides `args`."""


Make = Callable[[], World]
Step = Callable[[World], None]


def _observe(call: Callable[..., Any], world: World, number: int) -> list[str]:
    try:
        outcome = {"result": call(X + number, *world.args)}
    except Exception as error:
        outcome = {"error": error}
    state = world.state() if callable(world.state) else world.state
    return describe_all({**outcome, "args": world.args, "state": state})


def guard_lines(compiled: Any) -> str:
    """The guards of each trace, those of the global state aside."""
    return "\n\n".join("\n".join(lines[1:]) for lines in compiled.guards())


def agree(make: Make, *steps: Step, replays: bool = True, again: int = 3) -> Any:
    """Calls both worlds `again` times, and after each step again; they must not differ.

    With `replays`, no call may run natively, and after the last step one must be a replay.
    """
    plain, ours = make(), make()
    compiled = api.compile(ours.fn)
    number = 0
    hits = 0
    for step in (None, *steps):
        if step is not None:
            step(plain)
            step(ours)
        hits = api.hits(compiled) or 0
        for _ in range(again):
            expected = _observe(plain.fn, plain, number)
            found = _observe(compiled, ours, number)
            difference = first_difference(expected, found)
            where = f"call {number}, reason: {api.reason(compiled)}"
            assert difference is None, f"{where}\n{difference}"
            number += 1
    if replays and not api.PLAIN:
        assert compiled.stats.native == 0, compiled.stats.reason
        assert (api.hits(compiled) or 0) > hits, guard_lines(compiled)
    return compiled


def told(call: Callable[..., Any], *args: Any) -> str:
    """What a call gives, or raises."""
    try:
        return repr(call(*args))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
