"""Build a wheel for each supported CPython that is at hand, and the source distribution.

    python -m tools.build_wheels [--out DIST] [--only VERSION ...] [--target FOLDER]
                                 [--profile FILE]

What an earlier run left in the folder is removed first. Paths of this machine (of crates' sources,
of the interpreter's headers) are shortened in what is built. The exit status is 1 if nothing could
be built for a version that the command line asks for, or for any version.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from tools import interpreters

ROOT = interpreters.ROOT
# Apart from what `make` builds, because of the compilers' options below.
TARGET = "target/wheels/{version}"
# They would choose another interpreter or environment than the one asked for.
OTHERS = (
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYO3_PYTHON",
    "PYTHONPATH",
    "PYTHONHOME",
    "CARGO_TARGET_DIR",
)


def environment(**more: str) -> dict[str, str]:
    """This process's environment, without what chooses an interpreter."""
    kept = {name: value for name, value in os.environ.items() if name not in OTHERS}
    return {**kept, **more}


def rust_flags(*more: str) -> str:
    """Options of the Rust compiler behind those of `RUSTFLAGS`, as `CARGO_ENCODED_RUSTFLAGS` has
    them: there a path may have spaces in it.
    """
    return "\x1f".join([*os.environ.get("RUSTFLAGS", "").split(), *more])


def options(interpreter: Path | None, profile: Path | None) -> dict[str, str]:
    """Options of both compilers: they keep this machine's paths out of messages and symbols, those
    of an interpreter's headers too, wherever it is; and they lay out code by what
    `tools.profile_build` counted, if there is such a file.
    """
    shortened = {str(Path.home()): "~", str(ROOT): "."}
    if interpreter is not None:
        shortened[str(interpreter.resolve().parent.parent)] = "python"
    rust = [f"--remap-path-prefix={long}={short}" for long, short in shortened.items()]
    if profile is not None:
        rust.append(f"-Cprofile-use={profile.resolve()}")
    c = [f"-ffile-prefix-map={long}={short}" for long, short in shortened.items()]
    return {
        "CARGO_ENCODED_RUSTFLAGS": rust_flags(*rust),
        "CC_SHELL_ESCAPED_FLAGS": "1",
        "CFLAGS": shlex.join([*shlex.split(os.environ.get("CFLAGS", "")), *c]),
    }


def maturin(
    *arguments: str | Path,
    target: Path,
    interpreter: Path | None = None,
    profile: Path | None = None,
) -> None:
    """Run the maturin that stands beside this interpreter, for one to build for."""
    command = [sys.executable, "-m", "maturin", *map(str, arguments)]
    if interpreter is not None:
        command += ["--interpreter", str(interpreter)]
    more = environment(CARGO_TARGET_DIR=str(target), **options(interpreter, profile))
    done = subprocess.run(command, cwd=ROOT, env=more)
    if done.returncode:
        raise SystemExit(f"maturin {arguments[0]} failed: what it printed above says why")


def main() -> int:
    """Build what the command line asks for."""
    versions = interpreters.supported()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where they are put")
    parser.add_argument("--only", nargs="+", choices=versions, help="leave out other versions")
    parser.add_argument("--target", default=TARGET, help="where cargo builds, with {version} in it")
    parser.add_argument("--profile", type=Path, help="what `tools.profile_build` counted")
    asked = parser.parse_args()
    console = Console()

    out: Path = asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("stator-*.whl"), *out.glob("stator-*.tar.gz")):
        old.unlink()
    built = []
    for version in asked.only or versions:
        found = interpreters.find(version)
        if found.path is None:
            console.print(f"CPython {version} isn't here: no wheel. {found.refused}".strip())
            continue
        started = time.monotonic()
        maturin(
            *("build", "--release", "--strip", "--locked", "--out", out),
            target=ROOT / asked.target.format(version=version),
            interpreter=found.path,
            profile=asked.profile,
        )
        console.print(f"CPython {version}: {time.monotonic() - started:.0f} s, {found.path}")
        built.append(version)
    maturin("sdist", "--out", out, target=ROOT / asked.target.format(version=versions[0]))
    return 0 if built and (not asked.only or built == asked.only) else 1


if __name__ == "__main__":
    sys.exit(main())
