"""`python -m stator`, and what errors say of it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import stator
from stator import _stator
from stator.__main__ import main
from stator._interpreter import problem

# What happens if torch can't be imported: users read about their errors wherever they are.
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from stator.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stator", *arguments], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("row", _stator._breaks(), ids=lambda row: row[0])
def test_each_row_is_explained(row: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    id, what, why, hint = row
    assert main(["explain", id.lower()]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{id}: {what}\n") and why in out and hint in out


def test_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed == [f"{id}  {what}" for id, what, _, _ in _stator._breaks()]


def test_an_unknown_id() -> None:
    done = run("explain", "SB02")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("There is no graph break 'SB02'. Did you mean 'SB0")


def test_no_command() -> None:
    done = run()
    assert done.returncode == 2 and "explain" in done.stderr


def test_it_needs_no_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "explain", "SB001", "SB002"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "SB001: " in done.stdout and "\n\nSB002: " in done.stdout


def test_an_error_names_a_command_that_runs() -> None:
    with pytest.raises(stator.GraphBreakError) as caught:
        stator.compile(lambda x: x.sum().tolist(), fullgraph=True)(torch.ones(2))
    command = caught.value.help
    assert command in str(caught.value)
    done = run(*command.split()[3:])
    assert done.returncode == 0 and done.stdout.startswith(f"{caught.value.id}: ")


def test_interpreters_that_are_refused() -> None:
    assert (
        problem(sys.implementation.name, sys.version_info[:3], sys.platform, sys.abiflags) is None
    )
    told = [
        problem("cpython", (3, 10)),
        problem("pypy", (3, 11)),
        problem("cpython", (3, 12), "win32"),
        problem("cpython", (3, 13), "linux", "t"),
        problem("cpython", (3, 13, 0)),
        problem("cpython", (3, 14, 0)),
    ]
    words = [
        "cpython 3.10",
        "pypy 3.11",
        "Windows",
        "interpreter lock",
        "use 3.13.1 or later",
        "cpython 3.14",
    ]
    for sentence, word in zip(told, words, strict=True):
        assert sentence is not None and word in sentence
