"""Which versions of CPython Stator supports, and where they are on this machine.

    python tools/interpreters.py [--others]

Prints a line for each supported version: the version and its interpreter, or ``-`` if none is at
hand. The list stands in ``python/stator/_interpreter.py``, which an interpreter also has to run
without an error to be taken: so one that Stator can't be imported by isn't built for.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "python" / "stator" / "_interpreter.py"

# Says what an interpreter is; one without headers or `venv` can't be built for or tried.
PROBE = """
import ensurepip, os, sys, sysconfig, venv
header = os.path.join(sysconfig.get_path("include"), "Python.h")
print("%d.%d" % sys.version_info[:2], sys.executable if os.path.exists(header) else "", sep="\\n")
"""


@dataclass(frozen=True)
class Interpreter:
    """A supported version and its interpreter on this machine."""

    version: str
    path: Path | None
    refused: str
    """Why what was found isn't taken, if something was."""


def supported(source: Path = SOURCE) -> list[str]:
    """The supported versions, oldest first, as the package has them."""
    for statement in ast.parse(source.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "SUPPORTED":
            versions = sorted(ast.literal_eval(statement.value))
            return [f"{major}.{minor}" for major, minor in versions]
    raise ValueError(f"{source} has no SUPPORTED")


def find(version: str) -> Interpreter:
    """The first interpreter of a version that can be built for."""
    refused = ""
    for candidate in candidates(version):
        path = real(candidate, version)
        if path is None:
            continue
        reason = refusal(path)
        if not reason:
            return Interpreter(version, path, "")
        refused = refused or f"{path}: {reason}"
    return Interpreter(version, None, refused)


def candidates(version: str) -> Iterator[str]:
    """Where an interpreter of a version may be: on the path, then among pyenv's."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        yield str(Path(folder) / f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = pyenv.glob(f"versions/{version}.*/bin/python")
    yield from map(str, sorted(found, key=patch_level, reverse=True))


def patch_level(path: Path) -> int:
    """The last number of the version that pyenv has installed at a path; -1 if it has none."""
    last = path.parent.parent.name.rpartition(".")[2]
    return int(last) if last.isdecimal() else -1


def real(candidate: str, version: str) -> Path | None:
    """The executable behind a name (a shim, say), if it is of that version and can be built for."""
    try:
        done = subprocess.run(
            [candidate, "-I", "-c", PROBE], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found, _, path = done.stdout.strip().partition("\n")
    return Path(path) if done.returncode == 0 and found == version and path else None


def refusal(path: Path) -> str:
    """Why Stator refuses to be imported by an interpreter; empty if it doesn't."""
    done = subprocess.run([path, "-I", SOURCE], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def main() -> int:
    """Print what there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--others", action="store_true", help="leave out the first version, make's default"
    )
    versions = supported()[1:] if parser.parse_args().others else supported()
    for version in versions:
        interpreter = find(version)
        print(version, interpreter.path or "-")
        if interpreter.refused:
            print(interpreter.refused, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
