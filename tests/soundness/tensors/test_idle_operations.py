"""Operations that only give an argument back are left out of replays, as long as that is what they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stator


def moves(x: Tensor) -> Tensor:
    return x.to("cpu").contiguous().to(torch.float32).float().type_as(x) + 1


def drops(x: Tensor) -> Tensor:
    y = F.dropout(x, 0.5, False)
    y = F.dropout(y, p=0.5, training=False, inplace=False)
    return torch.dropout(y, 0.0, True).real.resolve_conj() * 2


def is_itself(x: Tensor) -> tuple[bool, Tensor]:
    y = x.contiguous()
    return y is x, y.to(y.dtype)


def as_asked(x: Tensor, drop: nn.Module) -> Tensor:
    y = drop(x) + 1
    return drop(y.mul(2).contiguous())


def changed_behind(x: Tensor) -> Tensor:
    y = x.clone()
    y.contiguous().add_(1)
    return y.to(torch.float32).mul_(3)


def events(call: Callable[[], Any]) -> set[str]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    return {event.name for event in profile.events()}


@pytest.mark.parametrize("function", [moves, drops, is_itself, changed_behind])
def test_recorded_replayed_and_with_other_tensors(function: Callable[[Tensor], Any]) -> None:
    compiled = stator.compile(function)
    given = [torch.randn(3, 4) for _ in range(3)]
    # These are to be changed indeed: laid out otherwise, of other types.
    given += [torch.randn(4, 3).t(), torch.randn(3, 4).double(), torch.randn(3, 4).half()]
    given += [torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, 6).t()]
    for x in given:
        plain, ours = function(x.clone()), compiled(x.clone())
        torch.testing.assert_close(ours, plain, rtol=0, atol=0)
        assert stator.stats(compiled).breaks == 0
    assert stator.stats(compiled).hits > 1


def test_they_are_left_out() -> None:
    x = torch.randn(3, 4)
    names = {"aten::contiguous", "aten::type_as", "aten::dropout", "aten::resolve_conj"}
    for function in (moves, drops):
        compiled = stator.compile(function)
        for _ in range(3):
            compiled(x)
        assert events(lambda function=function: function(x)) & names
        assert not events(lambda compiled=compiled: compiled(x)) & names


def test_a_module_that_begins_to_drop() -> None:
    for kind in (nn.Dropout, nn.AlphaDropout, nn.FeatureAlphaDropout):
        drop = kind(0.5).eval()
        compiled = stator.compile(as_asked)
        for step in range(8):
            drop.train(step in (3, 4, 6))
            drop.p = 0.0 if step == 6 else 0.5
            x = torch.randn(3, 4)
            torch.manual_seed(step)
            plain, behind = as_asked(x, drop), torch.rand(1)
            torch.manual_seed(step)
            assert torch.equal(compiled(x, drop), plain)
            assert torch.equal(torch.rand(1), behind)
        assert stator.stats(compiled).breaks == 0


def test_in_place() -> None:
    def function(x: Tensor, training: bool) -> Tensor:
        return F.dropout(x.relu(), 0.5, training, True) + F.dropout(x, 1.0, training, inplace=True)

    compiled = stator.compile(function)
    for training in (False, False, True, True, False):
        a, b = torch.randn(9), torch.randn(9)
        b.copy_(a)
        torch.manual_seed(1)
        plain = function(a, training)
        torch.manual_seed(1)
        assert torch.equal(compiled(b, training), plain)
        assert torch.equal(a, b)


def test_a_value_that_dies_with_one() -> None:
    def function(x: Tensor) -> Tensor:
        x.exp().contiguous()
        return x.sin().contiguous().cos()

    compiled = stator.compile(function)
    for _ in range(3):
        x = torch.randn(3)
        assert torch.equal(compiled(x), function(x))


@pytest.mark.parametrize("raises", [False, True])
def test_labels_end_quietly(raises: bool) -> None:
    def function(x: Tensor) -> Tensor:
        with torch.profiler.record_function("a label"):
            y = x + 1
            if raises and x.shape[0] == 4:
                raise ValueError(x.shape)
        return y

    compiled = stator.compile(function)
    for size in (3, 3, 4, 3):
        x = torch.randn(size)
        try:
            plain: Any = function(x)
        except ValueError as error:
            plain = repr(error)
        try:
            ours: Any = compiled(x)
        except ValueError as error:
            ours = repr(error)
        assert ours == plain if isinstance(plain, str) else torch.equal(ours, plain)
        assert torch._C._is_torch_function_enabled()
    assert "a label" in events(lambda: compiled(torch.randn(3)))
