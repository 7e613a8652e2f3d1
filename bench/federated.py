"""The federated front end beside `federated_language`: `python -m bench.federated` measures both,
each in a process of its own, and writes `bench/federated.md`.

A computation is traced anew for each measurement. Times are minima.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench import classifier, clients, pages

ROOT = Path(__file__).resolve().parent.parent
SYSTEMS = {"stator": "stator.federated", "peer": "federated_language"}
IMPORT_LIMIT = 0.050
"""Seconds that importing may take beyond Python and NumPy."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One row."""

    name: str
    title: str
    measure: Callable[[Any, Any], float]
    """Seconds, given a package and its `framework`."""
    wanted: float | None
    """How many times faster than the peer it has to be."""


def best(prepare: Callable[[], Any], run: Callable[[Any], object], seconds: float = 1.0) -> float:
    """Seconds of `run` on what `prepare` makes, the minimum over about `seconds` or two runs."""
    lowest, runs, end = float("inf"), 0, time.perf_counter() + seconds
    while runs < 2 or time.perf_counter() < end:
        prepared = prepare()
        gc.collect()
        start = time.perf_counter()
        result = run(prepared)
        lowest = min(lowest, time.perf_counter() - start)
        del prepared, result
        runs += 1
    return lowest


def trace(lang: Any, body: Callable[[Any], Any], of: Any) -> float:
    """Seconds to trace `body` with one argument of type `of`."""

    def run(_: Any) -> Any:
        return lang.federated_computation(body, of)

    return best(lambda: None, run)


def chain(lang: Any, _: Any, length: int = 1000) -> float:
    """`federated_map` on what `federated_map` gave."""
    identity = lang.federated_computation(lambda x: x, np.int32)

    def body(value: Any) -> Any:
        for _ in range(length):
            value = lang.federated_map(identity, value)
        return value

    return trace(lang, body, lang.FederatedType(np.int32, lang.CLIENTS))


def fields(lang: Any, _: Any, count: int = 1000) -> float:
    """Each field of a struct selected once."""
    of = lang.StructType([(f"f{index}", np.int32) for index in range(count)])

    def body(value: Any) -> Any:
        return [value[index] for index in range(count)]

    return trace(lang, body, of)


def sums(lang: Any, _: Any, count: int = 300) -> float:
    """A tuple of the sums of as many values."""
    of = lang.StructType([(None, lang.FederatedType(np.int32, lang.CLIENTS))] * count)

    def body(values: Any) -> Any:
        return tuple(lang.federated_sum(value) for value in values)

    return trace(lang, body, of)


def tree(lang: Any, blocks: Any, nodes: int = 10_000) -> Any:
    """A block whose locals are calls on structs and selections: each adds ten nodes."""
    pair = lang.StructType([("a", np.int32), ("b", np.float32)])
    function = lang.FunctionType(pair, pair)
    local = []
    for index in range(nodes // 10):
        before = blocks.Reference(f"v{index - 1}" if index else "x", pair)
        again = blocks.Reference(f"v{index - 1}" if index else "x", pair)
        first = blocks.Selection(before, name="a")
        second = blocks.Selection(again, index=1)
        argument = blocks.Struct([("a", first), ("b", second)])
        result = blocks.Reference("p", pair)
        identity = blocks.Lambda("p", pair, blocks.Block([], result))
        inner = blocks.Call(blocks.Intrinsic("f", function), argument)
        local.append((f"v{index}", blocks.Call(identity, inner)))
    return blocks.Block(local, blocks.Reference(local[-1][0], pair))


def serialize(lang: Any, blocks: Any) -> float:
    """A tree to bytes; the peer keeps a message that it has made, so each tree is a new one."""

    def write(block: Any) -> bytes:
        message = block.to_proto()
        encoded = message if isinstance(message, bytes) else message.SerializeToString()
        assert isinstance(encoded, bytes)
        return encoded

    return best(lambda: tree(lang, blocks), write)


def parse(lang: Any, blocks: Any) -> float:
    """Bytes to a tree."""
    message = tree(lang, blocks).to_proto()
    if isinstance(message, bytes):
        return best(lambda: message, blocks.ComputationBuildingBlock.from_bytes)
    encoded = message.SerializeToString()

    def read(encoded: bytes) -> Any:
        return blocks.ComputationBuildingBlock.from_proto(type(message).FromString(encoded))

    return best(lambda: encoded, read)


def both(lang: Any, blocks: Any) -> float:
    """A tree to bytes and back."""
    return serialize(lang, blocks) + parse(lang, blocks)


CASES = [
    Case("chain", "Trace a chain of 1,000 `federated_map`", chain, 50),
    Case("fields", "Trace the selection of all fields of a 1,000-field struct", fields, 500),
    Case("sums", "Trace a tuple of 300 `federated_sum`, of 300 values", sums, 100),
    Case("both", "Serialize and parse a tree of 10,000 nodes", both, 50),
    Case("serialize", "serialize alone", serialize, None),
    Case("parse", "parse alone", parse, None),
]
SIZES = (500, 1000, 2000, 4000, 8000)
"""Numbers of fields; linear means that the time for each is the same."""


def import_seconds(module: str) -> float:
    """Seconds of the processor that importing a module takes once NumPy is there, the minimum of
    some processes."""
    program = (
        "import time, numpy\nstart = time.process_time()\n"
        f"import {module}\nprint(time.process_time() - start)"
    )
    run = [sys.executable, "-c", program]
    return min(
        float(subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
        for _ in range(7)
    )


def worker(system: str) -> dict[str, Any]:
    """All figures of one system."""
    if system == "clients":
        # Before anything else has taken memory.
        memory = clients.memory()
        return {**clients.measure(), "own": clients.own_costs(), "memory": memory}
    lang = importlib.import_module(SYSTEMS[system])
    blocks = importlib.import_module(f"{SYSTEMS[system]}.framework")
    found: dict[str, Any] = {case.name: case.measure(lang, blocks) for case in CASES}
    if system == "stator":
        found["sizes"] = [fields(lang, blocks, size) for size in SIZES]
    return found


def at_once(found: dict[str, Any]) -> list[str]:
    """The lines on the work of many clients."""
    systems = {
        "loop": "a loop of PyTorch's",
        "exact": "Stator, one client after the other (`exact=True`)",
        "at_once": "Stator, clients at once",
    }
    return [
        "",
        "## Clients",
        "",
        f"A round of federated averaging with 1,000 clients: {classifier.STEPS} steps on "
        f"{classifier.ROWS} rows each, with a classifier of digits, in one thread; medians.",
        "",
        "| | µs a client | times faster than the loop |",
        "| :-- | --: | --: |",
        *(
            f"| {title} | {found[name] * 1e6:,.0f} | {found['loop'] / found[name]:.2f} |"
            for name, title in systems.items()
        ),
        "",
        "What a client costs beside its operations: a small program whose weighted mean and sums "
        "are taken, the least of 9 runs over 4,000 clients, in one thread.",
        "",
        "| | µs a client | wanted |",
        "| :-- | --: | --: |",
        *(
            f"| {name} | {seconds * 1e6:.1f} | {clients.WANTED.get(name, 5)} |"
            for name, seconds in found["own"].items()
        ),
        "",
        "What the process takes more, at most, where each client makes 40 kB:",
        "",
        "| clients | MB |",
        "| --: | --: |",
        *(f"| {int(count):,} | {more / 1e6:.0f} |" for count, more in found["memory"].items()),
    ]


def report(found: dict[str, dict[str, Any]], imports: dict[str, float]) -> str:
    """The page, ratios first."""
    ours, theirs = found["stator"], found["peer"]
    lines = [
        "# Benchmark results of the federated front end",
        "",
        f"Written by `make bench` with CPython {platform.python_version()}, {platform.machine()}, "
        f"{os.cpu_count()} CPU cores. Times are minima; each package runs in a process of its own.",
        "",
        "| | Stator, ms | `federated_language`, ms | times faster | wanted |",
        "| :-- | --: | --: | --: | --: |",
    ]
    for case in CASES:
        a, b = ours[case.name], theirs[case.name]
        wanted = f"{case.wanted:,.0f}" if case.wanted else ""
        lines.append(f"| {case.title} | {a * 1e3:.3f} | {b * 1e3:,.0f} | {b / a:,.0f} | {wanted} |")
    lines += [
        "",
        "## Linearity",
        "",
        "Tracing the selection of all fields of a struct, per field.",
        "",
        "| fields | ms | per field, µs |",
        "| --: | --: | --: |",
        *(
            f"| {size:,} | {seconds * 1e3:.3f} | {seconds / size * 1e6:.2f} |"
            for size, seconds in zip(SIZES, ours["sizes"], strict=True)
        ),
        *at_once(found["clients"]),
        "",
        "## Import",
        "",
        f"Processor time beyond Python and NumPy; wanted: below {IMPORT_LIMIT * 1e3:.0f} ms.",
        "",
        "| | ms |",
        "| :-- | --: |",
        f"| `stator.federated` | {imports['stator'] * 1e3:.1f} |",
        f"| `federated_language` | {imports['peer'] * 1e3:.1f} |",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.federated", description=__doc__)
    parser.add_argument(
        "--worker", choices=[*SYSTEMS, "clients"], help="measure one system, print JSON"
    )
    parser.add_argument("--output", type=Path, default=pages.page("federated"))
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(worker(options.worker)))
        return
    found = {}
    for system in (*SYSTEMS, "clients"):
        command = [sys.executable, "-m", "bench.federated", "--worker", system]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        found[system] = json.loads(done.stdout.splitlines()[-1])
    page = report(found, {system: import_seconds(name) for system, name in SYSTEMS.items()})
    options.output.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
