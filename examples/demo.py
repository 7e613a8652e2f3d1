"""Compiles real models and shows what it costs and gives: `make demo`.

Each row runs one model plain and compiled, from equal weights, for a few steps, and compares
outputs, gradients and buffers after each. Columns:

* eager: one plain call, warm;
* first: the call that records, best of TRACES, with its ratio to eager;
* second: the first call that replays; replay: a later one, taking turns with eager;
* overhead: a call with a backend that returns at once;
* nodes, guards: of the graph;
* equal: "bits" if all results are identical, "close" if they are within TOLERANCE of each other.

Results are compared with default settings. The other columns are with `is_compiling=True`, which
makes one graph of models whose plain code reads the data of attention masks.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import stator
from bench.measure import best, once, returns_at_once, single_threaded
from examples import breaks
from examples.models import CASES, Case, tensors_of

STEPS = 3
TRACES = 3
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One row of the table."""

    title: str
    eager: float
    first: float
    second: float
    replay: float
    overhead: float
    nodes: int
    guards: int
    equality: str
    native: str | None


def main() -> int:
    """Runs every model; the exit status says whether all results were right."""
    single_threaded()
    console = Console(width=None if sys.stdout.isatty() else 130)
    start = time.perf_counter()
    outcomes = []
    for case in CASES:
        console.print(f"[dim]{case.title} ...[/dim]")
        outcomes.append(run(case))
    console.print(_table(outcomes))
    for outcome in outcomes:
        if outcome.native is not None:
            console.print(f"{outcome.title} ran natively: {outcome.native}", markup=False)
    console.print(f"{len(outcomes)} models in {time.perf_counter() - start:.0f} s, one CPU thread.")
    return int(any(outcome.equality == "NO" for outcome in outcomes)) or breaks.main()


def run(case: Case) -> Outcome:
    """One model: first whether it is right, then how fast it is."""
    equality = compare(case)
    model, inputs = case.make()
    first = second = float("inf")
    for _ in range(TRACES):
        compiled = stator.compile(model, is_compiling=True)
        plain, call = (partial(case.step, target, inputs) for target in (model, compiled))
        first = min(first, once(call, plain))
        second = min(second, once(call, plain))
    replay, eager = best(call, plain)
    stats = stator.stats(compiled)
    return Outcome(
        title=case.title,
        eager=eager,
        first=first,
        second=second,
        replay=replay,
        overhead=overhead(case),
        nodes=stats.graph_nodes,
        guards=stats.guards,
        equality=equality,
        native=(stats.reason or "no reason given") if stats.native else None,
    )


def overhead(case: Case) -> float:
    """Seconds of a warm call in which no operation runs."""
    model, inputs = case.make()
    compiled = stator.compile(model, backend=returns_at_once, is_compiling=True)
    with torch.set_grad_enabled(case.training):
        return best(lambda: compiled(**inputs), seconds=0.3)[0]


def compare(case: Case) -> str:
    """Runs equal models plain and compiled; how far their results agree."""
    plain, inputs = case.make()
    other, other_inputs = case.make()
    compiled = stator.compile(other)
    verdict = "bits"
    for step in range(STEPS):
        results = []
        for model, arguments in ((plain, inputs), (compiled, other_inputs)):
            torch.manual_seed(step)
            results.append(everything(model, case.step(model, arguments)))
        expected, actual = results
        if len(expected) != len(actual):
            return "NO"
        for left, right in zip(expected, actual, strict=True):
            if torch.equal(left, right):
                continue
            if left.shape != right.shape or not torch.allclose(left, right, **TOLERANCE):
                return "NO"
            verdict = "close"
    return verdict


def everything(model: nn.Module, output: object) -> list[Tensor]:
    """All a step leaves behind: outputs, gradients, buffers."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return [*tensors_of(output), *gradients, *model.buffers()]


def _table(outcomes: list[Outcome]) -> Table:
    table = Table(title="Stator on real models (random weights)")
    table.add_column("model")
    for title in ("eager", "first", "second", "replay", "overhead", "nodes", "guards", "equal"):
        table.add_column(title, justify="right")
    for row in outcomes:
        table.add_row(
            row.title + ("" if row.native is None else " (native)"),
            _ms(row.eager),
            f"{_ms(row.first)} ({row.first / row.eager:.2f}x)",
            f"{_ms(row.second)} ({row.second / row.eager:.2f}x)",
            f"{_ms(row.replay)} ({row.replay / row.eager:.2f}x)",
            f"{row.overhead * 1e6:,.1f} µs",
            f"{row.nodes:,}",
            f"{row.guards:,}",
            row.equality,
        )
    return table


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


if __name__ == "__main__":
    sys.exit(main())
