"""The benchmark of docs/gpu.md runs, its systems agree, and its table has a row for each."""

from __future__ import annotations

import pytest
from differential.support import api

import stator
from bench import gpu


@pytest.mark.parametrize("task", gpu.TASKS)
def test_a_small_one(task: str, device: str) -> None:
    sizes = gpu.Sizes(layers=1, width=64, heads=1, tokens=8)
    systems = {"eager": lambda fn: fn, "Stator": api.compile if api.PLAIN else stator.compile}
    rows = gpu.measure(task, sizes, device, systems, rounds=1)
    assert [row.system for row in rows] == ["eager", "Stator"]
    assert all(0 < row.host <= row.call for row in rows) and all(row.first > 0 for row in rows)
    assert rows[1].waits <= rows[0].waits, "Stator waits where plain Python doesn't"
    lines = gpu.table(rows).splitlines()
    assert len(lines) == 4 and len({line.count("|") for line in lines}) == 1
    assert "Stator" in lines[3]
