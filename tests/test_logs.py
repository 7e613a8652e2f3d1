"""Which logs are on, what reaches the native side, and where records go."""

from __future__ import annotations

import inspect
import io
import logging
import os
import subprocess
import sys
from typing import Any

import pytest

import stator
from stator import _logs

EMIT = "from stator import _logs; _logs.emit('graph_code', 'def forward(): ...')"


@pytest.fixture
def masks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The masks handed to Rust."""
    seen: list[int] = []
    monkeypatch.setattr(_logs._stator, "_set_log_mask", seen.append)
    return seen


def run(program: str, logs: str = "") -> subprocess.CompletedProcess[str]:
    """A program in a process of its own."""
    environment = {**os.environ, "STATOR_LOGS": logs}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )


def test_a_logs_bit_is_its_place(masks: list[int]) -> None:
    for place, name in enumerate(stator.LOGS):
        stator.set_logs(all=False)
        stator.set_logs(**{name: True})
        assert masks[-1] == 1 << place
        stator.set_logs(**{name: "verbose"})
        assert masks[-1] == 1 << place | 1 << (place + _logs.VERBOSE_SHIFT)


def test_only_the_named_logs_change(masks: list[int]) -> None:
    stator.set_logs(graph_code=True, guards=True)
    stator.set_logs(guards=False, trace=True)
    assert [name for name in stator.LOGS if _logs.is_enabled(name)] == ["graph_code", "trace"]
    stator.set_logs(all=False)
    assert masks[-1] == 0


def test_a_wrong_name_changes_nothing(masks: list[int]) -> None:
    with pytest.raises(stator.errors.LogError):
        stator.set_logs(guards=True, gards=True)
    assert masks == []
    assert not _logs.is_enabled("guards")


def test_docstring_names_every_log() -> None:
    documented = " ".join((inspect.getdoc(stator.set_logs) or "").split())
    assert ", ".join(stator.LOGS) in documented


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("", {}),
        ("graph_code", {"graph_code": True}),
        ("graph_code,+guards", {"graph_code": True, "guards": "verbose"}),
        (" graph_code , guards,", {"graph_code": True, "guards": True}),
        ("graph_code,-graph_code", {}),
        ("all,-trace", {name: True for name in stator.LOGS if name != "trace"}),
        ("+all", dict.fromkeys(stator.LOGS, "verbose")),
    ],
)
def test_environment(
    variable: str, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATOR_LOGS", variable)
    _logs.read_environment()
    assert {name: level for name, level in _logs._levels.items() if level} == expected


def test_a_wrong_name_in_the_environment_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_LOGS", "gards,graph_code")
    with pytest.warns(stator.LogWarning) as caught:
        _logs.read_environment()
    assert str(caught[0].message) == (
        "STATOR_LOGS: There is no log 'gards'. Did you mean 'guards'? Known names: graph_code, "
        "graph, graph_sizes, guards, recompiles, graph_breaks, bytecode, trace, side_effects, "
        "dynamic, all."
    )
    assert _logs.is_enabled("graph_code")


def test_the_environment_is_read_at_import() -> None:
    assert run(EMIT, logs="graph_code").stderr == "def forward(): ...\n"


def test_without_logging_set_up_records_go_to_stderr() -> None:
    done = run(f"import stator; stator.set_logs(graph_code=True); {EMIT}")
    assert done.stderr == "def forward(): ...\n"
    assert done.stdout == ""


def test_with_logging_set_up_records_go_there_only() -> None:
    done = run(
        "import logging, sys, stator\n"
        "stator.set_logs(graph_code=True)\n"
        "logging.basicConfig(stream=sys.stdout, format='%(levelname)s %(name)s %(message)s')\n"
        f"{EMIT}"
    )
    assert done.stdout == "INFO stator.graph_code def forward(): ...\n"
    assert done.stderr == ""


def test_stderr_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.Logger, "hasHandlers", lambda self: False)
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    stator.set_logs(trace=True)
    _logs.emit("trace", "TRACE LOAD_FAST x []")
    assert stream.getvalue() == "TRACE LOAD_FAST x []\n"


def test_levels(caplog: pytest.LogCaptureFixture) -> None:
    stator.set_logs(guards=True, trace="verbose")
    _logs.emit("guards", "a guard")
    _logs.emit("trace", "a line")
    assert [(r.name, r.levelno) for r in caplog.records] == [
        ("stator.guards", logging.INFO),
        ("stator.trace", logging.DEBUG),
    ]


def test_a_logger_can_be_silenced(caplog: pytest.LogCaptureFixture) -> None:
    stator.set_logs(guards=True)
    with caplog.at_level(logging.ERROR, "stator.guards"):
        _logs.emit("guards", "a guard")
    assert caplog.messages == []


def test_percent_signs_are_text(caplog: pytest.LogCaptureFixture) -> None:
    stator.set_logs(graph_code=True)
    _logs.emit("graph_code", "z = x % y")
    assert caplog.messages == ["z = x % y"]
