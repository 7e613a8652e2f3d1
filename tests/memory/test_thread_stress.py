"""Many threads record and replay for `STATOR_STRESS_SECONDS` (20), in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from differential.support import api

import stator

SECONDS = float(os.environ.get("STATOR_STRESS_SECONDS", "20"))
PROGRAM = Path(__file__).with_name("thread_stress.py")


@pytest.mark.skipif(api.PLAIN, reason="it asks for statistics")
def test_stress() -> None:
    command = [sys.executable, str(PROGRAM), str(SECONDS)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 300)
    # Where the threads wait for each other, what each of them does.
    assert ended.returncode == 0, ended.stderr


# A collection wherever one may start, and then another thread's turn.
COLLECTIONS = """
import faulthandler, gc, threading, time
import torch, stator

def run():
    x = torch.ones(3)
    for k in range(20):
        own = stator.compile(lambda v: v * k + torch.rand(3))
        own(x), own(x)

faulthandler.dump_traceback_later(60, exit=True)
gc.callbacks.append(lambda phase, info: time.sleep(0))
gc.set_threshold(1, 1000, 1000)
threads = [threading.Thread(target=run) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.skipif(api.PLAIN, reason="nothing is recorded")
def test_threads_in_collections() -> None:
    command = [sys.executable, "-c", COLLECTIONS]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr


@stator.allow_in_graph
def reset_meanwhile(x: torch.Tensor) -> torch.Tensor:
    """Another thread resets the function that is being recorded, once."""
    while RESETS:
        thread = threading.Thread(target=RESETS.pop())
        thread.start()
        thread.join()
    return x * 2


RESETS: list[Any] = []


@pytest.mark.skipif(api.PLAIN, reason="it asks for statistics")
def test_a_reset_while_a_call_is_recorded() -> None:
    compiled = stator.compile(lambda x: reset_meanwhile(x) + 1)
    x = torch.ones(3)
    RESETS.append(compiled.reset)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            assert torch.equal(compiled(x), x * 2 + 1)
    told = stator.stats(compiled)
    assert (told.traces, told.entries, told.hits) == (1, 1, 2)
