"""Count for the compiler which of Stator's code programs run often, and which hardly ever.

    python -m tools.profile_build [--out FILE]

Stator is built with counters in it, runs `tools/profiled_programs.py`, and what was counted is
merged into one file, in the folder that was built in. A build with ``-Cprofile-use=FILE`` puts what
is run often side by side. That matters for a first call, which runs much code once. The counts are
of no use to another commit or another Rust compiler.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tools.build_wheels import ROOT, environment, rust_flags

OUT = ROOT / "target" / "profile" / "stator.profdata"


def rustc(*arguments: str) -> str:
    """What the Rust compiler says of itself."""
    return subprocess.check_output(["rustc", *arguments], cwd=ROOT, text=True)


def merger() -> Path:
    """The `llvm-profdata` of this Rust compiler: another version can't read its counts."""
    host = next(line.split()[1] for line in rustc("-vV").splitlines() if line.startswith("host:"))
    found = Path(rustc("--print", "sysroot").strip(), "lib", "rustlib", host, "bin/llvm-profdata")
    if not found.exists() and shutil.which("rustup"):
        subprocess.run(["rustup", "component", "add", "llvm-tools"], cwd=ROOT)
    if not found.exists():
        raise SystemExit("Merging counts takes llvm-profdata: rustup component add llvm-tools")
    return found


def build(target: Path, counts: Path) -> Path:
    """Build Stator with counters that are written to a folder; the package that has it."""
    options = environment(
        PYO3_PYTHON=sys.executable,
        CARGO_TARGET_DIR=str(target),
        CARGO_ENCODED_RUSTFLAGS=rust_flags(f"-Cprofile-generate={counts}"),
    )
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--package", "stator-py"]
    subprocess.run(command, cwd=ROOT, env=options, check=True)
    package = target / "package"
    shutil.rmtree(package, ignore_errors=True)
    ignored = shutil.ignore_patterns("_stator*.so", "__pycache__")
    shutil.copytree(ROOT / "python" / "stator", package / "stator", ignore=ignored)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    shutil.copy(target / "release" / "lib_stator.so", package / "stator" / f"_stator{suffix}")
    return package


def main() -> None:
    """Build, run and merge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT, help="the merged counts")
    out: Path = parser.parse_args().out.resolve()
    merge = merger()
    target = out.parent
    counts = target / "counts"
    package = build(target, counts)
    # Building writes counts, too: of macros and of build scripts.
    shutil.rmtree(counts, ignore_errors=True)
    more = {"PYTHONPATH": os.pathsep.join([str(package), str(ROOT)])}
    command = [sys.executable, "-m", "tools.profiled_programs", str(package)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **more}, check=True)
    files = sorted(counts.glob("*.profraw"))
    subprocess.run([merge, "merge", "--output", out, *files], check=True)


if __name__ == "__main__":
    main()
