"""Many threads record and replay for `STATOR_STRESS_SECONDS` (20), in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from differential.support import api

SECONDS = float(os.environ.get("STATOR_STRESS_SECONDS", "20"))
PROGRAM = Path(__file__).with_name("thread_stress.py")


@pytest.mark.skipif(api.PLAIN, reason="it asks for statistics")
def test_stress() -> None:
    command = [sys.executable, str(PROGRAM), str(SECONDS)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 300)
    # Where the threads wait for each other, what each of them does.
    assert ended.returncode == 0, ended.stderr
