"""Whole printed tracebacks of what fails: the user's frames and no others, and a clear message.

Each case is a small program in `cases/`, with the traceback it prints beside it. `make bless`
rewrites those.
"""

from __future__ import annotations

import linecache
import os
import re
import subprocess
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest

import stator.federated as fl
from stator.federated import framework as fw

CASES = Path(__file__).resolve().parent / "cases"
BLESS = os.environ.get("STATOR_BLESS") == "1"
HEADER = """\
import numpy as np
import stator.federated as fl
from stator.federated import framework as fw

fc = fl.federated_computation
"""


def printed(name: str) -> str:
    """What Python prints for the error of a case."""
    source = (CASES / f"{name}.py").read_text()
    file = f"{name}.py"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names = {"np": np, "fl": fl, "fw": fw, "fc": fl.federated_computation, "__name__": "__main__"}
    before = fw.get_context_stack().current
    with warnings.catch_warnings():
        try:
            exec(compile(source, file, "exec"), names)
        except Exception as error:
            found = error
        else:
            pytest.fail(f"{name} doesn't fail")
    # Whatever happened, nothing stays installed.
    assert fw.get_context_stack().current is before
    for each in (found, found.__cause__, found.__context__):
        while each is not None and each.__traceback__ is not None:
            if each.__traceback__.tb_frame.f_code.co_filename == __file__:
                each.__traceback__ = each.__traceback__.tb_next
            else:
                break
    return "".join(traceback.format_exception(found))


def masked(text: str) -> str:
    return re.sub(r"0x[0-9a-f]{6,}", "0x...", text)


NAMES = sorted(path.stem for path in CASES.glob("*.py"))


def test_there_are_many_cases() -> None:
    assert len(NAMES) >= 80


def expected_file(name: str) -> Path:
    """What CPython adds of its own to a traceback, suggestions and carets, depends on the version."""
    since = [CASES / f"{name}.since_3_{minor}.txt" for minor in range(sys.version_info[1], 11, -1)]
    return next((file for file in since if file.exists()), CASES / f"{name}.txt")


def comparable(text: str) -> str:
    """Since 3.13, CPython shows all lines of a statement, and marks their parts: the first is kept."""
    if sys.version_info < (3, 13):
        return text
    kept: list[str] = []
    shown = -1
    for line in text.splitlines(keepends=True):
        if line.startswith("  File "):
            shown = 0
        elif shown >= 0 and line.startswith("    "):
            shown += 1
        else:
            shown = -1
        if shown <= 1:
            kept.append(line)
    return "".join(kept)


@pytest.mark.parametrize("name", NAMES)
def test_traceback(name: str) -> None:
    found = masked(printed(name))
    expected = expected_file(name)
    if BLESS and sys.version_info < (3, 13):
        expected.write_text(found)
    assert comparable(found) == comparable(expected.read_text())


@pytest.mark.parametrize("name", NAMES)
def test_only_frames_of_the_user(name: str) -> None:
    text = (CASES / f"{name}.txt").read_text()
    files = [line.split('"')[1] for line in text.splitlines() if line.startswith("  File ")]
    assert files
    assert set(files) == {f"{name}.py"}


def test_as_a_program(tmp_path: Path) -> None:
    """The same in a process of its own, as users see it."""
    name = "sum_at_server"
    (tmp_path / f"{name}.py").write_text(HEADER + (CASES / f"{name}.py").read_text())
    package = str(Path(fl.__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, f"{name}.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": package},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    lines = HEADER.count("\n")
    shifted = done.stderr.replace(str(tmp_path) + "/", "")
    for number in range(50, 0, -1):
        shifted = shifted.replace(f"line {number + lines},", f"line {number},")
        shifted = shifted.replace(f".py:{number + lines}", f".py:{number}")
    assert comparable(shifted) == comparable((CASES / f"{name}.txt").read_text())
