"""One measurement in a process of its own: `python -m bench.worker SYSTEM BENCH` prints JSON.

Eager runs in the same process, so that every ratio compares like with like. As SYSTEM,
"fresh" stands for the first thing that Stator does in a process.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import stator
from bench.cases import BENCHES, Setup, two_arguments
from bench.measure import TURNS, best, once, returns_at_once, single_threaded

# The machine has slow moments, so first calls are spread over some time; slow ones are few.
FIRST_CALLS = 10
LEAST_SECONDS, MOST_SECONDS = 2.0, 10.0


@dataclasses.dataclass(frozen=True)
class System:
    """Something that compiles."""

    compile: Callable[..., Any]
    reset: Callable[[], object]


# `torch.compile` takes the path that model code keeps for tracers: the same one for both.
_compile = partial(stator.compile, is_compiling=True)

SYSTEMS = {
    "stator": System(_compile, stator.reset),
    "torch": System(torch.compile, torch.compiler.reset),
    # All sizes are symbols from the first call on.
    "stator_dynamic": System(partial(_compile, dynamic=True), stator.reset),
    "torch_dynamic": System(partial(torch.compile, dynamic=True), torch.compiler.reset),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """Seconds per call, and what the system says about itself."""

    eager: float
    first: float
    single: float | None = None
    """One eager call, taken as `first` is, and not the best of many: the one in the middle."""
    wrap: float | None = None
    """`stator.compile` itself, which builds tables and maps memory before the first call."""
    warm: float | None = None
    replay: float | None = None
    """`backend="eager"`: the graph run by the system itself."""
    replayed: float | None = None
    """The same, though Stator estimated that replaying gains nothing; where there are breaks."""
    nodes: int | None = None
    guards: int | None = None
    replay_native: bool = False
    """Stator estimated that replaying gains nothing: `replay` is the guards and plain Python."""
    native: str | None = None
    """Why calls ran natively, if they did: then the row measures plain Python."""


def measure(system_name: str, bench_name: str) -> Row:
    """All figures of one system on one bench."""
    single_threaded()
    bench = next(bench for bench in BENCHES if bench.name == bench_name)
    setup = bench.make()
    if system_name == "fresh":
        return measure_fresh(setup)
    system = SYSTEMS[system_name]
    _load_lazy_parts(system)

    (eager,) = best(lambda: setup.call(setup.target))
    first = float("inf")
    start = time.perf_counter()
    for turn in itertools.count(1):
        system.reset()
        compiled = system.compile(setup.target, backend=returns_at_once)
        call, eager_call = (partial(setup.call, target) for target in (compiled, setup.target))
        first = min(first, once(call, eager_call))
        elapsed = time.perf_counter() - start
        if elapsed > (LEAST_SECONDS if turn >= FIRST_CALLS else MOST_SECONDS):
            break
    row = Row(eager=eager, first=first)
    if not bench.first_call_only:
        (warm,) = best(lambda: setup.forward(compiled))
        row = dataclasses.replace(row, warm=warm)
        if not system_name.endswith("_dynamic"):
            replayed = system.compile(setup.target, backend="eager")
            row = dataclasses.replace(row, replay=_replay(replayed, setup, eager))
        if system_name == "stator":
            row = dataclasses.replace(row, replay_native=stator.stats(replayed).native > 0)
            if bench.breaks:
                with stator.config.patch(skip_unprofitable=False):
                    forced = system.compile(setup.target, backend="eager")
                    row = dataclasses.replace(row, replayed=_replay(forced, setup, eager))
    if system_name.startswith("torch"):
        return row
    return _with_stats(row, stator.stats(compiled))


def measure_fresh(setup: Setup) -> Row:
    """Stator's very first call in a process; only eager has run before. One call has no minimum, so
    the caller asks several processes, and eager calls stand beside it that are taken as it is."""
    eager_call = partial(setup.call, setup.target)
    (eager,) = best(eager_call)
    single = statistics.median(once(eager_call, eager_call) for _ in range(TURNS))
    start = time.perf_counter()
    compiled = stator.compile(setup.target, backend=returns_at_once)
    wrap = time.perf_counter() - start
    first = once(partial(setup.call, compiled), eager_call)
    return Row(eager=eager, first=first, single=single, wrap=wrap)


def _replay(replayed: Any, setup: Setup, eager: float) -> float:
    """A replay, in the currency of `eager`: the two took turns, so their ratio is what counts."""
    for _ in range(3):
        setup.call(replayed)
    replay, beside = best(lambda: setup.call(replayed), lambda: setup.call(setup.target))
    return replay * eager / beside


def _with_stats(row: Row, stats: stator.Stats) -> Row:
    """What Stator says about its graph."""
    return dataclasses.replace(
        row,
        nodes=stats.graph_nodes,
        guards=stats.guards,
        native=stats.reason if stats.native else None,
    )


def _load_lazy_parts(system: System) -> None:
    """Imports that happen at the first compilation of a process aren't the bench's."""
    warm_up = system.compile(two_arguments, backend=returns_at_once)
    for _ in range(3):
        warm_up(torch.ones(2), torch.ones(2))


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(measure(*sys.argv[1:]))))
