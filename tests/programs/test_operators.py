"""Programs of one operation each, over PyTorch's operator database, compared with plain PyTorch.

An operation either becomes a program whose results are PyTorch's, types included, or is refused by
name. Nothing in between.
"""

from __future__ import annotations

import collections
import itertools
import os
import random
import time
import warnings
from typing import Any

import torch
from soundness.operator_database import operator_database
from soundness.tensors.test_determined import leaves

from stator.errors import ProgramError
from stator.programs import TensorProgram, TensorSpec

SAMPLES = 1
# All of them take minutes: STATOR_ALL_OPERATORS=1.
SECONDS = float("inf") if os.environ.get("STATOR_ALL_OPERATORS") else 25.0

# Results that are whatever the memory held.
UNDETERMINED = ("empty", "new_empty")

# What a program is refused for; any other reason is a bug.
REFUSALS = {
    "SB001",  # a Python function of the database's own
    "SB002",  # data is read
    "SB003",  # a shape that depends on data
    "SB006",
    "SB012",
    "SB021",  # statistics are written
    "SB023",  # private, or in the table of what programs may not use
}


def test_operators() -> None:
    compared, refused = 0, collections.Counter[str]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        operators = list(operator_database())
        random.Random(1).shuffle(operators)
        end = time.monotonic() + SECONDS
        for operator in operators:
            if time.monotonic() > end:
                break
            if torch.float32 in operator.dtypes:
                samples = operator.sample_inputs("cpu", torch.float32)
                for sample in itertools.islice(samples, SAMPLES):
                    try:
                        compared += compare(operator, sample)
                    except ProgramError as error:
                        refused[error.id] += 1
    print(f"{compared} operations compared, refused: {dict(refused)}")
    assert compared > refused.total()
    assert refused.keys() <= REFUSALS


def compare(operator: Any, sample: Any) -> bool:
    """Whether the sample could be compared."""
    given = (sample.input, sample.args, sample.kwargs)
    tensors = [leaf for leaf in leaves(given) if isinstance(leaf, torch.Tensor)]
    if any(tensor.layout != torch.strided for tensor in tensors):
        return False
    positions = {id(tensor): index for index, tensor in enumerate(tensors)}

    def fn(*passed: Any) -> Any:
        return operator.op(
            pick(marked[0], passed), *pick(marked[1], passed), **pick(marked[2], passed)
        )

    marked = [mark(part, positions) for part in given]
    fresh = [tensor.detach().clone() for tensor in tensors]
    try:
        torch.manual_seed(0)
        expected = fn(*fresh)
    except Exception:
        return False  # the sample isn't for everybody
    program = TensorProgram.trace(
        fn, tuple(TensorSpec(tensor.dtype, tuple(tensor.shape)) for tensor in tensors)
    )
    torch.manual_seed(0)
    outputs = program(*[tensor.detach().clone() for tensor in tensors])
    wanted = [leaf for leaf in leaves(expected) if leaf is not None]
    assert len(outputs) == len(wanted), operator.name
    for output, want, spec in zip(outputs, wanted, program.outputs, strict=True):
        want = want if isinstance(want, torch.Tensor) else torch.tensor(want)
        # Data decide some sizes: these aren't known.
        sizes = zip(output.shape, spec.shape, strict=True)
        assert output.dtype == spec.dtype, operator.name
        assert all(known in (None, size) for size, known in sizes), operator.name
        assert (output.dtype, output.shape) == (want.dtype, want.shape), operator.name
        if not operator.name.startswith(UNDETERMINED):
            torch.testing.assert_close(output, want.detach(), rtol=0, atol=0, equal_nan=True)
    assert TensorProgram.from_bytes(program.to_bytes()).text == program.text
    return True


class Tensor:
    """Stands for a tensor in arguments."""

    def __init__(self, index: int) -> None:
        self.index = index


def mark(value: Any, positions: dict[int, int]) -> Any:
    if isinstance(value, torch.Tensor):
        return Tensor(positions[id(value)])
    if type(value) is list:
        return [mark(item, positions) for item in value]
    if type(value) is tuple:
        return tuple(mark(item, positions) for item in value)
    if type(value) is dict:
        return {key: mark(item, positions) for key, item in value.items()}
    return value


def pick(value: Any, passed: Any) -> Any:
    if isinstance(value, Tensor):
        return passed[value.index]
    if type(value) is list:
        return [pick(item, passed) for item in value]
    if type(value) is tuple:
        return tuple([pick(item, passed) for item in value])
    if type(value) is dict:
        return {key: pick(item, passed) for key, item in value.items()}
    return value
