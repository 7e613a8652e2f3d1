"""Training steps and code that data steers: `python -m bench.steps` writes `bench/steps.md`.

Every row is one function, compiled with default settings: an optimizer's step whose state is there,
a whole training step (forward, loss, `backward()`, clipping, optimizer, scheduler, `loss.item()`),
loops that data ends. Times are minima; eager and the compiled function take turns in one process,
each with objects of its own. A first call is one behind `reset()`; `torch.compile`'s, with
`backend="eager"` too, is taken once.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import stator
from bench import pages
from bench.measure import best, in_a_process, once, single_threaded

Call = Callable[[], object]
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]

SETTLING = 24
"""Calls before anything is timed: state is made, numbers become symbols, replays are weighed."""
FIRST_CALLS = 10


@dataclasses.dataclass(frozen=True)
class Program:
    """One row. `make` takes what compiles a function, or leaves it as it is."""

    title: str
    make: Callable[[Compile], Call]
    group: str
    has_peer: bool = True
    """Whether `torch.compile` is asked, too."""


def optimizer(kind: type[torch.optim.Optimizer], parameters: int, **options: Any) -> Program:
    """A step whose state is there."""

    def make(compiled: Compile) -> Call:
        torch.manual_seed(0)
        weights = [nn.Parameter(torch.randn(8, 8)) for _ in range(parameters)]
        for weight in weights:
            weight.grad = torch.randn(8, 8)
        chosen: Any = kind(weights, lr=1e-3, **options)
        chosen.step()

        def step() -> None:
            chosen.step()

        return compiled(step)

    form = "".join(f", {name}" for name, value in options.items() if value)
    title = f"{kind.__name__}{form}, {parameters:,} parameters"
    # What it compiles for 1,000 parameters takes minutes.
    return Program(title, make, "Optimizers", has_peer=parameters < 1_000)


class Attention(nn.Module):
    """A small transformer that classifies rows of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.layers(self.embed(x.view(-1, 8, 8)))
        logits: Tensor = self.head(hidden.mean(1))
        return logits


def perceptron() -> nn.Module:
    """Eight narrow layers: what a step costs is Python and dispatch."""
    pairs = [(nn.Linear(64, 64), nn.ReLU()) for _ in range(8)]
    return nn.Sequential(*itertools.chain.from_iterable(pairs), nn.Linear(64, 10))


def convolutions() -> nn.Module:
    """A small network for 8 x 8 images."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


def training(title: str, network: Callable[[], nn.Module], batch: int) -> Program:
    """A whole step, as a training loop has it."""

    def make(compiled: Compile) -> Call:
        torch.manual_seed(0)
        model = network().train()
        chosen = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(chosen, 100_000)
        x, y = torch.randn(batch, 64), torch.randint(10, (batch,))
        losses: list[float] = []

        def step(x: Tensor, y: Tensor) -> None:
            chosen.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            chosen.step()
            scheduler.step()
            losses.append(loss.item())

        run = compiled(step)
        return lambda: run(x, y)

    return Program(title, make, "Training steps")


def newton(x: Tensor, tolerance: float) -> Tensor:
    """The square root of two."""
    error = x * x - 2
    while error.abs() > tolerance:
        x = x - error / (2 * x)
        error = x * x - 2
    return x


def relaxation(x: Tensor, steps: Tensor) -> Tensor:
    """A fixed point, approached until a counter on the device says enough."""
    done = torch.zeros(())
    while done < steps:
        x = x - 0.01 * (x * x - 2) / (2 * x)
        done = done + 1
    return x


def _newton(compiled: Compile) -> Call:
    run = compiled(newton)
    starts = itertools.cycle(torch.tensor(value, dtype=torch.float64) for value in (1.0, 3.0, 70.0))
    return lambda: run(next(starts), 1e-12)


def _relaxation(compiled: Compile) -> Call:
    run = compiled(relaxation)
    x, steps = torch.ones(()), torch.tensor(10_000.0)
    return lambda: run(x, steps)


def branches(flags: list[Tensor], x: Tensor) -> Tensor:
    """Twenty decisions, all with the same answer in each call."""
    for flag in flags:
        if flag:
            x = x + 1
    return x


def numbers(flags: list[Tensor], x: Tensor) -> Tensor:
    """Twenty numbers that are read, and decide nothing."""
    for flag in flags:
        flag.item()
        x = x + 1
    return x


def _twenty(function: Callable[..., Any]) -> Callable[[Compile], Call]:
    def make(compiled: Compile) -> Call:
        flags = [torch.tensor(1.0) for _ in range(20)]
        run, x = compiled(function), torch.ones(4)
        return lambda: run(flags, x)

    return make


DECISIONS = ("twenty branches", "twenty numbers read")

PROGRAMS = (
    *(optimizer(torch.optim.SGD, count) for count in (20, 200, 1_000)),
    *(optimizer(torch.optim.Adam, count) for count in (20, 200, 1_000)),
    *(optimizer(torch.optim.AdamW, count) for count in (20, 200, 1_000)),
    *(optimizer(torch.optim.AdamW, count, foreach=True) for count in (20, 200, 1_000)),
    *(optimizer(torch.optim.AdamW, count, fused=True) for count in (20, 200, 1_000)),
    *(optimizer(torch.optim.NAdam, count) for count in (20, 200, 1_000)),
    training("perceptron, eight layers", perceptron, 16),
    training("small convolutional network", convolutions, 16),
    training("small transformer", Attention, 16),
    Program("Newton, 5 to 12 iterations", _newton, "Loops that data ends"),
    Program("10,000 iterations", _relaxation, "Loops that data ends", has_peer=False),
    Program(DECISIONS[0], _twenty(branches), "Decisions"),
    Program(DECISIONS[1], _twenty(numbers), "Decisions"),
)


def measure_ours(program: Program) -> dict[str, Any]:
    """Eager beside Stator."""
    compiled: list[Any] = []

    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        compiled.append(stator.compile(function))
        return compiled[0]

    plain, call = program.make(lambda function: function), program.make(keep)
    start = time.perf_counter()
    call()
    very_first = time.perf_counter() - start
    for _ in range(SETTLING):
        plain()
        call()
    stats = stator.stats(compiled[0])
    counts = {"traces": stats.traces, "breaks": stats.breaks, "native": stats.native > 0}
    eager, warm = best(plain, call, seconds=2.0)
    replayed = None
    if counts["native"]:
        with stator.config.patch(skip_unprofitable=False):
            stator.reset()
            for _ in range(SETTLING):
                call()
            (replayed,) = best(call)
    first = very_first
    for _ in range(FIRST_CALLS if very_first < 2.0 else 0):
        stator.reset()
        first = min(first, once(call, plain))
    return {"eager": eager, "warm": warm, "replayed": replayed, "first": first, **counts}


def measure_peer(program: Program) -> dict[str, Any]:
    """Eager beside `torch.compile`."""
    plain = program.make(lambda function: function)
    call = program.make(lambda function: torch.compile(function, backend="eager"))
    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    for _ in range(SETTLING):
        plain()
        call()
    eager, warm = best(plain, call, seconds=2.0)
    return {"eager": eager, "warm": warm, "first": first}


MEASURES = {"stator": measure_ours, "torch": measure_peer}


def run_worker(system: str, program: Program, timeout: float) -> dict[str, Any] | str:
    """One measurement in a process of its own; or why there is none."""
    return in_a_process("bench.steps", "--worker", system, program.title, timeout=timeout)


HEAD = (
    *("", "eager", "Stator", "x eager", "replayed", "first call, x eager"),
    *("traces, breaks", "torch.compile, x eager", "its first call, x eager"),
)


def row(program: Program, ours: dict[str, Any] | str, peer: dict[str, Any] | str) -> str:
    """A line of a table."""
    cells = [program.title]
    if isinstance(ours, str):
        cells += [ours, *["-"] * 5]
    else:
        eager = ours["eager"]
        native = " (native)" if ours["native"] else ""
        replayed = f"{ours['replayed'] / eager:.2f}" if ours["replayed"] else "-"
        cells += [
            f"{eager * 1e6:,.0f} µs",
            f"{ours['warm'] * 1e6:,.0f} µs{native}",
            f"{ours['warm'] / eager:.2f}",
            replayed,
            f"{ours['first'] / eager:.1f}",
            f"{ours['traces']}, {ours['breaks']}",
        ]
    if isinstance(peer, str):
        cells += [peer, "-"]
    else:
        eager = peer["eager"]
        cells += [f"{peer['warm'] / eager:.2f}", f"{peer['first'] / eager:,.0f}"]
    return f"| {' | '.join(cells)} |"


def lines(only: list[str], systems: list[str], timeout: float) -> Iterator[str]:
    """The page behind its head."""
    found: dict[str, dict[str, Any] | str] = {}
    for group, programs in itertools.groupby(PROGRAMS, lambda program: program.group):
        yield from ("", f"## {group}", "", f"| {' | '.join(HEAD)} |")
        yield f"| {' | '.join(['---'] * len(HEAD))} |"
        for program in programs:
            if program.title not in only:
                continue
            ours = run_worker("stator", program, timeout) if "stator" in systems else "-"
            asked = program.has_peer and "torch" in systems
            found[program.title] = ours
            yield row(program, ours, run_worker("torch", program, timeout) if asked else "-")
    branching, reading = (found.get(title) for title in DECISIONS)
    if isinstance(branching, dict) and isinstance(reading, dict):
        yield ""
        cost = _cost_of_one(branching, reading) * 1e6
        yield f"A decision costs {cost:.2f} µs over reading the value: a twentieth of what the"
        yield "replays of the last two rows differ by."


def _cost_of_one(branching: dict[str, Any], reading: dict[str, Any]) -> float:
    taken, read = (row["replayed"] or row["warm"] for row in (branching, reading))
    return float(taken - read) / 20


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.steps", description=__doc__)
    titles = [program.title for program in PROGRAMS]
    parser.add_argument("--only", nargs="*", choices=titles, default=titles)
    parser.add_argument("--systems", nargs="+", choices=list(MEASURES), default=list(MEASURES))
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one worker")
    parser.add_argument("--output", type=Path, default=pages.page("steps"))
    parser.add_argument("--worker", nargs=2, metavar=("SYSTEM", "TITLE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        single_threaded()
        system, title = options.worker
        (program,) = (program for program in PROGRAMS if program.title == title)
        print(json.dumps(MEASURES[system](program)))
        return
    page = [
        "# Training steps, and code that data steers",
        "",
        f"Written by `python -m bench.steps` with CPython {platform.python_version()}, torch "
        f"{torch.__version__}, {platform.machine()}, {os.cpu_count()} CPU cores, one of them used.",
        "",
        (__doc__ or "").split("\n\n", 1)[1].strip(),
        "",
        '"(native)": estimated, or measured, to gain nothing, so plain Python runs behind a look '
        "for an entry; *replayed* is what the replay would take, in multiples of eager.",
    ]
    for line in lines(options.only, options.systems, options.timeout):
        print(line, flush=True)
        page.append(line)
    options.output.write_text("\n".join(page) + "\n")


if __name__ == "__main__":
    main()
