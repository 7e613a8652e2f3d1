"""Shape rules over PyTorch's operator database.

Each operation runs on every sample of its own, several sizes each, in one function compiled with
all sizes as symbols: so a sample is recorded where no trace before it serves its sizes, and replayed
where one does. Sizes, dtypes and (where they are determined) values must be plain PyTorch's. A rule
that disagrees with the recorded call fails the test; what has none is counted.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from soundness.operator_database import operator_database
from soundness.tensors.test_determined import leaves
from torch import Tensor
from torch.utils._pytree import tree_map

import stator

SAMPLES = 6
SHARDS = 2
# Every third operator; all of them take minutes: STATOR_ALL_OPERATORS=1.
STEP = 1 if os.environ.get("STATOR_ALL_OPERATORS") else 3

# Results that are random, or whatever the memory held.
UNDETERMINED = re.compile(
    r"empty|rand|dropout|multinomial|bernoulli|cauchy|exponential|geometric|normal|uniform|svd|eig|qr|"
    r"lstsq|pca_lowrank|rrelu|fractional|alpha"
)


class Lines(logging.Handler):
    """What the `dynamic` log says."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def log() -> Iterator[Lines]:
    handler = Lines()
    logger = logging.getLogger("stator.dynamic")
    logger.addHandler(handler)
    propagate, logger.propagate = logger.propagate, False
    stator.set_logs(dynamic=True)
    yield handler
    stator.set_logs(dynamic=False)
    logger.propagate = propagate
    logger.removeHandler(handler)


def shown(value: Any, with_values: bool) -> Any:
    found = []
    for leaf in leaves(value):
        if isinstance(leaf, Tensor):
            is_plain = with_values and leaf.layout == torch.strided and not leaf.is_quantized
            values = leaf.detach().clone() if is_plain else None
            found.append((tuple(leaf.shape), leaf.dtype, values))
        else:
            found.append(leaf)
    return found


def same(left: Any, right: Any) -> bool:
    if isinstance(left, str) or isinstance(right, str):
        return bool(left == right)
    if len(left) != len(right):
        return False
    for a, b in zip(left, right, strict=True):
        if not isinstance(a, tuple):
            if a != b and a == a:
                return False
        elif a[:2] != b[:2] or (
            a[2] is not None
            and not torch.allclose(
                a[2].to(torch.complex128), b[2].to(torch.complex128), atol=1e-4, equal_nan=True
            )
        ):
            return False
    return True


def run(function: Any, arguments: Any, keywords: Any, with_values: bool) -> Any:
    torch.manual_seed(0)
    copies = tree_map(
        lambda value: value.detach().clone() if isinstance(value, Tensor) else value,
        (arguments, keywords),
    )
    try:
        return shown(function(*copies[0], **copies[1]), with_values)
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("shard", range(SHARDS))
def test_rules_agree_with_pytorch(shard: int, log: Lines, capsys: Any) -> None:
    problems: list[str] = []
    ruled: list[str] = []
    unruled: list[str] = []
    chosen = operator_database()[::STEP][shard::SHARDS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in chosen:
            if not op.supports_dtype(torch.float32, "cpu"):
                continue
            try:
                samples = list(itertools.islice(op.sample_inputs("cpu", torch.float32), SAMPLES))
            except Exception:
                continue
            with_values = not UNDETERMINED.search(op.name)

            def function(*args: Any, op: Any = op, **kwargs: Any) -> Any:
                return op.op(*args, **kwargs)

            compiled = stator.compile(function, dynamic=True, recompile_limit=64)
            log.lines.clear()
            for index, sample in enumerate(samples):
                arguments = (sample.input, *sample.args)
                expected = run(function, arguments, sample.kwargs, with_values)
                found = run(compiled, arguments, sample.kwargs, with_values)
                if not same(expected, found):
                    problems.append(f"{op.name}, sample {index}: {expected} != {found}"[:300])
                    break
            problems += [f"{op.name}: {line}" for line in log.lines if "doesn't agree" in line]
            lacks = any("has no shape rule" in line for line in log.lines)
            (unruled if lacks else ruled).append(op.name)
    with capsys.disabled():
        done = len(ruled) + len(unruled)
        print(f"\nshape rules: {len(ruled)} of {done} operators; none for: {' '.join(unruled)}")
    assert not problems, "\n".join(problems)
    assert len(ruled) > len(unruled)
