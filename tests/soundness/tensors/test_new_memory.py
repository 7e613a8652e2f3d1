"""Operators whose schemas say that they write to nothing and give new memory do what they say.

A graph relies on it that may have to take back what it has written: it follows which memory is whose.
"""

from __future__ import annotations

import contextlib
import warnings
from itertools import chain, islice
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

import stator
from soundness.operator_database import calls, more_calls, operator_database
from soundness.schema_samples import Recipe, arguments, listed
from stator import _stator


def tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_flatten(values)[0] if isinstance(value, Tensor)]


def memory(tensor: Tensor) -> set[int]:
    """The addresses of what holds a tensor's data; none if that can't be asked."""
    try:
        return {tensor.untyped_storage().data_ptr()} - {0}
    except (NotImplementedError, RuntimeError):
        return set()


def bits(tensor: Tensor) -> Tensor:
    """What a tensor holds, not-a-numbers too."""
    return tensor.detach().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)


class Watch(TorchDispatchMode):
    """Looks at each operator that is said to give new memory."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.liars: dict[str, str] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        name = func._schema.name.rpartition("::")[2]
        if not _stator._gives_new_memory(name) or func._schema.is_mutable:
            return func(*args, **kwargs)
        given = tensors((args, kwargs))
        plain = [it for it in given if it.layout == torch.strided and not it.is_quantized]
        before = [bits(it).clone() for it in plain]
        result = func(*args, **kwargs)
        self.seen.add(name)
        held = set().union(*map(memory, given)) if given else set()
        if any(memory(it) & held for it in tensors(result)):
            self.liars[name] = "gives an argument's memory"
        if not all(map(torch.equal, before, map(bits, plain))):
            self.liars[name] = "writes to an argument"
        return result


def test_operators_of_the_database() -> None:
    watch = Watch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        some = (islice(calls(op), 12) for op in operator_database())
        for call in chain(*some, more_calls()):
            with watch, contextlib.suppress(Exception):
                call.function(*call.args, **call.kwargs)
    assert not watch.liars
    assert len(watch.seen) > 300


def test_operators_by_their_schemas() -> None:
    watch = Watch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, rest in listed():
            packet, _, overload = name.partition(".")
            if rest[0] == "-" or not _stator._gives_new_memory(packet):
                continue
            function = getattr(getattr(torch.ops.aten, packet), overload or "default")
            args, kwargs = arguments(function, Recipe(*map(int, rest.split())))
            with watch, contextlib.suppress(Exception):
                function(*args, **kwargs)
    assert not watch.liars
    assert len(watch.seen) > 50


def grouped(x: Tensor, weight: Tensor, ends: Tensor, taken: Tensor) -> Tensor:
    """As layers of experts do it: what `_grouped_mm` gives is written, and an index may be out of range behind it."""
    out = torch._grouped_mm(x, weight, offs=ends)
    out.add_(1.0)
    return out[taken]


def counted(x: Tensor, weight: Tensor, ends: Tensor, taken: Tensor) -> Tensor:
    out = torch.histc(weight, 4)
    out.mul_(2.0)
    return out[taken] + x.sum() + ends.sum()


@pytest.mark.parametrize("function", [grouped, counted])
def test_what_is_only_read_is_not_copied(function: Any) -> None:
    x, weight = torch.randn(6, 8), torch.randn(3, 8, 4)
    ends, taken = torch.tensor([2, 4, 6], dtype=torch.int32), torch.tensor([0, 1])
    compiled = stator.compile(function)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(4):
            given = (x * call, weight + call, ends, taken)
            assert torch.equal(compiled(*given), function(*given))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            compiled(x, weight, ends, taken)
        assert "aten::clone" not in {event.name for event in profile.events()}
        with pytest.raises(IndexError):
            compiled(x, weight, ends, taken + 9)
        assert torch.equal(compiled(x, weight, ends, taken), function(x, weight, ends, taken))
    assert stator.stats(compiled).breaks == 0
