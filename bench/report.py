"""The Markdown tables of a run, ratios first."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from bench.cases import BENCHES, Bench

Result = dict[str, Any] | str
"""A worker's row, or why there is none."""

Results = Mapping[tuple[str, str], Result]
"""By system and bench."""


SUMMARY = ("gpt2", "t5_cached", "qwen3", "resnet50_training", "ten_breaks")
"""The rows that README quotes."""


def report(results: Results) -> str:
    """The whole page."""
    models = [bench for bench in BENCHES if bench.is_model]
    cached = [bench for bench in BENCHES if bench.cached]
    small = [bench for bench in BENCHES if bench.name in ("two_arguments", "chain_5000")]
    linear = [bench for bench in BENCHES if bench.operations and bench.operations != 5_000]
    breaking = [bench for bench in BENCHES if bench.breaks]
    parts = [
        "# Benchmark results",
        f"Written by `make bench` with CPython {platform.python_version()}, torch "
        f"{torch.__version__}, {platform.machine()}, {os.cpu_count()} CPU cores, one of them used. "
        "Times are minima. Each system runs in a process of its own, with eager beside it; "
        "`torch.compile` and Stator use the same backend, which returns the first call's result "
        "at once, and both answer `torch.compiler.is_compiling()` with True.",
        _section(
            "Summary",
            "What a call costs, as multiples of an eager one. Overhead: a warm call with a backend "
            'that returns at once. Replay: a warm call with each system\'s `backend="eager"`.',
            [
                "",
                "eager",
                "first call, Stator",
                "torch.compile",
                "overhead, Stator",
                "torch.compile",
                "replay, Stator",
                "torch.compile",
            ],
            (_summary(bench, results) for bench in BENCHES if bench.name in SUMMARY),
        ),
        _section(
            "First call",
            "One call that compiles, after eager is warm and lazy imports are done. The last "
            "column is (Stator - eager) / (torch.compile - eager).",
            ["", "eager", "Stator", "x eager", "torch.compile", "x eager", "above eager, ratio"],
            (_first_call(bench, results) for bench in [*models, *cached, *small]),
        ),
        _section(
            "First call in a process",
            "The very first thing that Stator does in a process, in which only eager has run: one "
            "call with default settings (`is_compiling` is False), beside one eager call taken the "
            "same way (behind a garbage collection and an eager call), the one in the middle of "
            "ten. Of five processes the one in the middle, and the ratios of the best and the "
            "worst. Then the first call beside the best of many eager calls, and what "
            "`stator.compile` itself took before: it builds tables and has memory mapped.",
            [
                "",
                "one eager call",
                "Stator",
                "x one call",
                "best",
                "worst",
                "eager's minimum",
                "x minimum",
                "stator.compile",
            ],
            (_fresh(bench, results) for bench in [*models, *cached]),
        ),
        _section(
            "Warm overhead",
            "A call with a backend that returns at once: binding, guards and the result's "
            "containers.",
            ["", "Stator", "torch.compile", "ratio", "guards"],
            (_warm(bench, results) for bench in [*models, *cached, *small[:1]]),
        ),
        _section(
            "Replay",
            'A warm call with each system\'s `backend="eager"`, beside eager. "(native)":'
            " estimated to gain nothing, so it is the check of the guards, then plain Python.",
            ["", "eager", "Stator", "x eager", "torch.compile", "x eager", "graph nodes"],
            (_replay(bench, results) for bench in [*models, *cached, *small]),
        ),
        _section(
            "Linearity",
            "First call of a chain of additions, per operation.",
            ["", "eager, ns", "Stator, ns", "x eager"],
            (_linear(bench, results) for bench in linear),
        ),
        _section(
            "Graph breaks",
            'First call, and a warm call with each system\'s `backend="eager"`. The last column is '
            "(Stator - eager) / (torch.compile - eager) of the warm call. (native): so few "
            "operations between breaks aren't worth replaying, so Stator checks the guards and "
            "runs plain Python. Replayed: what the same call takes if it is replayed nevertheless.",
            [
                "",
                "eager",
                "first call, Stator",
                "torch.compile",
                "warm, Stator",
                "x eager",
                "replayed, Stator",
                "x eager",
                "torch.compile",
                "x eager",
                "above eager, ratio",
            ],
            (_breaking(bench, results) for bench in breaking),
        ),
        _section(
            "Symbolic shapes",
            "Models with `dynamic=True`: all sizes of inputs are symbols. First call, and the warm "
            "overhead with symbolic guards beside the one with static guards. `above eager` is "
            "(Stator - eager) / (torch.compile - eager) of the first call.",
            [
                "",
                "eager",
                "first call, Stator",
                "x eager",
                "torch.compile",
                "above eager, ratio",
                "warm, Stator",
                "x static",
            ],
            (_dynamic(bench, results) for bench in models),
        ),
    ]
    notes = _notes(results)
    return "\n\n".join([*parts, *([notes] if notes else [])]) + "\n"


def _section(title: str, text: str, head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [f"## {title}", "", text, "", _line(head), _line(["---"] * len(head))]
    return "\n".join([*lines, *(_line(row) for row in rows)])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _first_call(bench: Bench, results: Results) -> list[str]:
    ours, peer = _both(bench, results)
    return [
        *_first_cells(bench, ours, peer),
        _cell(peer, lambda row: _times(row["first"] / row["eager"])),
        _above_eager(ours, peer, "first"),
    ]


def _summary(bench: Bench, results: Results) -> list[str]:
    ours, peer = _both(bench, results)
    return [
        bench.title,
        _cell(ours, lambda row: _ms(row["eager"])),
        _cell(ours, lambda row: _times(row["first"] / row["eager"])),
        _cell(peer, lambda row: _times(row["first"] / row["eager"])),
        _cell(ours, lambda row: _us(row["warm"])),
        _cell(peer, lambda row: _us(row["warm"])),
        _cell(ours, lambda row: _times(row["replay"] / row["eager"])),
        _cell(peer, lambda row: _times(row["replay"] / row["eager"])),
    ]


def _fresh(bench: Bench, results: Results) -> list[str]:
    row = results.get(("fresh", bench.name), "not measured")
    return [
        bench.title,
        _cell(row, lambda row: _ms(row["single"])),
        _cell(row, lambda row: _ms(row["first"])),
        _cell(row, lambda row: _times(row["first"] / row["single"])),
        _cell(row, lambda row: _times(row["best"])),
        _cell(row, lambda row: _times(row["worst"])),
        _cell(row, lambda row: _ms(row["eager"])),
        _cell(row, lambda row: _times(row["first"] / row["eager"])),
        _cell(row, lambda row: _ms(row["wrap"])),
    ]


def _first_cells(bench: Bench, ours: Result, peer: Result) -> list[str]:
    return [
        bench.title,
        _cell(ours, lambda row: _ms(row["eager"])),
        _cell(ours, lambda row: _ms(row["first"])),
        _cell(ours, lambda row: _times(row["first"] / row["eager"])),
        _cell(peer, lambda row: _ms(row["first"])),
    ]


def _above_eager(ours: Result, peer: Result, figure: str) -> str:
    return _ratio(ours, peer, lambda row: max(row[figure] - row["eager"], 0.0))


def _warm(bench: Bench, results: Results) -> list[str]:
    ours, peer = _both(bench, results)
    return [
        bench.title,
        _cell(ours, lambda row: _us(row["warm"])),
        _cell(peer, lambda row: _us(row["warm"])),
        _ratio(ours, peer, lambda row: row["warm"]),
        _cell(ours, lambda row: str(row["guards"])),
    ]


def _replay(bench: Bench, results: Results) -> list[str]:
    ours, peer = _both(bench, results)
    return [
        bench.title,
        _cell(ours, lambda row: _ms(row["eager"])),
        _cell(ours, lambda row: _ms(row["replay"]) + " (native)" * row["replay_native"]),
        _cell(ours, lambda row: _times(row["replay"] / row["eager"])),
        _cell(peer, lambda row: _ms(row["replay"])),
        _cell(peer, lambda row: _times(row["replay"] / row["eager"])),
        _cell(ours, lambda row: str(row["nodes"])),
    ]


def _linear(bench: Bench, results: Results) -> list[str]:
    ours, _ = _both(bench, results)
    operations = bench.operations or 1
    return [
        bench.title,
        _cell(ours, lambda row: f"{row['eager'] / operations * 1e9:,.0f}"),
        _cell(ours, lambda row: f"{row['first'] / operations * 1e9:,.0f}"),
        _cell(ours, lambda row: _times(row["first"] / row["eager"])),
    ]


def _breaking(bench: Bench, results: Results) -> list[str]:
    ours, peer = _both(bench, results)
    return [
        bench.title,
        _cell(ours, lambda row: _us(row["eager"])),
        _cell(ours, lambda row: _ms(row["first"])),
        _cell(peer, lambda row: _ms(row["first"])),
        _cell(ours, lambda row: _us(row["replay"]) + " (native)" * row["replay_native"]),
        _cell(ours, lambda row: _times(row["replay"] / row["eager"])),
        _cell(ours, lambda row: _us(row["replayed"])),
        _cell(ours, lambda row: _times(row["replayed"] / row["eager"])),
        _cell(peer, lambda row: _us(row["replay"])),
        _cell(peer, lambda row: _times(row["replay"] / row["eager"])),
        _above_eager(ours, peer, "replay"),
    ]


def _dynamic(bench: Bench, results: Results) -> list[str]:
    static, _ = _both(bench, results)
    ours, peer = _both(bench, results, "_dynamic")
    warm = "-"
    if not isinstance(ours, str) and not isinstance(static, str):
        warm = _times(ours["warm"] / static["warm"])
    return [
        *_first_cells(bench, ours, peer),
        _above_eager(ours, peer, "first"),
        _cell(ours, lambda row: _us(row["warm"])),
        warm,
    ]


def _notes(results: Results) -> str:
    lines = []
    for (system, name), result in results.items():
        if isinstance(result, str):
            lines.append(f"- {system}, {name}: {result}.")
        elif result["native"]:
            lines.append(f"- {system}, {name}: ran natively ({result['native']}).")
    return "\n".join(["## Notes", "", *lines]) if lines else ""


def _both(bench: Bench, results: Results, kind: str = "") -> tuple[Result, Result]:
    missing = "not measured"
    return (
        results.get((f"stator{kind}", bench.name), missing),
        results.get((f"torch{kind}", bench.name), missing),
    )


def _cell(result: Result, show: Callable[[dict[str, Any]], str]) -> str:
    if isinstance(result, str):
        return "-"
    return f"{show(result)}{' (native)' * bool(result['native'])}"


def _ratio(ours: Result, peer: Result, figure: Callable[[dict[str, Any]], float]) -> str:
    if isinstance(ours, str) or isinstance(peer, str) or figure(peer) <= 0:
        return "-"
    ratio = figure(ours) / figure(peer)
    return "0" if ratio == 0 else f"1/{1 / ratio:,.0f}" if ratio < 0.5 else f"{ratio:.2f}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.{0 if seconds >= 0.1 else 1 if seconds >= 1e-3 else 4}f} ms"


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.{0 if seconds >= 1e-4 else 1}f} µs"


def _times(ratio: float) -> str:
    return f"{ratio:,.{0 if ratio >= 10 else 2}f}"
