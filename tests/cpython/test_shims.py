"""The C shims compile against their CPython's headers, whose layouts they assert."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import stator
from stator import _stator

SHIMS = Path(__file__).resolve().parents[2] / "crates" / "cpython" / "shim"
FLAGS = (
    "-c -O2 -fPIC -Wall -Wextra -Werror -Wno-unused-parameter"
    " -Wno-missing-field-initializers -Wno-deprecated-declarations"
).split()


def include_dir(minor: int) -> Path | None:
    """The headers of CPython 3.``minor``: this interpreter's, or a sibling's under pyenv."""
    if sys.version_info[1] == minor:
        return Path(sysconfig.get_path("include"))
    for versions in (Path(sys.base_prefix).parent, Path.home() / ".pyenv" / "versions"):
        for found in sorted(versions.glob(f"3.{minor}.*/include/python3.{minor}")):
            return found
    return None


@pytest.mark.parametrize("minor", [11, 12, 13])
@pytest.mark.parametrize("shim", ["version", "semantics", "c_stack"])
def test_shim_compiles(minor: int, shim: str, tmp_path: Path) -> None:
    include = include_dir(minor)
    compiler = shutil.which("cc")
    if include is None or compiler is None:
        pytest.skip(f"no headers of 3.{minor}, or no compiler")
    source = SHIMS / (f"v3{minor}.c" if shim == "version" else f"{shim}.c")
    includes = [f"-I{include}", f"-I{include / 'internal'}", f"-idirafter{include.parent}"]
    command = [compiler, *FLAGS, *includes, str(source), "-o", str(tmp_path / "shim.o")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_rust_layouts_equal_the_headers() -> None:
    assert _stator.testing.layout_differences() == []


REFUSED = {
    "3.10": (
        "ImportError: Stator evaluates the bytecode of CPython 3.11, 3.12, 3.13 and was imported by cpython 3.10."
        " Functions run as they are without it."
    ),
    "3.13.0": (
        "ImportError: CPython 3.13.0 doesn't tell of all changes of dictionaries (cpython#125608), so Stator"
        " couldn't see when a compiled function has become invalid: use 3.13.1 or later."
    ),
    "3.14": (
        "ImportError: Stator evaluates the bytecode of CPython 3.11, 3.12, 3.13 and was imported by cpython 3.14."
        " Functions run as they are without it."
    ),
}


@pytest.mark.parametrize("version", REFUSED)
def test_other_versions_are_refused_in_words(version: str) -> None:
    """No crash and no missing module: `import stator` says which version it is for."""
    versions = Path.home() / ".pyenv" / "versions"
    found = sorted(
        {*versions.glob(f"{version}/bin/python3"), *versions.glob(f"{version}.*/bin/python3")}
    )
    if not found:
        pytest.skip(f"no CPython {version}")
    package = Path(stator.__file__).parent.parent
    command = [str(found[0]), "-c", "import stator"]
    environment = {"PYTHONPATH": str(package), "PATH": ""}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == REFUSED[version]
