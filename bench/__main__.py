"""Runs the workers one after the other and writes `bench/results.md` (3.12: `results-3.12.md`)."""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from bench import pages
from bench.cases import BENCHES, Bench
from bench.measure import in_a_process
from bench.report import Result, report

SYSTEMS = ("stator", "torch", "stator_dynamic", "torch_dynamic", "fresh")
FRESH_PROCESSES = 5


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = [bench.name for bench in BENCHES]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="BENCH")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS, metavar="SYSTEM")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one worker")
    parser.add_argument("--output", type=Path, default=pages.page("results"))
    options = parser.parse_args()

    results: dict[tuple[str, str], Result] = {}
    for bench in BENCHES:
        for system in options.systems:
            if bench.name in options.only and _applies(system, bench):
                print(f"{system:14} {bench.name} ...", end=" ", flush=True)
                measure = run_fresh if system == "fresh" else run_worker
                results[system, bench.name] = result = measure(system, bench.name, options.timeout)
                print(result if isinstance(result, str) else _summary(result), flush=True)
    page = report(results)
    options.output.write_text(page)
    print(f"\n{page}")


def _applies(system: str, bench: Bench) -> bool:
    if system == "fresh" or system.endswith("_dynamic"):
        return bench.is_model or (bench.cached and system == "fresh")
    return system == "stator" or not bench.first_call_only


def run_worker(system: str, bench: str, timeout: float) -> Result:
    """The worker's row; or, as text, why there is none."""
    return in_a_process("bench.worker", system, bench, timeout=timeout)


def run_fresh(system: str, bench: str, timeout: float) -> Result:
    """Of some processes the one in the middle, and the ratios of the `best` and the `worst`."""
    rows = []
    for _ in range(FRESH_PROCESSES):
        row = run_worker(system, bench, timeout)
        if isinstance(row, str):
            return row
        rows.append(row)
    rows.sort(key=_first_to_single)
    middle = statistics.median_low(range(len(rows)))
    return {**rows[middle], "best": _first_to_single(rows[0]), "worst": _first_to_single(rows[-1])}


def _first_to_single(row: dict[str, Any]) -> float:
    ratio: float = row["first"] / row["single"]
    return ratio


def _summary(row: dict[str, Any]) -> str:
    figures = {key: row[key] for key in ("eager", "first", "warm") if row[key] is not None}
    return ", ".join(f"{key} {seconds * 1e3:.3f} ms" for key, seconds in figures.items())


if __name__ == "__main__":
    main()
