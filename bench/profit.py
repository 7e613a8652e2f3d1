"""What a replay saves and costs, of functions that differ in one thing: `python -m bench.profit`.

Prints what was measured of each, and the prices that fit best: those that stand in
`crates/tracer/src/profit.rs`, but for the instruction's. Here instructions are the quickest there
are; there one is worth more, because programs do more with it, and replaying in vain costs less
than not replaying.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import stator
from bench.measure import best, single_threaded
from stator._targets import native_of

Function = Callable[[Tensor], Tensor]

SECONDS = 2.0
PRICES = (
    "instruction",
    "frame",
    "module",
    "member",
    "call",
    "direct",
    "replay",
    "operation",
    "graph_break",
    "idle",
    "waiting",
)
COUNTED = 5
"""So many of the prices are due as often as was counted while recording."""

SAVED = 6
"""So many of them are what a replay saves."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """One function: how often each price is due, and nanoseconds of a call."""

    counts: tuple[int, ...]
    plain: float
    replay: float
    """Beyond plain Python."""
    native: float | None
    """The same of a call whose guards are checked and which then runs natively; measured where
    there is no break."""


def in_place(count: int) -> Function:
    """So many operators in a row."""
    return _function(["x = x + 1"] * count)


def sliced(count: int) -> Function:
    """As many that stay calls in Python."""
    return _function(["x = x[0:3]"] * count)


def plain_python(each: str, count: int) -> Function:
    """One operator, and so many statements that are no operations."""
    lines = ["n = 1", "d = {'a': 1}", *[each] * count, "x = x + n"]
    return _function(lines, same=_function([]))


def in_modules(count: int) -> Function:
    """So many modules, written out."""
    modules = {f"module{index}": nn.ReLU() for index in range(count)}
    return _function([f"x = {name}(x)" for name in modules], **modules)


class Members(nn.Module):
    """Reads its parameter again and again."""

    def __init__(self, reads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.reads = reads

    def forward(self, x: Tensor) -> Tensor:
        """One operation."""
        for _ in range(self.reads):
            weight = self.weight
        return x + weight


def members(count: int) -> Function:
    """So many reads of a parameter."""
    return Members(count).forward


@torch.compiler.disable
def note() -> None:
    """Breaks the graph."""


def breaks(count: int) -> Function:
    """Operators with so many breaks between them."""
    return _function(["x = x + 1", "note()"] * count + ["x = x + 1"], note=note)


def idle_breaks(count: int) -> Function:
    """So many breaks in a row."""
    return _function(["x = x + 1", *["note()"] * count, "x = x + 1"], note=note)


def deep_break(depth: int) -> Function:
    """A break so many calls deep."""
    function = _function(["note()", "x = x + 1"], note=note)
    for _ in range(depth):
        function = _function(["x = inner(x)"], inner=function)
    return _function(["x = x + 1", "x = function(x)"], function=function)


def _function(lines: list[str], **names: Any) -> Function:
    exec("\n    ".join(["def f(x):", *lines, "return x"]), names)
    function: Function = names["f"]
    return function


def functions() -> Iterator[tuple[str, Function]]:
    """All of them."""
    makers: dict[str, tuple[Callable[[int], Function], tuple[int, ...]]] = {
        "x = x + 1": (in_place, (1, 2, 5, 10)),
        "x = x[0:3]": (sliced, (1, 2, 5, 10)),
        "n = n + 1": (partial(plain_python, "n = n + 1"), (10, 50, 100)),
        "n = d['a']": (partial(plain_python, "n = d['a']"), (10, 50, 100)),
        "len(d)": (partial(plain_python, "len(d)"), (10, 50, 100)),
        "isinstance(d, dict)": (partial(plain_python, "isinstance(d, dict)"), (10, 50)),
        "n = same(n)": (partial(plain_python, "n = same(n)"), (1, 5, 10, 50)),
        "module": (in_modules, (1, 2, 5, 10)),
        "member": (members, (1, 5, 10)),
        "break": (breaks, (1, 2, 5, 10)),
        "break in a row": (idle_breaks, (2, 5, 10)),
        "call down to a break": (deep_break, (0, 1, 2, 5)),
    }
    for name, (make, counts) in makers.items():
        for count in counts:
            yield f"{count} x {name}", make(count)


def measure(function: Function) -> Measured:
    """A function beside its replay, and beside a call that runs natively."""
    x = torch.ones(4)
    native = None
    with stator.config.patch(skip_unprofitable=False), torch.no_grad():
        compiled = stator.compile(function, backend="eager")
        for _ in range(3):
            compiled(x)
        inner = native_of(compiled)
        assert inner is not None
        traces = inner.counts()
        plain, replay = best(lambda: function(x), lambda: compiled(x), seconds=SECONDS)
        if len(traces) == 1:
            with stator.config.patch(min_graph_ops=1 << 30):
                beside, native = best(lambda: function(x), lambda: compiled(x), seconds=SECONDS)
            native = (native - beside) * 1e9
    saved = [sum(trace[index] for trace in traces) for index in range(COUNTED)]
    operations, direct = (sum(trace[index] for trace in traces) for index in (5, 6))
    broken = [trace for trace in traces if trace[7]]
    idle = [trace for trace in broken if trace[5] == 0]
    waiting = sum(trace[7] - 1 for trace in broken if trace not in idle)
    costs = (1, operations, len(broken) - len(idle), len(idle), waiting)
    return Measured((*saved, direct, *costs), plain * 1e9, (replay - plain) * 1e9, native)


def fit(rows: list[Measured]) -> list[float]:
    """The prices. What takes long is known less exactly."""
    check = float(np.median([row.native for row in rows if row.native is not None]))
    signs = np.array([-1.0] * SAVED + [1.0] * (len(PRICES) - SAVED))
    weights = np.array([1 / row.plain for row in rows])
    due = np.array([row.counts for row in rows]) * signs
    natives = [check if row.native is None else row.native for row in rows]
    beyond = np.array([row.replay for row in rows]) - natives
    prices, *_ = np.linalg.lstsq(due * weights[:, None], beyond * weights, rcond=None)
    print(f"\nguards and what else a native call takes: {check:.0f} ns")
    return [float(price) for price in prices]


def main() -> None:
    """The command line."""
    single_threaded()
    print("nanoseconds: plain Python, a replay beyond it, a native call beyond it")
    rows = []
    for name, function in functions():
        row = measure(function)
        rows.append(row)
        native = "" if row.native is None else f"{row.native:+8.0f}"
        print(f"{name:26} {row.plain:8.0f} {row.replay:+8.0f} {native}", flush=True)
    for name, price in zip(PRICES, fit(rows), strict=True):
        print(f"{name:12} {price:8.1f} ns")


if __name__ == "__main__":
    main()
