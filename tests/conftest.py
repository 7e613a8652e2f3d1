"""What all tests share: a clean slate between tests, and expected outputs kept as files."""

from __future__ import annotations

import datetime
import difflib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Nothing that a test compiles stays, and none finds what an earlier one has left.
os.environ["STATOR_CACHE"] = "off"
# Inductor tries the C++ compiler with each vector extension of the processor, in processes that import torch: a minute
# of a core for each empty cache, and half of it for each process that compiles. What Stator does with the code that
# Inductor makes is the same without; `tests/soundness/steps/test_parts_for_backends.py` has it with them.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")

# Which share of the largest grids runs: another one each day, or "all". Processes that share a run are given it.
os.environ.setdefault("STATOR_SWEEP", str(datetime.date.today().toordinal() % 10))

BLESS = os.environ.get("STATOR_BLESS") == "1"
GOLDEN = Path(__file__).parent / "golden"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    if exitstatus:
        terminalreporter.write_line(f"STATOR_SWEEP={os.environ['STATOR_SWEEP']} runs these again")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What forks comes first: a child can't go back once its parent has, behind a FakeTensorMode (PyTorch's engine
    has started threads then)."""
    fuzz = Path(__file__).parent / "fuzz"
    items.sort(key=lambda item: fuzz not in item.path.parents)


_LOG_RECORDS = logging.getLogRecordFactory()
_ENDED = signal.getsignal(signal.SIGTERM)
_INTERRUPTED = signal.getsignal(signal.SIGINT)


@pytest.fixture(autouse=True, scope="module")
def _what_packages_change_is_put_back() -> Iterator[None]:
    """Ray has log records made by a function of its own, and handles signals."""
    logging.setLogRecordFactory(_LOG_RECORDS)
    yield
    logging.setLogRecordFactory(_LOG_RECORDS)
    signal.signal(signal.SIGTERM, _ENDED)


@pytest.fixture(autouse=True)
def _signals_are_heard() -> Iterator[None]:
    """Whoever presses Ctrl-C behind a test is heard: Stator lets signals wait while it is at work."""
    yield
    assert signal.getsignal(signal.SIGINT) == _INTERRUPTED
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    # CPython refuses this in all threads but the one that handles signals.
    signal.set_wakeup_fd(signal.set_wakeup_fd(-1))


@pytest.fixture(autouse=True)
def _no_log_left_on() -> Iterator[None]:
    yield
    stator = sys.modules.get("stator")  # Corpora also run without it (tests/differential).
    if stator is not None:
        stator.set_logs(all=False)


@pytest.fixture(autouse=True)
def _registered_backends_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    backends = sys.modules.get("stator._backends")
    if backends is not None:
        monkeypatch.setattr(backends, "_registered", dict(backends._registered))
        monkeypatch.setattr(backends, "_slow", set(backends._slow))


@pytest.fixture(autouse=True, scope="session")
def _small_traces_are_replayed_and_bugs_raised() -> Iterator[None]:
    """Most tests look at replays of functions that are too small to gain anything by them."""
    stator = sys.modules.get("stator")
    if stator is None:
        yield
        return
    with stator.config.patch(skip_unprofitable=False, strict=True):
        yield


@pytest.fixture(autouse=True, scope="session")
def _this_thread_has_logged() -> None:
    """From CPython 3.13.4 on a thread's first log record leaves a mark, so the next call is recorded once more."""
    if (mark := getattr(logging.Logger, "_tls", None)) is not None:
        mark.in_progress = False


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """`golden("errors", text)` compares with `tests/golden/errors.txt`; `make bless` rewrites it."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if BLESS:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        expected = path.read_text() if path.exists() else ""
        difference = difflib.unified_diff(
            expected.splitlines(), text.splitlines(), str(path), "this run", lineterm=""
        )
        assert text == expected, "\n".join(difference)

    return check
