"""Compile Stator for machines that this one isn't: `cargo check` for each of their targets.

The C shim is compiled with this machine's CPython headers by zig's C compiler, which brings the C
libraries of all targets along. Nothing is run: what a target's own code computes is tested where
bytes of that target are at hand (`crates/cpython/src/heap/getter.rs`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Rust's names, and zig's.
TARGETS = {
    "aarch64-unknown-linux-gnu": "aarch64-linux-gnu",
    "aarch64-apple-darwin": "aarch64-macos",
}

# What the `cc` crate says for Clang names targets, processors and systems as zig doesn't.
COMPILER = """#!/bin/sh
# Asked for its version, zig leaves an empty a.o.
[ "$*" = --version ] && cd "{folder}"
for argument do
    shift
    case $argument in
    --target=* | -march=* | -mmacosx-version-min=* | -arch | arm64) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec "{python}" -m ziglang cc -target {target} "$@"
"""


def check(target: str, folder: Path) -> None:
    """Compile for one target; raises where that fails."""
    compiler = folder / f"cc-{target}"
    compiler.write_text(
        COMPILER.format(folder=folder, python=sys.executable, target=TARGETS[target])
    )
    compiler.chmod(0o755)
    environment = {
        **os.environ,
        f"CC_{target.replace('-', '_')}": str(compiler),
        # Without it, `cc` asks Xcode.
        "SDKROOT": "/",
        # PyO3 asks no interpreter of another machine: this one's version, and its headers.
        "PYO3_CROSS": "1",
        "PYO3_CROSS_PYTHON_VERSION": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "PYO3_PYTHON": sys.executable,
        "CARGO_TARGET_DIR": str(folder),
    }
    command = ["cargo", "check", "--quiet", "--package", "stator-py", "--target", target]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def main() -> int:
    """Check all targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fetch", action="store_true", help="fetch their standard library alone")
    if parser.parse_args().fetch:
        if shutil.which("rustup") is None:
            print("rustup isn't here; it fetches what is compiled with for other machines")
            return 1
        command = ["rustup", "--quiet", "target", "add", *TARGETS]
        return subprocess.run(command, cwd=ROOT, check=False).returncode
    folder = ROOT / "target" / "targets"
    folder.mkdir(parents=True, exist_ok=True)
    for target in TARGETS:
        try:
            check(target, folder)
        except subprocess.CalledProcessError:
            print(f"{target}: doesn't compile")
            return 1
        print(f"{target}: compiles")
    return 0


if __name__ == "__main__":
    sys.exit(main())
