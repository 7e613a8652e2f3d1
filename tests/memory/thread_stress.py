"""Threads record and replay the same and different functions, for the seconds given as argument.

A program of its own (see `test_thread_stress.py`): where threads wait for each other with the GIL
held, nothing in the process can notice it but a watchdog that needs no GIL.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import logging
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import stator

THREADS = 8
# How much longer than asked the threads may take.
GRACE = 60
# More than a function has variants, so that each keeps its own entry.
LIMIT = 64
SCALE = 2


@dataclass
class Case:
    """A function, with the calls that each make one trace."""

    fn: Callable[..., Any]
    variants: list[tuple[Any, ...]]
    modes: list[Callable[[], Any]] = field(default_factory=lambda: [contextlib.nullcontext])
    compiled: Any = None

    def calls(self) -> list[tuple[tuple[Any, ...], Callable[[], Any]]]:
        return [(args, mode) for args in self.variants for mode in self.modes]


def helper(x: Tensor, k: int) -> Tensor:
    return x * k + SCALE


def loop(x: Tensor, k: int) -> Tensor:
    for i in range(k):
        x = helper(x, i + 1).sin()
    return x


def containers(x: Tensor, given: dict[str, Any]) -> dict[str, Any]:
    parts = [x * value for value in given.values()]
    return {"sum": sum(parts), "keys": tuple(given), "parts": parts}


def raises(x: Tensor, k: int) -> Tensor:
    try:
        if k % 2:
            raise ValueError(k)
        return x + k
    except ValueError as error:
        return x * error.args[0]


class Box:
    def __init__(self, value: Any) -> None:
        self.value = value


def made_inside(x: Tensor, n: int) -> Any:
    boxes = [Box(x * i) for i in range(n)]
    return [box.value for box in boxes]


class Counter:
    def __init__(self) -> None:
        self.n = 0
        self.last: Any = None


def writes(x: Tensor, k: int) -> Any:
    """Writes to an object of its own caller's."""
    counter = Counter()
    return inner_writes(counter, x, k), counter.n, counter.last


def _inner_writes(counter: Counter, x: Tensor, k: int) -> Tensor:
    counter.n += k
    counter.last = x * k
    return counter.last + counter.n


inner_writes = stator.compile(_inner_writes, recompile_limit=LIMIT, dynamic=False)


@stator.allow_in_graph
def by_data(x: Tensor) -> Tensor:
    return x * x.sum().item()


def node(x: Tensor, k: int) -> Tensor:
    return by_data(x + k) - k


LOG = logging.getLogger("stator-test-stress")
LOG.setLevel(logging.INFO)
LOG.propagate = False
LOG.addHandler(logging.NullHandler())
# The first question is answered in another way, by a trace that never serves again.
LOG.isEnabledFor(logging.INFO)


def logs(x: Tensor, k: int) -> Tensor:
    LOG.info("once %d", k)
    warnings.warn("twice", stacklevel=2)
    return helper(x, k)


class Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(width))
        self.scale = width

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).relu() * self.scale
        return x


def shared(net: Net, x: Tensor) -> Tensor:
    return net(x) + 1


def cases() -> list[Case]:
    torch.manual_seed(0)
    x, y, wide = torch.randn(3), torch.randn(2, 3), torch.randn(2, 4)
    nets = [Net(width).eval() for width in (1, 2, 3)]
    tables = [{"a": 1}, {"a": 1, "b": 2}, {"b": 2, "a": 1}]
    grad = [torch.no_grad, torch.enable_grad]
    return [
        Case(loop, [(value, k) for value in (x, y) for k in range(4)]),
        Case(containers, [(value, table) for value in (x, y) for table in tables]),
        Case(raises, [(x, k) for k in range(4)]),
        Case(made_inside, [(x, n) for n in range(4)]),
        Case(writes, [(x, k) for k in (1, 2, 3)]),
        Case(logs, [(x, k) for k in (1, 2, 3)]),
        Case(node, [(x, k) for k in (1, 2)]),
        Case(shared, [(net, wide) for net in nets], grad),
        Case(nets[0], [(wide,), (wide[:1],)], grad),
        Case(lambda v, k: loop(v, k) + helper(v, k), [(x, k) for k in (1, 2)]),
    ]


def same(found: Any, expected: Any) -> bool:
    if type(found) is not type(expected):
        return False
    if isinstance(expected, Tensor):
        return torch.equal(found, expected) and found.requires_grad == expected.requires_grad
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[k], expected[k]) for k in expected)
    return bool(found == expected)


class Stress:
    """What the threads share: the cases, and what went wrong."""

    def __init__(self, seconds: float) -> None:
        self.cases = cases()
        for case in self.cases:
            # Symbols would let one entry serve several variants.
            case.compiled = stator.compile(case.fn, recompile_limit=LIMIT, dynamic=False)
        self.wrong: list[str] = []
        self.calls = [0] * THREADS
        self.until = time.monotonic() + seconds

    def run(self, index: int) -> None:
        has_logged()
        chosen = random.Random(index)
        try:
            while time.monotonic() < self.until and not self.wrong:
                self.step(index, chosen)
        except BaseException as error:
            self.wrong.append(f"{type(error).__name__}: {error}")
            raise

    def step(self, index: int, chosen: random.Random) -> None:
        self.calls[index] += 1
        what = chosen.random()
        if what < 0.02:
            self.own(chosen)
        elif what < 0.022:
            gc.collect()
        elif what < 0.025:
            # Everything is recorded anew, in the middle of what the others do.
            chosen.choice(self.cases[:6]).compiled.reset()
        else:
            case = chosen.choice(self.cases)
            args, mode = chosen.choice(case.calls())
            with mode():
                found, expected = case.compiled(*args), case.fn(*args)
            if not same(found, expected):
                self.wrong.append(f"{case.fn}{args[1:]}: {found} for {expected}")

    def own(self, chosen: random.Random) -> None:
        """A function that no other thread knows; it dies with the step."""
        k = chosen.randrange(5)
        own = stator.compile(lambda v: loop(v, k) * k, dynamic=k % 2 == 0)
        x = torch.randn(3)
        results = [own(x) for _ in range(3)]
        stats = stator.stats(own)
        if not all(same(found, loop(x, k) * k) for found in results):
            self.wrong.append(f"a function of its own, {k}")
        if (stats.traces, stats.hits) != (1, 2):
            counts = f"{stats.traces} traces, {stats.hits} hits, {stats.native} native"
            self.wrong.append(f"a function of its own: {counts}: {stats.reason}")


def has_logged() -> None:
    """From CPython 3.13.4 on a thread's first log record leaves a mark, so the next call is recorded once more."""
    if (mark := getattr(logging.Logger, "_tls", None)) is not None:
        mark.in_progress = False


def main(seconds: float) -> None:
    has_logged()
    # Functions as small as these would run natively, and what is counted are their replays.
    stator.config.skip_unprofitable = False
    stress = Stress(seconds)
    threads = [threading.Thread(target=stress.run, args=(i,), daemon=True) for i in range(THREADS)]
    faulthandler.dump_traceback_later(seconds + GRACE, exit=True)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    # Wherever a collection may run, another thread may come in.
    gc.callbacks.append(lambda phase, info: [].append(phase))
    gc.set_threshold(50)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    faulthandler.cancel_dump_traceback_later()
    assert not stress.wrong, stress.wrong[:3]
    assert min(stress.calls) > 10, "a thread starves"
    for case in stress.cases:
        answers_from_its_cache(case)


def answers_from_its_cache(case: Case) -> None:
    """Each call that the threads made has its entry, and no call has two."""
    before = stator.stats(case.compiled)
    for args, mode in case.calls():
        with mode():
            assert same(case.compiled(*args), case.fn(*args))
    after = stator.stats(case.compiled)
    name = f"{case.fn}: {counters(before)}, then {counters(after)}: {after.reason}"
    # What the threads may not have come to since a reset is recorded here, once.
    recorded = after.traces - before.traces
    assert recorded + after.hits - before.hits == len(case.calls()), name
    assert after.entries == len(case.calls()) == after.traces, name
    for args, mode in case.calls():
        with mode():
            assert same(case.compiled(*args), case.fn(*args))
    last = stator.stats(case.compiled)
    assert (last.traces, last.hits) == (after.traces, after.hits + len(case.calls())), name


def counters(stats: stator.Stats) -> str:
    return (
        f"{stats.traces} traces, {stats.entries} entries, {stats.hits} hits, {stats.native} native"
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(float(sys.argv[1]))
