"""What compiling costs the calls meanwhile: `python -m bench.backends` writes
`docs/background_measured.md`, and a picture beside it where matplotlib is installed.

Each system is a process of its own with an empty cache, which calls a model over and over: the
latency of each call from the first one on is taken, until some seconds behind the moment from which
on Inductor's code serves.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torchvision

from bench.measure import ROOT, in_a_process
from examples.models import CASE, Case

SYSTEMS = {
    "eager": "PyTorch",
    "torch": "`torch.compile`",
    "stator": 'Stator, `backend="inductor"`',
}

MODELS = {
    "gpt2": CASE["gpt2"],
    "bert": CASE["bert"],
    "resnet18": Case(
        "resnet18",
        "ResNet-18",
        lambda: torchvision.models.resnet18(weights=None),
        CASE["resnet50"].make_inputs,
    ),
}

PAGE = ROOT / "docs" / "background_measured.md"

Row = Mapping[str, Any]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.backends", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--behind", type=float, default=20.0, help="seconds with the code")
    parser.add_argument("--most", type=float, default=600.0, help="seconds of one process")
    parser.add_argument("--output", type=Path, default=PAGE)
    options = parser.parse_args()

    results: dict[str, dict[str, Row]] = {}
    for model in options.models:
        rows = results.setdefault(model, {})
        for system in SYSTEMS:
            print(f"{model:9} {system:7}", end=" ", flush=True)
            limits = (str(options.behind), str(options.most))
            timeout = options.most + 600.0
            row = in_a_process("bench.backends_worker", system, model, *limits, timeout=timeout)
            if isinstance(row, str):
                print(row, flush=True)
                continue
            rows[system] = row
            print(f"{len(row['seconds'])} calls, the first {row['seconds'][0] * 1e3:.1f} ms")
    picture = options.output.with_suffix(".png")
    has_picture = draw(results, picture)
    page = report(results, picture.name if has_picture else None)
    options.output.write_text(page)
    print(f"\n{page}")


def report(results: Mapping[str, Mapping[str, Row]], picture: str | None) -> str:
    """The page."""
    lines = [
        "# What calls wait for while Inductor compiles",
        "",
        "Written by `make bench-backends`. Each line is a process of its own with one CPU thread",
        "and an empty cache, which calls a model without gradients over and over. *Ready* is when",
        "the code serves: behind the first call of `torch.compile`, which waits for it; at the",
        "call that takes it over with Stator. *Before that* counts the calls that were answered",
        "by the time at which `torch.compile` was ready.",
        "",
        "| model | system | first call | slowest | 99 of 100 within | ready after | before that | "
        "median before | median with the code | runs it |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for model, rows in results.items():
        blocked = rows["torch"]["seconds"][0] if "torch" in rows else None
        for system, row in rows.items():
            cells = _cells(row, blocked)
            lines.append(f"| {MODELS[model].title} | {SYSTEMS[system]} | {' | '.join(cells)} |")
    if picture is not None:
        lines += ["", f"![The latency of each call over time]({picture})"]
    return "\n".join([*lines, ""])


def _cells(row: Row, blocked: float | None) -> list[str]:
    seconds, starts, ready = row["seconds"], row["starts"], row["ready"]
    # What compiling blocks is a call of its own: the code serves behind it.
    split = float("inf") if ready is None else max(ready, seconds[0]) if ready else 0.0
    before = [took for took, start in zip(seconds, starts, strict=True) if start < split]
    after = [took for took, start in zip(seconds, starts, strict=True) if start >= split]
    meanwhile = [
        start
        for took, start in zip(seconds, starts, strict=True)
        if blocked is not None and start + took <= blocked
    ]
    return [
        _time(seconds[0]),
        _time(max(seconds)),
        _time(_within(seconds, 0.99)),
        "never" if ready is None else _time(ready) if ready else "",
        str(len(meanwhile)) if blocked is not None else "",
        _time(statistics.median(before)) if before else "",
        _time(statistics.median(after)) if after else "",
        ", ".join(row["tiers"]),
    ]


def _within(seconds: list[float], part: float) -> float:
    """So long that this part of the calls took no longer."""
    ordered = sorted(seconds)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.2f} ms"


def draw(results: Mapping[str, Mapping[str, Row]], path: Path) -> bool:
    """The latency of each call over time. False: matplotlib isn't installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        len(results), 1, figsize=(9, 3 * len(results)), squeeze=False, layout="constrained"
    )
    for (model, rows), (axis,) in zip(results.items(), axes, strict=True):
        for system, row in rows.items():
            ends = [a + b for a, b in zip(row["starts"], row["seconds"], strict=True)]
            milliseconds = [took * 1e3 for took in row["seconds"]]
            label = SYSTEMS[system].replace("`", "")
            axis.plot(ends, milliseconds, ".", markersize=2, label=label)
        axis.set(
            title=MODELS[model].title,
            xlabel="seconds since the first call began",
            ylabel="latency, ms",
            yscale="log",
        )
        axis.legend(markerscale=4)
    figure.savefig(path, dpi=110)
    return True


if __name__ == "__main__":
    main()
