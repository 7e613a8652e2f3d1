"""Code whose results have other strides than the replay's: they are copied to where those lie, or the code isn't used."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from background.slow import made
from stator import stats
from stator._fx.comparison import Trial

Results = tuple[Tensor, ...]


def heads(x: Tensor, w: Tensor) -> Results:
    """As a cache of keys is made: concatenated with nothing."""
    keys = (x @ w).view(2, 3, 2, 2).transpose(1, 2)
    return torch.cat([torch.tensor([]), keys], dim=-2), keys.sum()


def summed(x: Tensor, w: Tensor) -> Results:
    y = x @ w
    return y * 2, y.sum(0)


def turned(results: Results) -> Results:
    """The same numbers, the last dimension furthest apart."""
    first = results[0]
    last = first.dim() - 1
    return first.transpose(0, last).contiguous().transpose(0, last), *results[1:]


def turns(change: Callable[[Results], Results]) -> Callable[[Any], Any]:
    def make(graph: Any) -> Any:
        return lambda *inputs: change(tuple(graph(*inputs)))

    return make


def looks(results: Results) -> list[Any]:
    return [
        (value.shape, value.stride(), value.dtype, value.requires_grad, value.is_contiguous())
        for value in results
    ]


def arguments(wants: bool, rows: int = 2) -> tuple[Tensor, Tensor]:
    x = torch.linspace(-1, 1, rows * 12).view(rows * 3, 4).requires_grad_(wants)
    return x, torch.linspace(-2, 1, 16).view(4, 4).requires_grad_(wants)


@pytest.mark.parametrize("function", [heads, summed])
@pytest.mark.parametrize("wants", [False, True])
def test_results_are_laid_where_the_replays_lie(
    function: Callable[..., Results], wants: bool
) -> None:
    args = arguments(wants)
    expected = function(*args)
    compiled, backend = made(function, turns(turned), *args)
    with warnings.catch_warnings():
        warnings.simplefilter("error", stator.StatorWarning)
        for _ in range(4):
            found = compiled(*args)
            assert looks(found) == looks(expected)
            assert all(map(torch.equal, found, expected))
            if wants:
                roots = (
                    [value.sin().sum() for value in expected],
                    [value.sin().sum() for value in found],
                )
                left, right = (torch.autograd.grad(root, args, retain_graph=True) for root in roots)
                assert all(map(torch.equal, left, right))
            # What is given is the program's to write to.
            found[0].detach().zero_()
    assert stats(compiled).tiers == ["compiled"]
    assert backend.ran == 5


def shared(results: Results) -> Results:
    """The first result is part of another tensor's memory, which is a result, too."""
    both = torch.stack([turned(results)[0].transpose(0, -1)] * 2)
    return both[0].transpose(0, -1), both[1].flatten()[: results[1].numel()].view(results[1].shape)


def spread(results: Results) -> Results:
    return results[0][:1].expand(results[0].shape), results[1]


@pytest.mark.parametrize("change", [shared, spread])
def test_what_else_differs_isnt_repaired(change: Callable[[Results], Results]) -> None:
    args = arguments(False)
    expected = summed(*args)
    compiled, _ = made(summed, turns(change), *args)
    with pytest.warns(stator.BackendDiffersWarning):
        found = compiled(*args)
    assert all(map(torch.equal, found, expected)) and looks(found) == looks(expected)
    assert stats(compiled).tiers == ["differs"]


def test_results_that_share_memory_arent_copied_apart() -> None:
    def function(x: Tensor) -> Results:
        y = x * 2
        return y, y.t()

    def make(graph: Any) -> Any:
        def run(x: Tensor) -> Results:
            y = turned((x * 2,))[0]
            return y, y.t()

        return run

    x = torch.linspace(0, 1, 6).view(2, 3)
    compiled, _ = made(function, make, x)
    with pytest.warns(stator.BackendDiffersWarning, match="strides of output 0"):
        compiled(x)
    left, right = compiled(x)
    left.zero_()
    assert not right.any()


def test_where_sizes_vary_strides_are_those_of_one_call() -> None:
    function = stator.compile(summed, backend=turning, when="background", dynamic=True)
    function(*arguments(False))
    assert stator.wait(timeout=60)
    with pytest.warns(stator.BackendDiffersWarning, match="strides of output 0"):
        function(*arguments(False))
    for rows in (2, 3, 4):
        args = arguments(False, rows)
        assert looks(function(*args)) == looks(summed(*args))


def turning(graph: Any, inputs: Any) -> Any:
    return turns(turned)(graph)


def test_other_sizes_than_those_compared() -> None:
    """Data may decide them. Nothing is known of how they should lie."""
    x = torch.linspace(0, 1, 6)

    def replay(x: Tensor) -> Results:
        return (x.view(3, -1) * 1,)

    def code(x: Tensor) -> Results:
        return turned(replay(x))

    trial = Trial([x], 1, False, True)
    own, theirs = trial.inputs(), trial.inputs()
    assert trial.compare(replay(*own), own, code(*theirs), theirs) == (0.0, None, None)
    run = trial.laid(code)
    assert run is not None
    assert run(x)[0].stride() == (2, 1)
    with pytest.raises(RuntimeError, match="had \\(3, 2\\) when it was compared"):
        run(torch.zeros(9))
