"""Calls of PyTorch's operators, made from their schemas: for those that the operator database doesn't call.

`schema_samples.txt` names the recipe with which each overload can be called, or why it can't. It is written anew by

    python -m soundness.schema_samples       # in tests/; some operators end the process that calls them
"""

from __future__ import annotations

import functools
import gc
import itertools
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stator import _stator

LIST = Path(__file__).with_name("schema_samples.txt")
HEAD = """# Written by schema_samples.py: overloads that the operator database doesn't call.
# A line names an overload, then the recipe of its arguments, or why there is none.
"""
SECONDS = 4.0

SHAPES = [(), (3,), (3, 3), (2, 3, 4), (1, 2, 4, 4), (1, 2, 3, 3, 3)]
DTYPES = [torch.float32, torch.int64, torch.bool]
# Parameters that hold a number for each channel.
CHANNELS = "weight bias running_mean running_var save_mean save_var save_invstd mean rstd".split()
INDICES = "index indices target offsets offset2bag bag_size maximum_indices seqlen lengths".split()
# Lists of integers for which windows of one element leave all sizes as they are.
ZEROS = "padding output_padding pad pads start_dim storage_offset".split()
TEXTS = ["none", "mean", "sum", "trunc", "floor", "nearest", "constant", "L"]


class Recipe(NamedTuple):
    """How arguments are made."""

    shape: int = 0
    dtype: int = 0
    # Whether there is one number for each channel, where names ask for that.
    channels: int = 0
    # Whether optional tensors are given.
    given: int = 0
    integer: int = 1
    text: int = 0


def recipes() -> Iterator[Recipe]:
    choices = (range(len(SHAPES)), range(len(DTYPES)), (0, 1), (0, 1), (1, 0, 2), (0,))
    yield from (Recipe(*choice) for choice in itertools.product(*choices))
    texts = (range(len(SHAPES)), (0,), (0,), (0,), (1,), range(1, len(TEXTS)))
    yield from (Recipe(*choice) for choice in itertools.product(*texts))


def tensor(name: str, recipe: Recipe) -> Tensor:
    shape, dtype = SHAPES[recipe.shape], DTYPES[recipe.dtype]
    if recipe.channels and name in CHANNELS:
        shape = shape[1:2] or shape
    if name == "total_weight":
        shape = ()
    if recipe.channels and name in INDICES:
        return torch.zeros(shape[:1], dtype=torch.int64)
    if name in INDICES:
        return torch.zeros(shape, dtype=torch.int64)
    numbers = torch.arange(1.0, 1.0 + torch.Size(shape).numel()).reshape(shape)
    return (numbers / 8).to(dtype) if dtype.is_floating_point else (numbers % 3).to(dtype)


def integers(name: str, recipe: Recipe, count: int) -> list[int]:
    shape = SHAPES[recipe.shape]
    if name in ZEROS:
        return [0] * (count if name != "pad" or count else 2 * max(len(shape) - 2, 1))
    if name == "output_size":
        return list(shape[2:]) or [1]
    if name == "normalized_shape":
        return list(shape[-1:])
    if name == "output_mask":
        return [1] * count
    if any(part in name for part in ("size", "shape")) and "kernel" not in name:
        return list(shape)
    return [recipe.integer] * (count or max(len(shape) - 2, 1))


def argument(parameter: Any, recipe: Recipe) -> Any:
    """The argument for a parameter of a schema."""
    name, written = parameter.name, str(parameter.type)
    if parameter.has_default_value():
        return parameter.default_value
    if written.startswith("Optional["):
        if "Tensor" in written and recipe.given:
            written = written.removeprefix("Optional[").removesuffix("]")
        else:
            return None
    match written:
        case "Tensor":
            return tensor(name, recipe)
        case "List[Tensor]" | "List[Optional[Tensor]]":
            return [tensor(name, recipe), tensor(name, recipe)]
        case "List[int]" | "List[SymInt]":
            return integers(name, recipe, parameter.N or 0)
        case "List[bool]":
            return [True] * (parameter.N or 1)
        case "List[float]":
            return [1.0] * (parameter.N or max(len(SHAPES[recipe.shape]) - 2, 1))
        case "List[number]":
            return [1.0, 1.0]
        case "int" | "SymInt":
            return 0 if name in ZEROS or "dim" in name else recipe.integer
        case "number":
            return recipe.integer
        case "float":
            return 0.5
        case "bool":
            return bool(recipe.given)
        case "str":
            return TEXTS[recipe.text]
        case _:
            raise TypeError(f"nothing is made for {written}")


def arguments(overload: Any, recipe: Recipe) -> tuple[tuple[Any, ...], dict[str, Any]]:
    parameters = overload._schema.arguments
    positional = [it for it in parameters if not it.kwarg_only]
    # `dtype` and such aren't asked for; numbers that must be named are.
    named = [it for it in parameters if it.kwarg_only and not it.has_default_value()]
    named = [it for it in named if not str(it.type).startswith("Optional[")]
    return (
        tuple(argument(it, recipe) for it in positional),
        {it.name: argument(it, recipe) for it in named},
    )


def overloads() -> Iterator[Any]:
    """Those that the table takes as determined, of operators that the database doesn't call."""
    from soundness.operator_database import operator_database

    covered = set()
    for op in operator_database():
        bare = op.name.removeprefix("nn.functional.")
        covered |= {op.aten_name, op.name, bare, bare.replace(".", "_")}
        if op.inplace_variant is not None:
            covered.add(getattr(op.inplace_variant, "__name__", ""))
    names = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
    packets = {name.removeprefix("aten::").partition(".")[0] for name in names}
    for name in sorted(packets - covered):
        determined = _stator._operation("torch.ops.aten", name)
        if determined in (None, "Never", "ReadsData", "Unusual"):
            continue
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            found = getattr(packet, overload)
            makes = any("Tensor" in str(result.type) for result in found._schema.returns)
            if "out" not in overload.split("_") and "Dimname" not in str(found._schema) and makes:
                yield found


def find(overload: Any) -> str:
    """The recipe with which an overload can be called, or why there is none."""
    last = "no recipe"
    for recipe in recipes():
        try:
            args, kwargs = arguments(overload, recipe)
            overload(*args, **kwargs)
        except TypeError as error:
            return f"- {error}".splitlines()[0][:100]
        except Exception as error:
            last = f"{type(error).__name__}: {error}".splitlines()[0]
            if "Could not run" in last or "not compiled with" in last:
                return "- no kernel for the CPU"
            continue
        return " ".join(map(str, recipe))
    return f"- {last[:100]}"


def apart(work: Callable[[], str]) -> str:
    """What some work says, done in a process of its own; how that ended, if not well."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = "- it ends the process"
        # A pool of threads that the parent has started isn't there any more.
        torch.set_num_threads(1)
        try:
            said = work()
        finally:
            os.write(write, said.encode()[:4000])
            os._exit(0)
    os.close(write)
    ready, _, _ = select.select([read], [], [], SECONDS)
    said = os.read(read, 4096).decode() if ready else f"- it takes more than {SECONDS:.0f} s"
    os.close(read)
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return said or "- it ends the process"


def used(overload: Any) -> str:
    """As `find`, of what can be called again and again with the recipe: some write where they shouldn't."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    os.dup2(sys.stderr.fileno(), 2)
    found = find(overload)
    if found[0] != "-":
        for _ in range(20):
            args, kwargs = arguments(overload, Recipe(*map(int, found.split())))
            overload(*args, **kwargs)
            gc.collect(0)
    return found


def listed() -> Iterator[tuple[str, str]]:
    """The lines of the list: overload, and recipe or reason."""
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            yield name, rest


def main() -> None:
    began = time.monotonic()
    lines = []
    for overload in overloads():
        said = apart(functools.partial(used, overload))
        lines.append(f"{overload.name()} {said}")
    LIST.write_text(HEAD + "\n".join(line.removeprefix("aten::") for line in lines) + "\n")
    made = sum(" - " not in line for line in lines)
    print(f"{made} of {len(lines)} overloads in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
