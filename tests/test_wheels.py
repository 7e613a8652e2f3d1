"""Looking into wheels: what `tools/try_wheels.py` accepts, and what it doesn't."""

from __future__ import annotations

import shlex
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import build_wheels, try_wheels

TAG = "manylinux_2_34_x86_64"
NATIVE = "stator/_stator.cpython-311-x86_64-linux-gnu.so"
DESCRIBED = ("METADATA", "WHEEL", "RECORD", "licenses/LICENSE")
linux = pytest.mark.skipif(sys.platform != "linux", reason="tags are Linux's")


def wheel(
    folder: Path,
    change: Callable[[dict[str, bytes]], object] = lambda files: None,
    name: str = f"stator-0.1.0-cp311-cp311-{TAG}.whl",
) -> Path:
    """A wheel that holds what one should, changed."""
    files = dict.fromkeys([*try_wheels.expected_modules(), NATIVE], b"held")
    files |= dict.fromkeys([f"stator-0.1.0.dist-info/{name}" for name in DESCRIBED], b"said")
    change(files)
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        for file, held in files.items():
            archive.writestr(file, held)
    return path


def test_headers_of_an_interpreter_anywhere_are_named_shortly(tmp_path: Path) -> None:
    prefix = tmp_path / "root" / "usr"
    headers = prefix / "include"
    headers.mkdir(parents=True)
    (headers / "place.h").write_text("const char *place = __FILE__;\n")
    flags = shlex.split(build_wheels.options(prefix / "bin" / "python3.13", None)["CFLAGS"])
    done = subprocess.run(
        ["cc", "-E", "-P", *flags, f"-I{headers}", "-"],
        input='#include "place.h"\n', capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == 'const char *place = "python/include/place.h";'


@linux
def test_a_wheel_that_is_as_it_should_be(tmp_path: Path) -> None:
    assert "files" in try_wheels.looks_right(wheel(tmp_path))
    assert "stator/py.typed" in try_wheels.expected_modules()
    assert try_wheels.wheel_version(wheel(tmp_path)) == "3.11"


@linux
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda files: files.update({"tests/test_api.py": b""}), r"shouldn't: \['tests/test_api"),
        (lambda files: files.update({"stator/lib.rs": b""}), r"shouldn't: \['stator/lib.rs"),
        (lambda files: files.pop("stator/py.typed"), r"should: \['stator/py.typed"),
        (lambda files: files.pop("stator-0.1.0.dist-info/licenses/LICENSE"), "licenses/LICENSE"),
        (lambda files: files.pop(NATIVE), "one extension module for cp311"),
        (lambda files: files.update({NATIVE.replace("311", "312"): b""}), "one extension module"),
        (lambda files: files.update({NATIVE: f"{Path.home()}/x.c".encode()}), "of this machine"),
    ],
)
def test_a_wheel_that_is_not(
    change: Callable[[dict[str, bytes]], object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(try_wheels.TrialError, match=said):
        try_wheels.looks_right(wheel(tmp_path, change))


@linux
def test_a_wheel_that_is_too_large_or_has_another_tag(tmp_path: Path) -> None:
    with pytest.raises(try_wheels.TrialError, match="is to have less than 100"):
        try_wheels.looks_right(wheel(tmp_path), limit=100)
    untagged = wheel(tmp_path, name="stator-0.1.0-cp311-cp311-linux_x86_64.whl")
    with pytest.raises(try_wheels.TrialError, match="which C libraries"):
        try_wheels.looks_right(untagged)
    stable = wheel(tmp_path, name=f"stator-0.1.0-cp311-abi3-{TAG}.whl")
    with pytest.raises(try_wheels.TrialError, match="for one CPython"):
        try_wheels.looks_right(stable)


def test_nothing_to_try_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["try_wheels", str(tmp_path)])
    assert try_wheels.main() == 1


def test_a_trial_that_fails_ends_in_the_table_and_the_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel(tmp_path, name=f"stator-0.1.0-cp399-cp399-{TAG}.whl")
    monkeypatch.setattr(sys, "argv", ["try_wheels", str(tmp_path), "--without-sdist"])
    assert try_wheels.main() == 1
    printed = capsys.readouterr().out
    assert "CPython 3.99 isn't here" in printed
    assert "cp399" in printed.partition("verdict")[2]
    assert "FAILED" in printed


def test_output_of_what_fails_is_kept(tmp_path: Path) -> None:
    with pytest.raises(try_wheels.TrialError, match="ends with 3:\nwhat it says"):
        try_wheels.run(
            [sys.executable, "-c", "import sys; print('what it says'); sys.exit(3)"], tmp_path
        )
    with pytest.raises(try_wheels.TrialError, match="takes more than"):
        try_wheels.run([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, 0.2)
