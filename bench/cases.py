"""What is measured: the demo's models, and functions of which each shows one cost."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from examples.models import CACHED_CASES, CASES, Case


@dataclasses.dataclass(frozen=True)
class Setup:
    """Something to compile, and how to call it; `call` takes it plain or compiled."""

    target: Any
    call: Callable[[Any], object]
    forward: Callable[[Any], object]
    """`call` without the backward pass: what warm overhead is measured on."""


@dataclasses.dataclass(frozen=True)
class Bench:
    """One row. `make` prepares it in the worker process."""

    name: str
    title: str
    make: Callable[[], Setup]
    is_model: bool = False
    cached: bool = False
    """A model that makes its key-value cache in the call, as it does by default."""
    operations: int | None = None
    """How many operations a call makes, where the row is about that number."""
    first_call_only: bool = False
    """Only Stator's first call is of interest."""
    breaks: bool = False
    """It has graph breaks: what its replays cost is measured even where calls run natively."""
    depth: int | None = None
    """How many calls deep it breaks, where the row is about that."""


def _model(case: Case, cached: bool = False) -> Bench:
    def make() -> Setup:
        model, inputs = case.make()
        grad = contextlib.nullcontext if case.training else torch.no_grad

        def forward(target: Any) -> object:
            with grad():
                return target(**inputs)

        return Setup(model, lambda target: case.step(target, inputs), forward)

    return Bench(case.name, case.title, make, is_model=not cached, cached=cached)


def two_arguments(x: Tensor, y: Tensor) -> Tensor:
    """The smallest function that is worth compiling."""
    return x + y


def chain(x: Tensor, length: int) -> Tensor:
    """`length` chained additions: pytorch#142431."""
    for _ in range(length):
        x = torch.add(x, 1)
    return x


def _chain(length: int, first_call_only: bool) -> Bench:
    def make() -> Setup:
        x = torch.zeros(4)

        def call(target: Any) -> object:
            return target(x, length)

        return Setup(chain, call, call)

    title = f"{length:,} chained torch.add"
    return Bench(f"chain_{length}", title, make, operations=length, first_call_only=first_call_only)


def _two_arguments() -> Setup:
    x, y = torch.ones(4), torch.ones(4)

    def call(target: Any) -> object:
        return target(x, y)

    return Setup(two_arguments, call, call)


@torch.compiler.disable
def note(step: int) -> None:
    """What a training loop does every now and then: something that is no graph."""


def ten_breaks(x: Tensor, weight: Tensor) -> Tensor:
    """A loop that breaks the graph ten times."""
    for step in range(10):
        y = torch.relu(x @ weight)
        y = torch.tanh(y @ weight)
        y = torch.sigmoid(y @ weight)
        x = torch.nn.functional.layer_norm(x + y, (64,))
        note(step)
    return x


def _ten_breaks() -> Setup:
    x, weight = torch.randn(32, 64), torch.randn(64, 64)

    def call(target: Any) -> object:
        with torch.no_grad():
            return target(x, weight)

    return Setup(ten_breaks, call, call)


def _nested(depth: int) -> Bench:
    """A break so many calls deep: the shape of pytorch#124437."""

    def innermost(x: Tensor) -> Tensor:
        y = torch.relu(x * 2)
        note(0)
        return y + 1

    def around(inner: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def outer(x: Tensor) -> Tensor:
            return inner(x) * 1

        return outer

    def make() -> Setup:
        function: Callable[[Tensor], Tensor] = innermost
        for _ in range(depth):
            function = around(function)
        x = torch.ones(4)

        def call(target: Any) -> object:
            return target(x)

        return Setup(function, call, call)

    return Bench(f"depth_{depth}", f"break at depth {depth}", make, breaks=True, depth=depth)


BENCHES = (
    *(_model(case) for case in CASES),
    *(_model(case, cached=True) for case in CACHED_CASES),
    Bench("two_arguments", "a two-argument function", _two_arguments),
    _chain(1_000, first_call_only=True),
    _chain(5_000, first_call_only=False),
    _chain(10_000, first_call_only=True),
    _chain(100_000, first_call_only=True),
    Bench("ten_breaks", "ten breaks in a loop", _ten_breaks, breaks=True),
    *(_nested(depth) for depth in (0, 1, 2, 3, 5)),
)
