"""What the tests of tensor programs share."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from stator.programs import TensorProgram, TensorSpec

F32 = torch.float32
I64 = torch.int64
PACKAGE = str(Path(torch.__file__).parent)


def spec(*sizes: int | None, dtype: torch.dtype = F32) -> TensorSpec:
    return TensorSpec(dtype, sizes)


def tensors(tree: Any) -> list[torch.Tensor]:
    """The tensors of a result, with numbers as scalars."""
    if isinstance(tree, torch.Tensor):
        return [tree.detach()]
    if isinstance(tree, (bool, int, float)):
        return [torch.tensor(tree)]
    items = tree.values() if isinstance(tree, dict) else tree
    return [tensor for item in items for tensor in tensors(item)]


def check(program: TensorProgram, fn: Callable[..., Any], *args: Any) -> None:
    """The program gives what plain Python does, and so does the one that was sent elsewhere."""
    expected = tensors(fn(*args))
    flat = tensors(args)
    again = TensorProgram.from_bytes(program.to_bytes())
    assert again.text == program.text
    for each in (program, again):
        outputs = each(*flat)
        assert len(outputs) == len(expected) == len(program.outputs)
        for output, want, ty in zip(outputs, expected, program.outputs, strict=True):
            torch.testing.assert_close(output, want, rtol=0, atol=0, equal_nan=True)
            assert not output.requires_grad
            assert output.dtype == ty.dtype
            assert len(output.shape) == len(ty.shape)
            for size, declared in zip(output.shape, ty.shape, strict=True):
                assert declared in (None, size)


def frames(error: BaseException) -> list[tuple[str, str]]:
    """The functions that a traceback names, and the lines."""
    found = traceback.extract_tb(error.__traceback__)
    return [(frame.name, frame.line or "") for frame in found]


def random(*specs: TensorSpec, size: int = 3) -> Sequence[torch.Tensor]:
    """Inputs of these types."""
    generator = torch.Generator().manual_seed(size)
    found = []
    for each in specs:
        sizes = [size if known is None else known for known in each.shape]
        if each.dtype.is_floating_point:
            found.append(torch.randn(sizes, dtype=each.dtype, generator=generator))
        elif each.dtype == torch.bool:
            found.append(torch.randint(0, 2, sizes, generator=generator).bool())
        else:
            found.append(torch.randint(0, 3, sizes, dtype=each.dtype, generator=generator))
    return found
