"""Rows A1-A4, A6, A11 and A12 of MISSION.md: the deep dive's examples and what they print.

Each example is a file named as in the text, run in its folder with `STATOR_LOGS` set. Ids of types
are masked. Graphs must appear as printed, line after line; guards are printed "among others", so
theirs must appear in this order, with other lines between them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from differential.support import api

from . import scripts

_TYPE_ID = re.compile(r"(?<=___check_type_id\()(.+?), \d+\)")
_LARGE = re.compile(r"\d{9,}")
_FOLDER = re.compile(r"/\S*/(?=example\.py)")
needs_stator = pytest.mark.skipif(api.PLAIN, reason="plain Python prints no logs")


def run(folder: Path, name: str, source: str, logs: str) -> list[str]:
    """The lines a script prints on its standard error stream."""
    (folder / name).write_text(source)
    environment = {**os.environ, "STATOR_LOGS": logs, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, name],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return [line.rstrip() for line in done.stderr.splitlines()]


def graphs(lines: list[str]) -> list[str]:
    """The printed graphs, each from its `def forward` to its `return`."""
    found: list[str] = []
    current: list[str] | None = None
    for line in lines:
        if line.startswith("def forward("):
            current = []
        if current is not None:
            current.append(line)
            if line.startswith("    return "):
                found.append("\n".join(current) + "\n")
                current = None
    assert current is None, "a graph has no end"
    return found


def masked(lines: list[str]) -> list[str]:
    """Without indentation, and with the ids of types masked."""
    return [_TYPE_ID.sub(r"\1, ID)", line.strip().removeprefix("- ").strip()) for line in lines]


def assert_in_order(expected: str, lines: list[str]) -> None:
    """Every expected line is among `lines`, in this order."""
    rest = iter(masked(lines))
    for wanted in expected.splitlines():
        assert any(line.partition("  #")[0].rstrip() == wanted for line in rest), (
            f"missing or out of order: {wanted}\nin\n" + "\n".join(lines)
        )


@needs_stator
def test_mse_is_a_linear_graph(tmp_path: Path) -> None:
    """A1: compound expressions split; the print names file, line and code."""
    lines = run(tmp_path, "example.py", scripts.MSE, "graph_code")
    assert graphs(lines) == [scripts.MSE_GRAPH]


@needs_stator
def test_only_the_branch_taken(tmp_path: Path) -> None:
    """A2 and A4: no control flow, and `n + 1` is the constant 3."""
    lines = run(tmp_path, "example.py", scripts.BRANCH + "fn(x, 2)\n", "graph_code")
    assert graphs(lines) == [scripts.BRANCH_GRAPH]


@needs_stator
def test_trace_depends_on_the_inputs(tmp_path: Path) -> None:
    """A3: other inputs at the first call, another graph."""
    lines = run(tmp_path, "example.py", scripts.BRANCH + "fn(x, -2)\n", "graph_code")
    assert graphs(lines) == [scripts.OTHER_BRANCH_GRAPH]


@needs_stator
@pytest.mark.parametrize("logs", ["graph_code", "guards", "graph_code,guards,recompiles,trace"])
def test_nothing_happens_at_decoration(tmp_path: Path, logs: str) -> None:
    """A3: without a call, nothing is traced and nothing printed."""
    assert run(tmp_path, "example.py", scripts.BRANCH, logs) == []


@needs_stator
def test_second_call_prints_nothing(tmp_path: Path) -> None:
    once = run(tmp_path, "example.py", scripts.MSE, "graph_code,guards,recompiles")
    twice = run(tmp_path, "example.py", scripts.MSE + "mse(x, y)\n", "graph_code,guards,recompiles")
    assert _anonymous(twice) == _anonymous(once)


def _anonymous(lines: list[str]) -> list[str]:
    """Without addresses and without the folder, which differ from run to run."""
    return [_FOLDER.sub("", _LARGE.sub("ID", line)) for line in lines]


@needs_stator
def test_string_is_guarded(tmp_path: Path) -> None:
    """A11: type and value of a constant argument."""
    lines = run(tmp_path, "script.py", scripts.HELLO, "guards")
    assert_in_order(scripts.HELLO_GUARDS, lines)


@needs_stator
def test_verbose_guards_name_the_read(tmp_path: Path) -> None:
    lines = run(tmp_path, "script.py", scripts.HELLO, "+guards")
    assert_in_order(scripts.HELLO_GUARDS, lines)
    assert "L['b'] == 'Hello'  # script.py:5: return a * len(b)" in lines
    assert "'len' not in G  # script.py:5: return a * len(b)" in lines
    assert any(line.endswith("  # script.py:3: @stator.compile") for line in lines)


@needs_stator
def test_global_state_has_a_line_for_each_fact(tmp_path: Path) -> None:
    lines = run(tmp_path, "script.py", scripts.HELLO, "+guards")
    begin = lines.index("___check_global_state(")
    end = lines.index(")", begin)
    facts = lines[begin + 1 : end]
    assert "    torch.is_grad_enabled() == True," in facts
    assert all(line.startswith("    torch.") and line.endswith(",") for line in facts)


@needs_stator
def test_an_argument_is_read_where_it_is_used_first(tmp_path: Path) -> None:
    lines = run(tmp_path, "script.py", scripts.FIRST_USES, "+guards")
    assert "L['n'] == 3  # script.py:7: return a * n + later()" in lines
    assert "L['cell'] == 2  # script.py:6: later = lambda: cell" in lines


@needs_stator
def test_other_values_specialise(tmp_path: Path) -> None:
    """A6: another string, another graph."""
    source = scripts.HELLO + 'fn(torch.arange(10), "Hi")\n'
    lines = run(tmp_path, "script.py", source, "graph_code")
    assert graphs(lines) == scripts.HELLO_GRAPHS


@needs_stator
def test_failing_guard_is_named(tmp_path: Path) -> None:
    """A11: function, file, line of the definition, the guard that failed, and what was met."""
    source = scripts.HELLO + 'fn(torch.arange(10), "Hi")\n'
    lines = run(tmp_path, "script.py", source, "recompiles")
    assert lines == scripts.HELLO_RECOMPILES.splitlines()


@needs_stator
def test_items_have_sources(tmp_path: Path) -> None:
    """A12: `L['l'][0]` rebuilds the object from the locals."""
    lines = run(tmp_path, "script.py", scripts.ITEM, "guards")
    assert_in_order(scripts.ITEM_GUARDS, lines)


@needs_stator
def test_tensors_are_checked(tmp_path: Path) -> None:
    """A11: the first call of the example with sizes, which are static then."""
    lines = run(tmp_path, "script.py", scripts.SIZES, "guards,graph_code")
    assert_in_order(scripts.SIZES_GUARDS, lines)
    (graph,) = graphs(lines)
    assert_in_order(scripts.SIZES_GRAPH_LINES, graph.splitlines())


@needs_stator
def test_instructions_and_stacks_are_traced(tmp_path: Path) -> None:
    """A8: each instruction before it runs, with the variable kinds on the stack."""
    lines = run(tmp_path, "script.py", scripts.TRACED, "trace")
    assert lines == scripts.TRACED_LINES.splitlines()


@needs_stator
def test_side_effects_are_named(tmp_path: Path) -> None:
    """What a replay writes, and where the program wrote it last."""
    lines = run(tmp_path, "script.py", scripts.WRITES, "side_effects")
    assert lines == scripts.WRITES_LINES.splitlines()


@needs_stator
def test_logs_off_print_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, "example.py", scripts.MSE, "") == []


@pytest.mark.parametrize("name", ["MSE", "BRANCH", "HELLO", "ITEM", "SIZES", "TRACED", "WRITES"])
def test_scripts_are_plain_programs(name: str) -> None:
    """Without the decorator they run, and line 3 is where the decorator stands."""
    source: str = getattr(scripts, name)
    assert source.splitlines()[2] == "@stator.compile"
    space: dict[str, Any] = {}
    exec(source.replace("import stator\n@stator.compile\n", "\n\n"), space)
    assert "torch" in space
