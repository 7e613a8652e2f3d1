"""Rows A19, A20 and A23 of MISSION.md: the deep dive's graph break and its rewritten bytecode.

The program is the one of the text. Its bytecode is that of this CPython, not of the text's version,
so the names, the order and the calls are compared, not the opcodes' numbers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """\
import torch, stator

@stator.compile
def fn(a):
    b = a + 2
    print("Hi")
    return b + a

fn(torch.ones(4))
"""


def records(folder: Path, logs: str) -> str:
    (folder / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env={**os.environ, "STATOR_LOGS": logs, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Hi\n"
    return done.stderr


def test_bytecode(tmp_path: Path) -> None:
    text = records(tmp_path, "bytecode")
    parts = text.split("MODIFIED BYTECODE ")
    assert len(parts) == 3
    original, modified, resumed = parts
    assert original.startswith("ORIGINAL BYTECODE fn script.py line 3\n")
    # Since 3.13 the `NULL` of a call lies above what is called.
    below = sys.version_info < (3, 13)
    assert f"LOAD_GLOBAL              1 ({'NULL + print' if below else 'print + NULL'})" in original
    # Behind the call of print.
    offset = 40 if sys.version_info < (3, 12) else 32
    head, *lines = modified.splitlines()
    assert head == "fn script.py line 3"
    assert [" ".join(line.split()) for line in lines] == [
        "LOAD_GLOBAL (__compiled_fn_0)",
        "LOAD_FAST (a)",
        "CALL (1)",
        "STORE_FAST (graph_out_0)",
        *(["PUSH_NULL", "LOAD_GLOBAL (print)"] if below else ["LOAD_GLOBAL (print)", "PUSH_NULL"]),
        "LOAD_CONST ('Hi')",
        "LOAD_FAST (a)",
        "STORE_FAST (a)",
        "LOAD_FAST (graph_out_0)",
        "LOAD_CONST (0)",
        "BINARY_SUBSCR",
        "STORE_FAST (b)",
        "CALL",
        f"LOAD_GLOBAL (__resume_at_{offset}_1)",
        "LOAD_FAST (a)",
        "LOAD_FAST (b)",
        "CALL (3)",
        "RETURN_VALUE",
    ]
    head, *lines = resumed.splitlines()
    assert head == "resume_in_fn script.py line 6"
    assert [" ".join(line.split()) for line in lines] == [
        "LOAD_GLOBAL (__compiled_fn_2)",
        "LOAD_FAST (b)",
        "LOAD_FAST (a)",
        "CALL (2)",
        "STORE_FAST (graph_out_0)",
        "LOAD_FAST (graph_out_0)",
        "LOAD_CONST (0)",
        "BINARY_SUBSCR",
        "RETURN_VALUE",
    ]


def test_graphs_before_and_behind_the_break(tmp_path: Path) -> None:
    text = records(tmp_path, "graph_code,graph_breaks")
    assert (
        "graph break in fn (script.py:3)\nSB001 call of a function that Stator does not know"
        in text
    )
    first = "    # File: script.py:5, code: b = a + 2\n    b = l_a_ + 2\n    return (b,)\n"
    second = (
        "    # File: script.py:7, code: return b + a\n    add = l_b_ + l_a_\n    return (add,)\n"
    )
    assert first in text and second in text.partition(first)[2]
