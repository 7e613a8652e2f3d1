"""Makes the sibling test packages importable, and lets each test run in a process of its own."""

import sys
from pathlib import Path

_TESTS = str(Path(__file__).resolve().parent.parent)
if _TESTS not in sys.path:
    sys.path.insert(0, _TESTS)

from differential.support.forked import pytest_runtest_protocol  # noqa: E402, F401
