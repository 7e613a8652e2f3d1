"""Try wheels and the source distribution, each in a fresh virtual environment, as users have them.

    python -m tools.try_wheels [DIST] [--checkout FOLDER] [--without-sdist]

A wheel is looked into, then installed with nothing else, then with what it declares for federated
computations, then with PyTorch. That is some 5 GB, so it is the one in the checkout's own virtual
environment for the version (``.venv``, ``.venv-3.12``); without that the trial is left out. From
the source distribution a wheel is built away from the checkout, and tried in the same way. The exit
status is 1 if a trial fails.
"""

from __future__ import annotations

import argparse
import email
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from email.message import Message
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tools import interpreters
from tools.build_wheels import environment

ROOT = interpreters.ROOT
PACKAGE = ROOT / "python" / "stator"
EXAMPLE = ROOT / "examples" / "federated_statistics.py"
LIMIT = 8_000_000
TIMEOUT = 1800
# Of the root, what a source distribution holds beside the folders `crates` and `python`.
ROOT_FILES = ("Cargo.lock", "Cargo.toml", "LICENSE", "PKG-INFO", "pyproject.toml")
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCUMENT = re.compile(r"\b(?:(?:docs|bench)/[\w/]+|[A-Z]{2,})\.md\b")

# Prints what was imported from where, and what else could be.
IMPORTED = """
import importlib.util, json, sys
import stator
found = [name for name in ("numpy", "torch") if importlib.util.find_spec(name)]
print(json.dumps({"file": stator.__file__, "version": stator.__version__, "found": found}))
"""


class TrialError(Exception):
    """Why a trial failed, in a sentence or as the output of what ran."""


@dataclass
class Outcome:
    """What a trial of a file found."""

    file: str
    trial: str
    verdict: str
    notes: str
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether it makes the whole run fail."""
        return self.verdict == "FAILED"


@dataclass
class Trials:
    """Runs trials, and keeps what they found."""

    console: Console
    outcomes: list[Outcome] = field(default_factory=list)

    def run(self, file: Path, trial: str, function: Callable[[], str]) -> bool:
        """Run one; whether it passed."""
        started = time.monotonic()
        try:
            verdict, notes = "ok", function()
        except TrialError as failure:
            verdict, notes = "FAILED", str(failure)
        self.note(file, trial, verdict, notes, time.monotonic() - started)
        return verdict == "ok"

    def note(self, file: Path, trial: str, verdict: str, notes: str, seconds: float = 0) -> None:
        """Keep and show an outcome."""
        self.outcomes.append(Outcome(file.name, trial, verdict, notes, seconds))
        self.console.print(f"{file.name}: {trial}: {verdict}", highlight=False)

    def table(self) -> Table:
        """All outcomes; of a failure, the last line that was printed."""
        table = Table("file", "trial", "verdict", "s", "notes")
        for outcome in self.outcomes:
            style = {"ok": "green", "FAILED": "bold red"}.get(outcome.verdict, "yellow")
            last = outcome.notes.strip().splitlines()[-1:] or [""]
            seconds = f"{outcome.seconds:.1f}"
            # Of a wheel, the tag of its interpreter.
            file = outcome.file if ".whl" not in outcome.file else outcome.file.split("-")[2]
            table.add_row(file, outcome.trial, f"[{style}]{outcome.verdict}", seconds, last[0])
        return table


# What a file holds.


def expected_modules(package: Path = PACKAGE) -> set[str]:
    """The files of the package in the checkout, as a wheel names them."""
    kinds = (".py", ".pyi")
    paths = [path for path in package.rglob("*") if path.suffix in kinds or path.name == "py.typed"]
    return {path.relative_to(package.parent).as_posix() for path in paths}


def wheel_version(wheel: Path) -> str:
    """The version of CPython that a wheel's name says it is for: `3.11` of `cp311-cp311`."""
    matched = re.fullmatch(r"stator-[^-]+-cp3(\d+)-cp3\1-[^-]+\.whl", wheel.name)
    if matched is None:
        raise TrialError(f"{wheel.name} isn't the name of a wheel for one CPython")
    return f"3.{matched[1]}"


def metadata(wheel: Path) -> Message:
    """What a wheel says of itself."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def differences(found: Iterable[str], expected: Iterable[str]) -> None:
    """Fail where two sets of names differ."""
    more, less = sorted({*found} - {*expected}), sorted({*expected} - {*found})
    if more or less:
        raise TrialError(f"holds what it shouldn't: {more}; doesn't hold what it should: {less}")


def looks_right(wheel: Path, limit: int = LIMIT) -> str:
    """Look into a wheel: its size, tag and files, and that no path of this machine is in it."""
    size, tag = wheel.stat().st_size, wheel_version(wheel).replace("3.", "cp3")
    if size >= limit:
        raise TrialError(f"{size:,} bytes, and is to have less than {limit:,}")
    if sys.platform == "linux" and "-manylinux_" not in wheel.name:
        raise TrialError("its tag doesn't say which C libraries it runs with")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        native = [n for n in names if n.startswith("stator/_stator.") and n.endswith(".so")]
        if len(native) != 1 or not native[0].startswith(f"stator/_stator.cpython-{tag[2:]}-"):
            raise TrialError(f"{native} should be one extension module for {tag}")
        (information,) = {n.partition("/")[0] for n in names if ".dist-info/" in n}
        described = ("METADATA", "WHEEL", "RECORD", "licenses/LICENSE")
        expected = {*expected_modules(), *native, *(f"{information}/{n}" for n in described)}
        differences(names, expected)
        for name in names:
            held = archive.read(name)
            for path in (ROOT, Path.home()):
                if f"{path}/".encode() in held:
                    raise TrialError(f"{name} has {path}/ in it, a path of this machine")
    return f"{size / 1e6:.2f} MB, {len(names)} files"


def named_documents(text: str) -> set[str]:
    """The pages that a text names by their path in the source distribution."""
    return set(DOCUMENT.findall(text))


def sdist_looks_right(sdist: Path, readme: str) -> str:
    """Look into the source distribution: it holds the checkout's files and every named page."""
    with tarfile.open(sdist) as archive:
        members = [m.name.partition("/")[2] for m in archive.getmembers() if m.isfile()]
    files = {*members}
    listed = subprocess.run(
        ["git", "ls-files", "crates", "python"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    needed = {name for name in listed if "/tests/" not in name}
    missing = {*needed, *ROOT_FILES, *named_documents(readme)} - files
    if missing:
        raise TrialError(f"doesn't hold {sorted(missing)}")
    more = {n for n in files if n != "PKG-INFO" and not (ROOT / n).exists()}
    binary = {n for n in files if n.endswith((".so", ".pyc", ".a"))}
    if more or binary:
        raise TrialError(f"holds what it shouldn't: {sorted(more | binary)}")
    return f"{sdist.stat().st_size / 1e6:.2f} MB, {len(files)} files"


# Running what is installed.


def run(command: list[str | Path], folder: Path, timeout: float = TIMEOUT) -> str:
    """What a command prints; it knows nothing of the checkout."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment(PYTHONNOUSERSITE="1", PIP_DISABLE_PIP_VERSION_CHECK="1"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired as expired:
        raise TrialError(f"takes more than {expired.timeout} s: {command}") from None
    if done.returncode:
        shown = " ".join(map(str, command))
        raise TrialError(f"{shown}\nends with {done.returncode}:\n{done.stdout}")
    return done.stdout


@dataclass
class Fresh:
    """A fresh virtual environment, in a temporary folder."""

    folder: Path
    version: str

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "venv" / "bin" / "python"

    @property
    def packages(self) -> Path:
        """Where pip installs into."""
        return self.folder / "venv" / "lib" / f"python{self.version}" / "site-packages"

    def make(self, interpreter: Path) -> None:
        """Make it."""
        run([interpreter, "-m", "venv", self.folder / "venv"], self.folder)

    def pip(self, *arguments: str | Path) -> str:
        """Run its pip."""
        return run([self.python, "-m", "pip", *arguments], self.folder)

    def script(self, text: str) -> str:
        """Run a program in it."""
        path = self.folder / "program.py"
        path.write_text(text)
        return run([self.python, "-I", path], self.folder)

    def imported(self, *others: str) -> str:
        """Import Stator, from here, with just these of the libraries it can use at hand."""
        found = json.loads(self.script(IMPORTED).splitlines()[-1])
        if not Path(found["file"]).is_relative_to(self.packages):
            raise TrialError(f"{found['file']} was imported, which isn't in {self.packages}")
        if found["found"] != list(others):
            raise TrialError(f"{found['found']} can be imported, instead of {list(others)}")
        return f"stator {found['version']}"

    def installed(self) -> set[str]:
        """The names of what pip has installed, its own tools aside."""
        listed = json.loads(self.pip("list", "--format=json"))
        return {package["name"] for package in listed} - {"pip", "setuptools", "wheel"}


def alone(fresh: Fresh, wheel: Path, interpreter: Path) -> str:
    """Install a wheel and nothing else, and use what needs nothing else."""
    fresh.make(interpreter)
    fresh.pip("install", "--no-index", "--no-deps", wheel)
    differences(fresh.installed(), {"stator"})
    said = fresh.imported()
    if "SB002" not in run([fresh.python, "-I", "-m", "stator", "explain", "SB002"], fresh.folder):
        raise TrialError("`python -m stator explain SB002` doesn't explain it")
    return said


def federated(fresh: Fresh, wheel: Path) -> str:
    """Install what the wheel declares for federated computations, and run the example."""
    fresh.pip("install", f"{wheel}[federated]")
    differences(fresh.installed(), {"stator", "numpy"})
    fresh.imported("numpy")
    fresh.script(EXAMPLE.read_text())
    return f"{EXAMPLE.name} with NumPy alone"


def with_torch(fresh: Fresh, wheel: Path, torch: Path) -> str:
    """Reach a PyTorch by path, and run the examples of the page that the wheel carries."""
    (fresh.packages / "torch.pth").write_text(f"{torch}\n")
    fresh.imported("numpy", "torch")
    blocks = FENCE.findall(str(metadata(wheel).get_payload()))
    if not blocks:
        raise TrialError("the package's page has no examples")
    check = f"assert stator.__file__.startswith({str(fresh.packages)!r}), stator.__file__"
    said = fresh.script("\n".join([*blocks, check, "print(torch.__version__)"]))
    return f"{len(blocks)} examples with torch {said.splitlines()[-1]}"


def built(sdist: Path, folder: Path, interpreter: Path) -> Path:
    """The wheel that pip builds of the source distribution, away from the checkout."""
    fresh = Fresh(folder, "")
    fresh.make(interpreter)
    copied = Path(shutil.copy(sdist, folder))
    fresh.pip("wheel", "--no-deps", "--no-cache-dir", "--wheel-dir", folder / "made", copied)
    (wheel,) = (folder / "made").glob("*.whl")
    return wheel


def try_wheel(trials: Trials, wheel: Path, named: Path, checkout: Path) -> None:
    """All that is tried with a wheel; outcomes are noted of `named`."""
    try:
        found = interpreters.find(version := wheel_version(wheel))
    except TrialError as failure:
        trials.note(named, "name", "FAILED", str(failure))
        return
    if found.path is None:
        trials.note(named, "alone", "FAILED", f"CPython {version} isn't here")
        return
    interpreter = found.path
    first = version == interpreters.supported()[0]
    environment = checkout / (".venv" if first else f".venv-{version}")
    torch = environment / "lib" / f"python{version}" / "site-packages"
    with tempfile.TemporaryDirectory(prefix="stator-wheel-") as name:
        fresh = Fresh(Path(name).resolve(), version)
        if not trials.run(named, "alone", lambda: alone(fresh, wheel, interpreter)):
            return
        if not trials.run(named, "federated", lambda: federated(fresh, wheel)):
            return
        if (torch / "torch").is_dir():
            trials.run(named, "with torch", lambda: with_torch(fresh, wheel, torch))
        else:
            trials.note(named, "with torch", "left out", f"no PyTorch in {environment.name}")


def try_sdist(trials: Trials, sdist: Path, checkout: Path) -> None:
    """All that is tried with the source distribution, by the oldest interpreter at hand."""
    readme = (ROOT / "docs" / "package.md").read_text()
    trials.run(sdist, "contents", lambda: sdist_looks_right(sdist, readme))
    found = [f.path for f in map(interpreters.find, interpreters.supported()) if f.path]
    if not found:
        trials.note(sdist, "build", "FAILED", "no supported CPython is here")
        return
    with tempfile.TemporaryDirectory(prefix="stator-sdist-") as name:
        wheels: list[Path] = []

        def build() -> str:
            wheels.append(built(sdist, Path(name).resolve(), found[0]))
            return f"{wheels[0].name}, {wheels[0].stat().st_size / 1e6:.2f} MB"

        if trials.run(sdist, "build", build):
            try_wheel(trials, wheels[0], sdist, checkout)


def main() -> int:
    """Try what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dist", nargs="?", type=Path, default=ROOT / "dist")
    parser.add_argument(
        "--checkout", type=Path, default=ROOT, help="whose .venv and .venv-3.x have PyTorch"
    )
    parser.add_argument(
        "--without-sdist", action="store_true", help="don't build from the source distribution"
    )
    options = parser.parse_args()
    trials = Trials(Console())
    dist: Path = options.dist.resolve()
    checkout: Path = options.checkout.resolve()
    wheels, sdists = sorted(dist.glob("stator-*.whl")), sorted(dist.glob("stator-*.tar.gz"))
    if not wheels or (not sdists and not options.without_sdist):
        trials.console.print(f"{dist} lacks wheels or the source distribution: run `make wheels`")
        return 1
    for wheel in wheels:
        trials.run(wheel, "contents", partial(looks_right, wheel))
        try_wheel(trials, wheel, wheel, checkout)
    for sdist in () if options.without_sdist else sdists:
        try_sdist(trials, sdist, checkout)
    trials.console.print(trials.table())
    failed = [outcome for outcome in trials.outcomes if outcome.failed]
    for outcome in failed:
        trials.console.rule(f"{outcome.file}: {outcome.trial}")
        trials.console.print(outcome.notes, markup=False, highlight=False)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
