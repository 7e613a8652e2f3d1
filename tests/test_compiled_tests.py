"""The plugin that runs somebody else's tests compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

TESTS = """
import unittest
import pytest, torch, stator

CALLS = []

@pytest.mark.parametrize("number", [1, 2])
def test_whole(number):
    CALLS.append(number)
    assert torch.equal(torch.ones(2) * number, torch.full((2,), float(number)))

def test_broken():
    stator.graph_break()
    assert CALLS == [1] * 4 + [2] * 4

class Case(unittest.TestCase):
    def setUp(self):
        self.x = torch.rand(2)

    def test_method(self):
        assert (self.x < 1).all() and torch.rand(()) == torch.rand(()), "random"

    def test_other(self):
        assert len(self.x) == 2
"""


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ((), "4 tests passed each call, 3 without graph break"),
        (("--plain",), "4 tests passed each call, 4 without graph break"),
    ],
)
def test_each_test_is_compiled_and_called(
    plain: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    (tmp_path / "test_theirs.py").write_text(TESTS)
    options = ["-p", "tools.compiled_tests", "-p", "no:cacheprovider", "--calls=4", *plain]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, "test_theirs.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert said in run.stdout and "1 failed, 4 passed" in run.stdout, run.stdout + run.stderr
    assert "AssertionError: random" in run.stdout
