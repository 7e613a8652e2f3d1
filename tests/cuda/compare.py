"""Runs a program plain and compiled, each in a world of its own, and compares all that can be seen of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from differential.support import api
from differential.support.describe import describe_all, first_difference

World = dict[str, Any]
"""What a program reads and writes, by name; among it `fn`, the program, and `args`, its arguments."""
Change = Callable[[World], Any]
"""Changes something that the program reads. What it returns, if it's a context, is open during the calls."""

SEED = 1234
CALLS = 3
"""Recorded, replayed as an entry's first time, and replayed."""


def random_states(world: World) -> list[Any]:
    """The states of PyTorch's generators, and of those in the world."""
    generators = [value for value in world.values() if isinstance(value, torch.Generator)]
    states = [torch.get_rng_state(), *(generator.get_state() for generator in generators)]
    if torch.cuda.is_initialized():
        states += torch.cuda.get_rng_state_all()
    return states


def settings() -> list[Any]:
    """What of PyTorch's state of the thread a program may leave changed."""
    types = ("cpu", "cuda", "xpu")
    found = [(torch.is_autocast_enabled(type), torch.get_autocast_dtype(type)) for type in types]
    found += [torch.is_grad_enabled(), torch.is_inference_mode_enabled()]
    found += [
        torch.is_autocast_cache_enabled(),
        torch.get_default_device(),
        torch.get_default_dtype(),
    ]
    if torch.cuda.is_initialized():
        found += [torch.cuda.current_device(), torch.cuda.current_stream().stream_id == 0]
    return found


def observe(world: World) -> list[str]:
    """One call: its result or exception, and all that it may have written."""
    try:
        outcome = {"result": world["fn"](*world["args"])}
    except torch.OutOfMemoryError as error:
        # Its text tells how much is taken at that moment, in megabytes.
        outcome = {"error": str(error).split(".")[0]}
    except Exception as error:
        outcome = {"error": error}
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    known = {name: value for name, value in world.items() if name != "fn"}
    states = {"random": random_states(world), "settings": settings()}
    return describe_all({**outcome, **known, **states})


def run(make: Callable[[], World], changes: Sequence[Change], wrap: Callable[[Any], Any]) -> Any:
    """Describes each call: some at first, and some behind each change."""
    api.reset()
    torch.manual_seed(SEED)
    world = make()
    world["fn"] = wrap(world["fn"])
    seen = []
    for change in (lambda world: None, *changes):
        context = change(world)
        if not isinstance(context, AbstractContextManager):
            context = nullcontext()
        with context:
            seen += [observe(world) for _ in range(CALLS)]
    return seen, world["fn"]


def same(make: Callable[[], World], *changes: Change, replays: bool | None = True) -> Any:
    """Compares, call for call. `replays`: whether some call was answered by a replay; `None` asks nothing.

    Gives the compiled function, for questions about it.
    """
    expected, _ = run(make, changes, lambda fn: fn)
    found, compiled = run(make, changes, api.compile)
    for at, (plain, ours) in enumerate(zip(expected, found, strict=True)):
        difference = first_difference(plain, ours)
        place = f"call {at % CALLS} behind change {at // CALLS}"
        assert difference is None, f"{place}:\n{difference}\nreason: {api.reason(compiled)}"
    if replays is not None and not api.PLAIN:
        assert (api.hits(compiled) > 0) is replays, f"reason: {api.reason(compiled)}"  # type: ignore[operator]
    return compiled


def differs(make: Callable[[], World], change: Change) -> None:
    """The change shows in plain Python's results: a test of it can fail."""
    seen, _ = run(make, [change], lambda fn: fn)
    assert seen[CALLS - 1] != seen[CALLS], "the change doesn't show"
