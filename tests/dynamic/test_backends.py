"""Graphs with symbols for backends: they run for every admitted size, without another trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator


def mixed(x: Any, n: int, rate: float) -> Any:
    y = x.view(-1, 2) * n
    return y.sum(0) * rate + x.shape[0], y.relu(), n + 1


def arguments(size: int) -> tuple[Any, ...]:
    return torch.arange(size * 4.0).reshape(size, 4), size - 3, size / 4


@pytest.mark.parametrize("backend", ["fx", "aot_eager"])
def test_serves_every_admitted_size(backend: str) -> None:
    compiled = stator.compile(mixed, backend=backend)
    for size in (4, 6, 8, 5, 12, 2, 7):
        expected, found = mixed(*arguments(size)), compiled(*arguments(size))
        torch.testing.assert_close(found[:2], expected[:2])
        assert found[2] == expected[2]
    assert stator.stats(compiled).traces == 2


def test_what_a_backend_assumes_holds_for_its_code() -> None:
    """A program that AOTAutograd specialises: its code is compiled again, nothing is traced."""

    def ends(x: Any) -> Any:
        return x.unfold(0, x.shape[0] - 2, 1).sum(0)

    compiled = stator.compile(ends, backend="aot_eager", dynamic=True)
    for size in (4, 5, 9, 30):
        x = torch.arange(float(size))
        torch.testing.assert_close(compiled(x), ends(x))
    assert stator.stats(compiled).native == 0


def test_a_callable_gets_numbers_as_inputs() -> None:
    seen: list[Any] = []

    def backend(graph: torch.fx.GraphModule, example_inputs: Any) -> Any:
        kinds = [node.type for node in graph.graph.nodes if node.op == "placeholder"]
        seen.append((kinds, [type(example) for example in example_inputs]))
        return graph.forward

    def scaled(x: Any, n: int, rate: float) -> Any:
        return x * n * rate

    compiled = stator.compile(scaled, backend=backend, dynamic=True)
    for size in (4, 5):
        x = torch.ones(size)
        assert torch.equal(compiled(x, size, size / 2), scaled(x, size, size / 2))
    [(kinds, types)] = seen
    assert kinds == [torch.SymInt, torch.Tensor, torch.SymInt, torch.SymFloat]
    assert types == [int, torch.Tensor, int, float]
