"""`STATOR_TEST_FORK=1`: each test in a child process, so that a crash or a hang is one failure.

A conftest that imports `pytest_runtest_protocol` from here gets it. Off, tests run as always.
`STATOR_TEST_TIMEOUT` is the time for one test, in seconds (120 by default).
"""

from __future__ import annotations

import functools
import gc
import json
import os
import select
import signal
import time
from typing import Any

import pytest
import torch
from _pytest.runner import runtestprotocol

from . import api

FORK = os.environ.get("STATOR_TEST_FORK") == "1"
TIMEOUT = float(os.environ.get("STATOR_TEST_TIMEOUT", "120"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs one test in a child and reports what it reported, or how it died."""
    if not FORK:
        return None
    _warm_up()
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports_of_child(item, nextitem):
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@functools.cache
def _warm_up() -> None:
    """What first calls import and set up is there before the first fork."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(False)
    api.compile(lambda x: x + 1)(torch.ones(1))
    api.reset()
    gc.collect()
    gc.freeze()


def _reports_of_child(item: pytest.Item, nextitem: pytest.Item | None) -> list[Any]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _run_in_child(item, nextitem, writer)
    os.close(writer)
    text = _read_until(reader, time.monotonic() + TIMEOUT, child)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    try:
        serialized = json.loads(text)
    except ValueError:
        return [_death(item, status)]
    convert = item.config.hook.pytest_report_from_serializable
    return [convert(config=item.config, data=data) for data in serialized]


def _run_in_child(item: pytest.Item, nextitem: pytest.Item | None, writer: int) -> None:
    try:
        # No next item: what module fixtures set up in this child is torn down in it as well.
        reports = runtestprotocol(item, log=False, nextitem=None)
        convert = item.config.hook.pytest_report_to_serializable
        data = [convert(config=item.config, report=report) for report in reports]
        with os.fdopen(writer, "w") as stream:
            stream.write(json.dumps(data, default=str))
    finally:
        os._exit(0)


def _read_until(reader: int, deadline: float, child: int) -> str:
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            return ""
        part = os.read(reader, 65536)
        if not part:
            return b"".join(parts).decode()
        parts.append(part)


def _death(item: pytest.Item, status: int) -> pytest.TestReport:
    if os.WIFSIGNALED(status):
        what = f"died of {signal.Signals(os.WTERMSIG(status)).name}"
    else:
        what = f"ended with status {os.WEXITSTATUS(status)} and no report"
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={},
        outcome="failed",
        longrepr=f"the process {what} (limit {TIMEOUT:.0f} s)",
        when="call",
        sections=[],
        duration=0.0,
    )
