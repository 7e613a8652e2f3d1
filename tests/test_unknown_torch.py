"""A PyTorch whose insides aren't found: what lies where it isn't known is asked, and results are as right."""

from __future__ import annotations

import array
import random
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
    # Older ones keep the settings of their matrix products in another kind of map.
    is_older = torch.torch_version.TorchVersion(torch.__version__) < (2, 11)
    allowed = {"PyTorch's settings"} if is_older else set()
    assert set(_testing._native.torch_unfound()) <= allowed


def test_a_search_finds_the_same_whatever_memory_holds() -> None:
    pick = random.Random(0)
    known = _testing._native.search_tensors()
    assert known is not None
    kept: list[object] = []
    for _ in range(100):
        words = [pick.choice([0, 1, 2, 8, 13, 16, 1 << 32, id(kept)]) for _ in range(30)]
        # Freed memory of these sizes is what tensors are made in.
        kept = [array.array("q", words[:count]) for count in range(16, 30) for _ in range(20)]
        kept += [torch.ones(pick.choice([1, 13, 16])).requires_grad_() * 2 for _ in range(20)]
        pick.shuffle(kept)
        del kept[len(kept) // 2 :]
        assert _testing._native.search_tensors() == known


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
