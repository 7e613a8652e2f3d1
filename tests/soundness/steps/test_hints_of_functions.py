"""Hooks and other functions that nodes are given, whose annotations are evaluated as they are made."""

# This file must not say `from __future__ import annotations`.

import types
import typing
from collections.abc import Callable
from typing import Any, Literal, Optional, Union

import pytest
import torch
from torch import Tensor

import stator

Step = Callable[[Tensor], Any]
STEPS: dict[str, Step] = {}
HELD = types.SimpleNamespace(hint=Optional[Tensor], factor=2.0)
KEPT: list[Any] = []


def step(function: Step) -> Step:
    STEPS[function.__name__] = function
    return function


def gone_back(x: Tensor, hook: Callable[..., Any]) -> Any:
    y = x * 1
    y.register_hook(hook)
    (y * y).sum().backward()
    return x.grad


@step
def unions_of_classes(x: Tensor) -> Any:
    def hook(grad: Union[Tensor, tuple[Tensor, ...]]) -> Optional[Tensor]:
        return grad * HELD.factor

    return gone_back(x, hook)


@step
def unions_by_operator(x: Tensor) -> Any:
    def hook(grad: Tensor | None, scale: list[int] | None = None) -> Tensor | int | None:
        return grad * HELD.factor

    return gone_back(x, hook)


@step
def hints_of_hints(x: Tensor) -> Any:
    def hook(
        grad: typing.Dict[str, typing.List[Optional[Tensor]]],
        other: Optional[typing.Callable[[Tensor], int]] = None,
        kind: Literal["a", "b"] = "a",
    ) -> Any:
        return grad * HELD.factor

    return gone_back(x, hook)


@step
def a_hint_from_outside(x: Tensor) -> Any:
    def hook(grad: HELD.hint) -> Any:
        return grad * HELD.factor

    return gone_back(x, hook)


@step
def a_hook_that_looks_at_its_hints(x: Tensor) -> Any:
    def hook(grad: Union[Tensor, int]) -> Optional[Tensor]:
        KEPT.append(str(hook.__annotations__))
        return grad * HELD.factor

    return gone_back(x, hook)


@step
def a_hint_that_holds_an_object(x: Tensor) -> Any:
    def hook(grad: typing.Annotated[Tensor, x.shape, []]) -> Any:
        return grad * HELD.factor

    return gone_back(x, hook)


@step
def one_that_is_given_back(x: Tensor) -> Any:
    def hook(grad: Union[Tensor, int]) -> list[Tensor]:
        return grad * HELD.factor

    return gone_back(x, hook), hook.__annotations__, Union[int, str]


def seen(function: Step) -> list[Any]:
    HELD.hint, HELD.factor = Optional[Tensor], 2.0
    KEPT.clear()
    told = []
    for call in range(6):
        if call == 3:
            HELD.factor = 3.0
        if call == 4:
            HELD.hint = Union[Tensor, str]
        x = torch.arange(3.0, requires_grad=True)
        told += [repr(function(x)), repr(x.grad), repr(KEPT)]
    return told


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("skips", [False, True])
def test_hooks_are_plain_pythons(name: str, skips: bool) -> None:
    with stator.config.patch(skip_unprofitable=skips):
        compiled = stator.compile(STEPS[name], backend="eager")
        assert seen(compiled) == seen(STEPS[name])


@pytest.mark.parametrize("name", ["unions_of_classes", "unions_by_operator", "hints_of_hints"])
def test_hints_break_no_graph(name: str) -> None:
    with stator.config.patch(skip_unprofitable=False):
        compiled = stator.compile(STEPS[name], backend="eager")
        seen(compiled)
    stats = stator.stats(compiled)
    assert stats.breaks == 0
    assert stats.hits >= 4
