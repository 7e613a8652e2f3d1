"""Functions with annotations of `typing`'s that are made before a break and called behind it."""

# Annotations are evaluated where a function is defined: no `from __future__ import annotations` here.
import typing
from collections.abc import Iterator
from typing import Any, Callable, Dict, List, Optional, Tuple, Union  # noqa: UP035

import pytest
import torch
from differential.support import api
from torch import Tensor

from .test_special_methods import X, check, show

ALIASES: list[Any] = [Optional[int], Optional[float]]  # noqa: UP007, UP045


class Setting:
    """A class of the program's."""


def optional(x: Tensor) -> Any:
    def step(n: int, scale: Optional[float] = None) -> Optional[Tensor]:  # noqa: UP045
        return x * n if scale is None else x * scale

    show("between")
    return step(2), step(3, 0.5), step.__annotations__


def nested(x: Tensor) -> Any:
    def step(
        parts: List[Tuple[int, ...]],  # noqa: UP006
        done: Union[Dict[str, Setting], None] = None,  # noqa: UP006, UP007
    ) -> Callable[[int], float]:
        return lambda n: n * 0.5 + len(parts)

    y = x + 1
    show("between")
    return y * step([(1, 2)])(3), step.__annotations__


def generators(x: Tensor) -> Any:
    def parts(most: Optional[int]) -> Iterator[Tensor]:  # noqa: UP045
        for n in range(most or 2):
            yield x * n

    show("between")
    return list(parts(None)), typing.get_type_hints(parts)["most"]


def alone(x: Tensor) -> Any:
    kind = Optional[int]  # noqa: UP045
    show("between")
    return x * 2, kind, kind is Optional[int], kind == ALIASES[0]  # noqa: UP045


def from_outside(x: Tensor) -> Any:
    kind = List[ALIASES[0]]  # type: ignore[misc]  # noqa: UP006
    show("between")
    return x * 2, kind


@pytest.mark.parametrize(
    "function", [optional, nested, generators, alone, from_outside], ids=lambda it: it.__name__
)
def test_what_is_behind_is_replayed(function: Any) -> None:
    check(function)


def test_other_types_are_seen() -> None:
    compiled = api.compile(from_outside)
    for kind in (int, int, float, str, int):
        ALIASES[0] = Optional[kind]  # noqa: UP045
        expected, found = from_outside(X), compiled(X)
        assert torch.equal(expected[0], found[0])
        assert found[1] == expected[1]
    ALIASES[0] = Optional[int]  # noqa: UP045
