"""How a corpus file states its cases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import torch

Expect = Literal["graph", "native", "any"]
Fn = TypeVar("Fn", bound=Callable[..., Any])


@dataclass(frozen=True)
class Call:
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def call(*args: Any, **kwargs: Any) -> Call:
    """Arguments with keywords; a plain tuple does for positional ones."""
    return Call(args, kwargs)


@dataclass(frozen=True)
class Case:
    """One function, how to call it, and what to expect.

    `args` is called before every call with a seed that differs from call to call, so the data of
    the tensors differ and their metadata don't. With `keep`, it is called once, and `change`
    receives those arguments. `again` gives other arguments after the change.
    """

    fn: Callable[..., Any]
    args: Callable[[], Any]
    expect: Expect = "graph"
    change: Callable[..., Any] | None = None
    again: Callable[[], Any] | None = None
    keep: bool = False
    grad: bool = False
    build: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.fn.__name__

    def target(self) -> Callable[..., Any]:
        """What is to be compiled: the function, or what it builds."""
        if not self.build:
            return self.fn
        built = self.fn()
        if not callable(built):
            raise TypeError(f"built {built!r}, which nobody can call")
        return built


class Corpus:
    """The cases of one file, in order."""

    def __init__(self) -> None:
        self.cases: dict[str, Case] = {}

    def __call__(self, args: Callable[[], Any], **options: Any) -> Callable[[Fn], Fn]:
        """A decorator that registers the function below it and returns it unchanged."""

        def register(fn: Fn) -> Fn:
            case = Case(fn, args, **options)
            if case.name in self.cases:
                raise ValueError(f"two cases are named {case.name}")
            self.cases[case.name] = case
            return fn

        return register


def t(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    """A tensor of normal deviates, from the seed of this call."""
    value = torch.randn(*shape).to(dtype)
    return value.requires_grad_() if grad else value


def pos(*shape: int, grad: bool = False) -> torch.Tensor:
    """A tensor of values between 0.5 and 1.5."""
    value = torch.rand(*shape) + 0.5
    return value.requires_grad_() if grad else value


def ints(*shape: int, low: int = 0, high: int = 10) -> torch.Tensor:
    """A tensor of int64 values."""
    return torch.randint(low, high, shape)


def one() -> tuple[torch.Tensor, ...]:
    """One (3, 4) tensor."""
    return (t(3, 4),)


def two() -> tuple[torch.Tensor, ...]:
    """Two (3, 4) tensors."""
    return (t(3, 4), t(3, 4))
