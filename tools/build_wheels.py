"""Build a wheel for each supported CPython that is at hand, and the source distribution.

    python -m tools.build_wheels [--out DIST] [--only VERSION ...] [--target FOLDER]

What an earlier run left in the folder is removed first. The exit status is 1 if nothing could be
built for a version that the command line asks for, or for any version.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from tools import interpreters

ROOT = interpreters.ROOT
TARGET = "target/{version}"
# They would choose another interpreter or environment than the one asked for.
OTHERS = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYO3_PYTHON", "PYTHONPATH", "PYTHONHOME", "CARGO_TARGET_DIR")


def environment(**more: str) -> dict[str, str]:
    """This process's environment, without what chooses an interpreter."""
    kept = {name: value for name, value in os.environ.items() if name not in OTHERS}
    return {**kept, **more}


def maturin(*arguments: str | Path, target: Path) -> None:
    """Run the maturin that stands beside this interpreter."""
    command = [sys.executable, "-m", "maturin", *map(str, arguments)]
    subprocess.run(command, cwd=ROOT, env=environment(CARGO_TARGET_DIR=str(target)), check=True)


def target_folder(template: str, version: str) -> Path:
    """Where cargo builds for a version: what `make` builds is used again."""
    first = version == interpreters.supported()[0]
    if template == TARGET and first:
        return ROOT / "target"
    return ROOT / template.format(version=version)


def main() -> int:
    """Build what the command line asks for."""
    versions = interpreters.supported()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where they are put")
    parser.add_argument("--only", nargs="+", choices=versions, help="leave out other versions")
    parser.add_argument("--target", default=TARGET, help="where cargo builds, with {version} in it")
    options = parser.parse_args()
    console = Console()

    out: Path = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("stator-*.whl"), *out.glob("stator-*.tar.gz")):
        old.unlink()
    built = []
    for version in options.only or versions:
        found = interpreters.find(version)
        if found.path is None:
            console.print(f"CPython {version} isn't here: no wheel. {found.refused}".strip())
            continue
        started = time.monotonic()
        maturin(
            *("build", "--release", "--strip", "--locked", "--interpreter", found.path),
            *("--out", out),
            target=target_folder(options.target, version),
        )
        console.print(f"CPython {version}: {time.monotonic() - started:.0f} s, {found.path}")
        built.append(version)
    maturin("sdist", "--out", out, target=target_folder(options.target, versions[0]))
    return 0 if built and (not options.only or built == options.only) else 1


if __name__ == "__main__":
    sys.exit(main())
