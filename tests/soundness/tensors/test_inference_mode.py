"""`torch.inference_mode` inside a trace: entered and left by nodes of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

X = torch.eye(3) * 2
W = torch.ones(3, 3, requires_grad=True)


def block(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.inference_mode():
        y = x @ W
    return y, x + 1


def turned_off(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False):
        y = x @ W
    return y, x * 2


@torch.inference_mode()
def decorated(x: Tensor) -> Tensor:
    return (x @ W).relu()


def twice(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.inference_mode():
        y = x @ W
    with torch.inference_mode():
        z = x * 3
    return y, z


def reads_mode(x: Tensor) -> Tensor:
    with torch.inference_mode():
        if torch.is_inference_mode_enabled():
            x = x * 3
    return x if torch.is_inference_mode_enabled() else x + 1


def with_grad(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(), torch.enable_grad():
        y = x @ W
    return y, x @ W


def leaves_by_return(x: Tensor) -> Tensor:
    for _ in range(3):
        with torch.inference_mode():
            return x @ W
    return x


def leaves_by_exception(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x
    try:
        with torch.inference_mode():
            y = x @ W
            raise KeyError("inside")
    except KeyError:
        return y, x @ W


def fails(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x
    try:
        with torch.inference_mode():
            y = torch.linalg.cholesky(x) @ W
    except RuntimeError:
        y = x - 1
    return y, x @ W


def nested(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.inference_mode():
        y = x @ W
        with torch.inference_mode(False):
            z = x * 3
        y = y + 1
    return y, z


def deeper(x: Tensor) -> tuple[Tensor, Tensor, Tensor, bool]:
    with torch.inference_mode():
        with torch.inference_mode():
            y = x @ W
        with torch.inference_mode(False), torch.inference_mode():
            z = y + 1
        with torch.inference_mode(False):
            on = torch.is_inference_mode_enabled()
            a = x * W
    return y, z, a, on


def fails_deeper(x: Tensor) -> tuple[Tensor, Tensor, bool]:
    y = x
    try:
        with torch.inference_mode(), torch.inference_mode(False), torch.inference_mode():
            y = torch.linalg.cholesky(x) @ W
    except RuntimeError:
        y = x - 1
    return y, x @ W, torch.is_inference_mode_enabled()


def broken(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.inference_mode():
        y = x @ W
        stator.graph_break()
        y = y + 1
    return y, x @ W


def keeps_manager(x: Tensor) -> tuple[Tensor, bool]:
    manager = torch.inference_mode()
    with manager:
        y = x @ W
    return y, manager.mode


def outcome(function: Callable[..., Any], x: Tensor) -> Any:
    result = function(x)
    values = result if isinstance(result, tuple) else (result,)
    facts = [
        (value.tolist(), value.is_inference(), value.requires_grad)
        if isinstance(value, Tensor)
        else value
        for value in values
    ]
    return facts, torch.is_inference_mode_enabled(), torch.is_grad_enabled()


def check(function: Callable[..., Any]) -> Any:
    compiled = stator.compile(function)
    for x in (X, X, -X, X):
        assert outcome(compiled, x) == outcome(function, x)
    with torch.inference_mode():
        for _ in range(2):
            assert outcome(compiled, X) == outcome(function, X)
    assert outcome(compiled, X) == outcome(function, X)
    return stator.stats(compiled)


TRACED: list[Callable[..., Any]] = [
    block,
    turned_off,
    decorated,
    twice,
    reads_mode,
    with_grad,
    leaves_by_return,
    leaves_by_exception,
    nested,
    deeper,
]


@pytest.mark.parametrize("function", TRACED, ids=lambda function: function.__name__)
def test_is_one_graph(function: Callable[..., Any]) -> None:
    stats = check(function)
    # One trace with the mode off, one with it on.
    assert (stats.breaks, stats.native, stats.traces) == (0, 0, 2), stats.reason


@pytest.mark.parametrize(
    "function", [fails, fails_deeper, broken, keeps_manager], ids=lambda function: function.__name__
)
def test_gives_what_python_gives(function: Callable[..., Any]) -> None:
    check(function)


def test_fullgraph() -> None:
    compiled = stator.compile(decorated, fullgraph=True)
    for _ in range(2):
        assert outcome(compiled, X) == outcome(decorated, X)


# What a compiling backend gives back are no inference tensors, so for it the mode breaks the graph.
@pytest.mark.parametrize("backend", ["aot_eager", "fx"])
@pytest.mark.parametrize("function", [block, decorated], ids=lambda function: function.__name__)
def test_other_backends(function: Callable[..., Any], backend: str) -> None:
    chosen: Any = (lambda module, inputs: module.forward) if backend == "fx" else backend
    compiled = stator.compile(function, backend=chosen)
    for _ in range(3):
        assert outcome(compiled, X) == outcome(function, X)
