"""Stator's federated rounds beside Flower's simulation, pfl-research's simulator and a plain loop:
`make bench-federated-peers` writes `bench/federated_peers.md`.

All train the same model on the same rows, each in processes of its own that take turns, and each
does for a client what it does by default. The models after each round are compared. What can't run
is told on the page.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

from bench import classifier, pages
from bench.measure import printed_by

ROOT = Path(__file__).resolve().parent.parent
SIZES = (100, 1000)
"""Numbers of clients."""

LIMIT = 3600
"""Seconds after which a system is given up."""

NEAR = 1e-4
"""By which share of its greatest number a model may differ from the plain loop's."""


@dataclasses.dataclass(frozen=True)
class System:
    """One row."""

    title: str
    function: str
    """`module:expression` in `bench.peers`."""
    processors: str


SYSTEMS = {
    "modules": System("plain PyTorch, `nn.Module` and `torch.optim.SGD`", "loops:of_modules", "1"),
    "tensors": System("plain PyTorch, written out on tensors", "loops:of_tensors", "1"),
    "pfl": System("pfl-research, `SimulatedBackend`", "pfl_research:simulated", "1"),
    "flower": System("Flower, simulation on Ray", "flower:simulated", "all"),
    "exact": System("Stator, one client after the other", "contexts:local(1, exact=True)", "1"),
    "at_once": System("Stator, clients at once", "contexts:local(1)", "1"),
    "averaging": System("Stator, `build_fed_avg`", "contexts:averaging", "1"),
    "threads": System("Stator, clients at once, in threads", "contexts:local()", "all"),
    "ray_exact": System(
        "Stator, `RayContext`, one client after the other", "contexts:on_ray(True)", "all"
    ),
    "ray": System("Stator, `RayContext`, clients at once", "contexts:on_ray()", "all"),
}
REFERENCE = "tensors"
WANTED = {"modules": 5, "tensors": 5, "pfl": 5, "flower": 50}
"""How many times faster clients at once have to be than others, for the most clients."""


@dataclasses.dataclass
class Found:
    """What is known of a system with a number of clients."""

    seconds: list[float] = dataclasses.field(default_factory=list)
    """Of each round, without the first ones."""
    difference: float = 0.0
    """The greatest one to the reference's models, as a share of their greatest number."""
    failure: str = ""
    """Why there is nothing."""

    @property
    def median(self) -> float:
        """Seconds of a round."""
        return statistics.median(self.seconds)


def worker(name: str, clients: int, rounds: int, folder: Path) -> None:
    """Some rounds by one system: their seconds and models are written to a folder."""
    import torch

    torch.set_num_threads(1)
    module, expression = SYSTEMS[name].function.split(":")
    run = eval(expression, vars(importlib.import_module(f"bench.peers.{module}")))
    models = {}
    seconds = []
    rows = classifier.rows_of_clients(clients)
    for took, model in run(classifier.first_model(), rows, rounds):
        models.update({f"{len(seconds)}/{key}": array for key, array in model.items()})
        seconds.append(took)
    np.savez(folder / "models.npz", **models)
    (folder / "seconds.json").write_text(json.dumps(seconds))


def in_process(name: str, clients: int, rounds: int) -> tuple[list[float], classifier.Arrays]:
    """Seconds and models of some rounds; `RuntimeError` if the system fails."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--worker", name, "--clients", str(clients), "--rounds", str(rounds)]
        # Ray tells nobody how it is used.
        printed_by(
            "bench.federated_peers",
            *(*arguments, "--folder", folder),
            timeout=LIMIT,
            RAY_USAGE_STATS_ENABLED="0",
        )
        with np.load(Path(folder) / "models.npz") as models:
            return json.loads((Path(folder) / "seconds.json").read_text()), dict(models)


def difference(models: classifier.Arrays, reference: classifier.Arrays) -> float:
    """The greatest one in any round, as a share of the greatest number of that array."""
    assert models.keys() == reference.keys()
    return max(
        float(np.abs(models[key] - array).max() / np.abs(array).max())
        for key, array in reference.items()
    )


def measure(clients: int, passes: int, rounds: int) -> dict[str, Found]:
    """All systems, which take turns."""
    found = {name: Found() for name in SYSTEMS}
    _, reference = in_process(REFERENCE, clients, rounds + 1)
    for number in range(passes):
        for name, of in found.items():
            if of.failure:
                continue
            try:
                seconds, models = in_process(name, clients, rounds + 1)
            except RuntimeError as error:
                of.failure = str(error)
                print(*getattr(error, "__notes__", ()), file=sys.stderr)
                continue
            of.seconds += seconds[1:]
            of.difference = max(of.difference, difference(models, reference))
            print(f"{number} {clients} {name}: {of.median / clients * 1e6:,.0f} µs a client")
    return found


def versions() -> str:
    """Of what was measured, and of what it stands on."""
    told = []
    for package in ("flwr", "pfl", "ray", "torch", "numpy"):
        try:
            told.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            told.append(f"no {package}")
    return ", ".join(told)


def table(clients: int, found: dict[str, Found]) -> list[str]:
    """The systems with one number of clients."""
    loop = found[REFERENCE]
    lines = [
        "",
        f"## {clients:,} clients",
        "",
        "| | processors | µs a client | times faster than the loop on tensors | model differs by |",
        "| :-- | :-- | --: | --: | --: |",
    ]
    for name, system in SYSTEMS.items():
        of = found[name]
        cells = ["", "", ""]
        if not of.failure:
            micro = of.median / clients * 1e6
            cells = [f"{micro:,.0f}", f"{loop.median / of.median:.2f}", f"{of.difference:.0e}"]
        lines.append(f"| {system.title} | {system.processors} | {' | '.join(cells)} |")
    lines += [
        "",
        *(
            f"**{SYSTEMS[name].title}** didn't run here: `{of.failure}`."
            for name, of in found.items()
            if of.failure
        ),
    ]
    return lines[: None if lines[-1] else -1]


def ratios(found: dict[str, Found], clients: int) -> list[str]:
    """How many times faster Stator is than each of the others."""
    ours = [name for name, system in SYSTEMS.items() if system.function.startswith("contexts:")]
    ours = [name for name in ours if not found[name].failure]
    titles = " | ".join(SYSTEMS[name].title.removeprefix("Stator, ") for name in ours)
    lines = [
        "",
        f"## How many times faster Stator is, {clients:,} clients",
        "",
        f"| than | {titles} | wanted of clients at once |",
        f"| :-- | {'--: | ' * len(ours)}--: |",
    ]
    for name, wanted in WANTED.items():
        if found[name].failure:
            continue
        times = (f"{found[name].median / found[of].median:.1f}" for of in ours)
        lines.append(f"| {SYSTEMS[name].title} | {' | '.join(times)} | {wanted} |")
    return lines


def report(found: dict[int, dict[str, Found]], passes: int, rounds: int, load: float) -> str:
    """The page."""
    busy = (
        f"The machine was busy with other work: its load average was {load:.1f} before the run."
        if load > 0.5
        else f"The machine was idle: its load average was {load:.1f} before the run."
    )
    lines = [
        "# Federated rounds beside other simulators",
        "",
        f"Written by `make bench-federated-peers` with CPython {platform.python_version()}, "
        f"{platform.machine()}, {os.cpu_count()} CPU cores; {versions()}. {busy}",
        "",
        "A round of federated averaging in which all clients take "
        f"{classifier.STEPS} steps of gradient descent on {classifier.ROWS} rows each, with a "
        f"classifier of digits of {classifier.PIXELS}, {classifier.HIDDEN} and "
        f"{classifier.DIGITS} numbers. Each system does it from its own Python interface, with "
        "what it does for a client by default, in processes of its own: the median of "
        f"{passes * rounds} rounds, of {passes} processes that take turns with the others'; a "
        "process's first round, in which it starts and traces, is left out. PyTorch has one "
        "thread for each process or worker. Where all processors work, Flower and Ray have a "
        "worker for each.",
        "",
        "The last column is the greatest difference of a model to that of the loop on tensors, "
        f"after any of {rounds + 1} rounds, as a share of the array's greatest number.",
    ]
    for clients, of in found.items():
        lines += table(clients, of)
    most = max(found)
    lines += [*ratios(found[most], most), ""]
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.federated_peers", description=__doc__)
    parser.add_argument("--worker", choices=list(SYSTEMS), help="run one system")
    parser.add_argument("--clients", type=int, action="append", help="numbers of clients")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of a process")
    parser.add_argument("--passes", type=int, default=3, help="processes of a system")
    parser.add_argument("--folder", type=Path, help="where a worker writes")
    parser.add_argument("--output", type=Path, default=pages.page("federated_peers"))
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.clients[0], options.rounds, options.folder)
        return
    load = os.getloadavg()[0]
    sizes = options.clients or SIZES
    found = {clients: measure(clients, options.passes, options.rounds) for clients in sizes}
    page = report(found, options.passes, options.rounds, load)
    options.output.write_text(page)
    print(page)
    wrong = [
        f"{SYSTEMS[name].title}, {clients} clients: its model differs by {of.difference:.1e}"
        for clients, systems in found.items()
        for name, of in systems.items()
        if of.difference > NEAR
    ]
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
