"""Clocks, and the backend that costs nothing."""

from __future__ import annotations

import gc
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

# Below this a single call is too short for the clock: calls are timed in batches.
BATCH_SECONDS = 0.002

# So few calls have no minimum worth the name.
TURNS = 10


ROOT = Path(__file__).resolve().parent.parent


def in_a_process(module: str, *arguments: str, timeout: float) -> dict[str, Any] | str:
    """What a module prints as JSON in a process of its own; or, as text, why there is none."""
    try:
        printed = printed_by(
            module, *arguments, timeout=timeout, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1"
        )
    except RuntimeError as error:
        return str(error)
    row: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return row


def printed_by(module: str, *arguments: str, timeout: float, **environment: str) -> str:
    """What a module prints in a process of its own. `RuntimeError` if it fails, or isn't done after
    so many seconds."""
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            timeout=timeout,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not done after {timeout:.0f} s") from None
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        error = RuntimeError(f"failed: {last[0]}")
        error.add_note(done.stderr)
        raise error
    return done.stdout


def single_threaded() -> None:
    """One CPU thread: what is measured is Python and dispatch, not parallel kernels."""
    torch.set_num_threads(1)


def once(call: Callable[[], object], before: Callable[[], object]) -> float:
    """Seconds of one call. `before` runs first: after a garbage collection the caches are cold,
    and no eager figure is taken with cold caches."""
    gc.collect()
    before()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def best(*calls: Callable[[], object], seconds: float = 1.0) -> list[float]:
    """Seconds per call, the minimum, of each of `calls`; they take turns, so that noise on the
    machine hits all of them. Runs for about `seconds` and at least `TURNS` turns, after two calls
    of each to warm up."""
    sizes = [max(1, int(BATCH_SECONDS / max(once(call, call), 1e-9))) for call in calls]
    lowest = [float("inf")] * len(calls)
    end = time.perf_counter() + seconds
    for turn in itertools.count(1):
        for index, (call, size) in enumerate(zip(calls, sizes, strict=True)):
            start = time.perf_counter()
            for _ in range(size):
                call()
            elapsed = (time.perf_counter() - start) / size
            lowest[index] = min(lowest[index], elapsed)
        if turn >= TURNS and time.perf_counter() > end:
            break
    return lowest


def returns_at_once(graph: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
    """A backend whose first call runs the graph; all later calls return what that one returned.

    What is left of a later call is the cost of getting there: arguments, guards, the result's
    containers.
    """
    result: Any = None

    def run(*args: Any) -> Any:
        nonlocal result
        if result is None:
            result = graph.forward(*args)
        return result

    return run
