"""Training steps as people write them: equal to plain ones to the bit, with as many traces and breaks as written down.

`tests/golden/training_styles.txt` has the numbers, and the reasons of the breaks that are left.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn, optim

from ..pinned import is_pinned
from .styles import STYLES, batch

# So many steps begin cold, and so many more follow when all traces were dropped.
COLD, WARM = 8, 4


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_num_threads(before)


def copied(it: Any) -> Any:
    """What can be compared of parameters, gradients, states and results."""
    if isinstance(it, Tensor):
        data = it.detach()
        data = data.to_dense() if data.is_sparse else data.clone()
        gradient = copied(it.grad) if it.is_leaf and it.grad is not None else None
        return data, it.requires_grad, gradient
    if isinstance(it, nn.Module):
        return [copied(part) for part in (*it.parameters(), *it.buffers())]
    if isinstance(it, optim.Optimizer):
        kept = it.state_dict()
        return copied([list(kept["state"].items()), kept["param_groups"]])
    if hasattr(it, "state_dict"):
        return copied({name: value for name, value in it.state_dict().items()})
    if isinstance(it, dict):
        return [(str(key), copied(value)) for key, value in it.items()]
    if isinstance(it, (list, tuple, deque)):
        return [copied(part) for part in it]
    return None if callable(it) else it


def same(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        is_like = left.dtype == right.dtype and left.shape == right.shape
        return is_like and torch.equal(left.nan_to_num(), right.nan_to_num())
    if isinstance(left, (list, tuple)):
        is_like = isinstance(right, (list, tuple)) and len(left) == len(right)
        return is_like and all(map(same, left, right))
    return type(left) is type(right) and (left == right or (left != left and right != right))


def play(name: str, wrap: Callable[[Any], Any], warm: Callable[[], None]) -> tuple[list[Any], Any]:
    torch.manual_seed(0)
    step, *watched = STYLES[name]()
    between = [it for it in watched if type(it).__name__ == "function"]
    wrapped, seen = wrap(step), []
    for call in range(COLD + WARM):
        if call == COLD:
            warm()
        for change in between:
            change(call)
        result = wrapped(*batch(call))
        state = [copied(it) for it in watched]
        seen.append((copied(result), state, torch.is_grad_enabled(), torch.get_rng_state()))
    return seen, wrapped


@pytest.mark.parametrize("name", STYLES)
def test_steps_are_plain_ones(name: str) -> None:
    expected, _ = play(name, lambda it: it, lambda: None)
    found, _ = play(name, lambda it: api.compile(it, backend="eager"), lambda: None)
    for call, (left, right) in enumerate(zip(expected, found, strict=True)):
        assert same(left, right), f"step {call}"


class Reasons(logging.Handler):
    """What breaks."""

    def __init__(self) -> None:
        super().__init__()
        self.met: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        lines = record.getMessage().splitlines()
        reason = next((line[:5] for line in lines if line.startswith("SB")), None)
        what = next((line[8:] for line in lines if line.startswith("  What: ")), "")
        if reason is not None:
            self.met[f"{reason} {what.split(' (at ')[0]}"] += 1


def counted() -> str:
    """How often each style was traced and broken, and why."""
    import stator

    handler, logger = Reasons(), logging.getLogger("stator")
    logger.addHandler(handler)
    lines: list[str] = []

    def told(compiled: Any) -> str:
        stats = stator.stats(compiled)
        return f"{stats.traces} traces, {stats.breaks} breaks, {stats.hits} hits"

    for name in STYLES:
        # What PyTorch does once in a process is done.
        play(name, lambda it: it, lambda: None)
        stator.set_logs(graph_breaks=True)
        kept: list[Any] = []

        def wrap(step: Any, kept: list[Any] = kept) -> Any:
            kept.append(api.compile(step, backend="eager"))
            return kept[0]

        def warm(kept: list[Any] = kept) -> None:
            kept.append(told(kept[0]))
            stator.reset()
            handler.met.clear()

        play(name, wrap, warm)
        stator.set_logs(graph_breaks=False)
        lines.append(f"{name}: cold {kept[1]}; warm {told(kept[0])}\n")
        lines += [f"    {count} {reason}\n" for reason, count in sorted(handler.met.items())]
        handler.met.clear()
        stator.reset()
    logger.removeHandler(handler)
    return "".join(lines)


@pytest.mark.skipif(api.PLAIN, reason="plain mode has no statistics")
@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11) or not is_pinned(),
    reason="other interpreters and other PyTorches break elsewhere",
)
def test_traces_and_breaks(golden: Callable[[str, str], None]) -> None:
    """In a process of their own: once `torch.compile` was used in one, PyTorch's optimizers are wrapped."""
    command = [sys.executable, "-m", "soundness.steps.test_training_styles"]
    tests = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, cwd=tests, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    golden("training_styles", done.stdout)


if __name__ == "__main__":
    import stator

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with stator.config.patch(strict=True, skip_unprofitable=False):
        print(counted(), end="")
