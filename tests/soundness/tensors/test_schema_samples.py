"""Operators that PyTorch's database has no samples of, called with arguments made from their schemas.

Each is recorded and replayed, with the same data and with other data of the same metadata: results and what is written are plain
Python's. CI takes a rotating tenth (`STATOR_SWEEP`), `make test-sweep` all.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from soundness import schema_samples
from soundness.operator_database import copied
from soundness.pinned import is_pinned
from soundness.schema_samples import Recipe, apart, arguments, listed

ALL = os.environ["STATOR_SWEEP"] == "all"
SHARDS = 10
LINES = [(name, Recipe(*map(int, rest.split()))) for name, rest in listed() if rest[0] != "-"]
TODAY = 0 if ALL else int(os.environ["STATOR_SWEEP"])


def other_data(value: Any, variant: int) -> Any:
    """The same metadata with other contents, within the range of the old ones."""
    if not isinstance(value, Tensor) or not value.numel():
        return value
    if value.dtype.is_floating_point:
        return value * 0.5 + 0.25 * variant
    return value.flip(0) if value.dim() else value


def outcome(function: Any, args: Any, kwargs: Any) -> tuple[str, list[Any]]:
    """How a call ends, and all tensors of its results and arguments behind it."""
    torch.manual_seed(0)
    try:
        result = function(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}", tree_flatten((args, kwargs))[0]
    return "", tree_flatten((result, args, kwargs))[0]


def same(left: Any, right: Any) -> bool:
    if not isinstance(left, Tensor):
        return bool(left == right)
    if left.layout != torch.strided or left.is_quantized:
        return left.layout == right.layout
    facts = [(it.shape, it.dtype, it.stride(), it.requires_grad) for it in (left, right)]
    return facts[0] == facts[1] and _equal(left, right)


def _equal(left: Tensor, right: Tensor) -> bool:
    if left.dtype.is_floating_point or left.dtype.is_complex:
        left, right = left.nan_to_num(), right.nan_to_num()
    return torch.equal(left, right)


def undetermined(overload: Any, args: Any, kwargs: Any) -> bool:
    """Whether two plain calls differ: some operators leave memory as they find it."""
    first = outcome(overload, *copied((args, kwargs)))
    again = outcome(overload, *copied((args, kwargs)))
    return first[0] != again[0] or not all(map(same, first[1], again[1]))


def problems(name: str, recipe: Recipe) -> Iterator[str]:
    packet, _, overload_name = name.partition(".")
    overload = getattr(getattr(torch.ops.aten, packet), overload_name or "default")

    def function(*args: Any, **kwargs: Any) -> Any:
        return overload(*args, **kwargs)

    args, kwargs = arguments(overload, recipe)
    if undetermined(overload, args, kwargs):
        return
    compiled = api.compile(function)
    for variant in (0, 0, 1, 2):
        given = (
            tree_map(lambda it: other_data(it, variant), (args, kwargs))
            if variant
            else (args, kwargs)
        )  # noqa: B023
        if undetermined(overload, *given):
            continue
        expected, found = outcome(function, *copied(given)), outcome(compiled, *copied(given))
        if expected[0] != found[0]:
            yield f"{name}: {found[0]!r}, not {expected[0]!r}"
        elif not all(map(same, found[1], expected[1])):
            yield f"{name}: other values in call {variant}"


@pytest.mark.skipif(api.PLAIN, reason="asks what is recorded")
@pytest.mark.parametrize("shard", range(SHARDS) if ALL else [TODAY])
def test_operators_without_samples(shard: int) -> None:
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, recipe in LINES[shard::SHARDS]:
            said = apart(lambda: "\n".join(problems(name, recipe)) or "fine")  # noqa: B023
            if said != "fine":
                found.append(f"{name}: {said}")
    assert not found, "\n".join(found)


@pytest.mark.skipif(api.PLAIN, reason="asks the table")
def test_the_list_is_complete() -> None:
    """Each overload that the table takes as determined is called by the database, or listed."""
    names = [name for name, _ in listed()]
    wanted = [overload.name().removeprefix("aten::") for overload in schema_samples.overloads()]
    said = "write it anew: python -m soundness.schema_samples"
    if is_pinned():
        assert names == wanted, said
    assert set(names) >= set(wanted), said
    assert len(LINES) > 0.75 * len(names)
