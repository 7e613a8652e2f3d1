"""A PyTorch whose insides aren't found: what lies where it isn't known is asked, and results are as right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from stator import _testing

ROOT = Path(__file__).resolve().parent.parent

HIDES = """
import sys
import torch
from stator import _testing

_testing._native.hide_torch()
"""


def run(source: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HIDES + source, *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
    )


def test_the_insides_of_this_one_are_found() -> None:
    assert torch.nn is not None
    assert _testing._native.torch_unfound() == []


def test_it_is_said_once() -> None:
    done = run("""
import warnings
import stator

def first(x):
    return x + 1

def second(x):
    return x + 2

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    compiled = [stator.compile(fn) for fn in (first, second)]
[told] = caught
assert told.category is stator.UnknownTorchWarning and told.lineno == 11, told
print(told.message)
for fn, n in zip(compiled, (1, 2)):
    for _ in range(3):
        assert fn(torch.zeros(2)).tolist() == [n, n]
""")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "Stator didn't find the fields of tensors and PyTorch's settings in PyTorch "
        f"{torch.__version__}: results are right, but guards take longer, because PyTorch's functions "
        "are asked. Stator is developed with PyTorch 2.11.\n"
    )


def test_programs_are_as_right() -> None:
    done = run(
        """
import pytest

raise SystemExit(pytest.main(["-q", "-p", "no:cacheprovider", "-W", "ignore", *sys.argv[1:]]))
""",
        "tests/differential",
    )
    assert done.returncode == 0, done.stdout[-5000:]
