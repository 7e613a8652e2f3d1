"""What goes to Inductor's process and what comes from there beside a library's tensors: numbers, views of inputs.

Graphs run in Python where a library would run: only what is around is tried.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

import stator
from background.slow import LONG, stand_in
from examples.models import tensors_of
from stator import stats
from stator._fx import ahead, process, sent
from stator._fx.aliases import take_views
from stator._fx.libraries import Libraries

X = torch.linspace(-1, 1, 24).view(6, 4)
MEMORY = torch.zeros(5)


def libraries_in_python(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The graphs of libraries run in Python; which numbers each was asked for with."""
    asked: list[list[Any]] = []

    def answers(order: process.Order, packed: bytes, key: str | None) -> Any:
        graphs: list[torch.fx.GraphModule] = []

        class Library:
            def run(self, inputs: list[Tensor]) -> list[Tensor]:
                assert all(isinstance(value, Tensor) for value in inputs)
                # What a library takes for granted.
                for value, like, names in zip(inputs, order.looks, order.sizes, strict=False):
                    if isinstance(like, Tensor) and not names:
                        assert (value.shape, value.stride()) == (like.shape, like.stride())
                return [value.clone() for value in graphs[0](*inputs)]

        def compile(graph: Any, examples: Any, **settings: Any) -> str:
            graphs.append(graph)
            return "none"

        monkeypatch.setattr(ahead, "compile_fx_aot", compile)
        module = sent.unpack(packed)
        views = take_views(module, order.looks)
        made = ahead.compile_ahead(module, order.looks, order.sizes, {})
        asked.append([value for value in order.looks if not isinstance(value, Tensor)])
        made = dataclasses.replace(made, views=views)
        return made, Libraries(made, [Library()])

    with FakeTensorMode():
        pass
    monkeypatch.setattr(process, "_stored_or_made", answers)
    return asked


def test_integers_below_two_are_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter that a call is given: none of its first calls waits for code."""
    asked = libraries_in_python(monkeypatch)

    def step(x: Tensor, count: int) -> Tensor:
        return (x * count).tanh() + (count + 1)

    compiled = stator.compile(step, backend="inductor", tier="compiled")
    for count in (0, 1, 1, 5, 5, 7, 0, 1, 0, 3):
        assert torch.equal(compiled(X, count), step(X, count))
        assert stator.wait(timeout=LONG)
    assert stats(compiled).breaks == 0
    assert set(stats(compiled).tiers) <= {"compiled", "made"}
    # One code serves all from two up.
    assert asked == [[], [1], [5], [0]]


def test_floats_are_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """One code serves all floats; what is computed of them is what Python computes."""
    asked = libraries_in_python(monkeypatch)

    def step(x: Tensor, rate: float, count: int) -> Tensor:
        scale = rate / count - 1e9 + 1e9
        return (x * rate).tanh() + torch.full_like(x, scale) + x.add(x, alpha=1 / rate)

    def outcome(function: Any, *given: Any) -> Any:
        try:
            return function(*given)
        except ZeroDivisionError as error:
            return str(error)

    compiled = stator.compile(step, backend="inductor", tier="compiled")
    rates = (0.5, 0.25, 0.125, -3.7, 0.0, -0.0, 1e30, float("inf"), 0.75, 0.1)
    for index, rate in enumerate(rates):
        count = 2 + index % 3
        found, expected = outcome(compiled, X, rate, count), outcome(step, X, rate, count)
        if isinstance(expected, str):
            assert found == expected
        else:
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        assert stator.wait(timeout=LONG)
    assert stats(compiled).breaks == 0
    assert len(asked) <= 2


@pytest.mark.parametrize(
    "computed",
    [
        lambda rate: rate**2,
        lambda rate: math.sqrt(rate) + 0.1 * math.cos(math.pi * rate),
        lambda rate: abs(rate - 0.3) ** 0.5 / (1 + math.exp(-rate)),
    ],
)
def test_floats_are_computed_as_python_does(computed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, waited = libraries_in_python(monkeypatch), stand_in(monkeypatch)
    compiled = stator.compile(lambda x, rate: x * computed(rate), backend="inductor")
    for rate in (0.5, 0.25, 0.125, 0.75, 3.1, -0.5, 0.125):
        try:
            expected = X * computed(rate)
        except ValueError as error:
            with pytest.raises(ValueError, match=str(error)):
                compiled(X, rate)
        else:
            assert torch.equal(compiled(X, rate), expected)
        assert stator.wait(timeout=LONG)
    assert len(asked) == 2 and not waited


@pytest.mark.parametrize("computed", [round, int, lambda rate: rate.hex().count("9") + 1])
def test_integers_of_floats_are_waited_for(computed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, waited = libraries_in_python(monkeypatch), stand_in(monkeypatch)
    compiled = stator.compile(lambda x, rate: x * computed(rate), backend="inductor")
    for rate in (0.5, 0.25, 0.125, 0.75):
        assert torch.equal(compiled(X, rate), X * computed(rate))
        assert stator.wait(timeout=LONG)
    # Or a trace is for one number.
    assert not any(asked) and (waited or stats(compiled).traces > 2)


KEPT = torch.nn.Parameter(torch.linspace(-1, 1, 12).view(3, 4))


def gives_views(x: Tensor) -> tuple[Any, ...]:
    rows = x.shape[0]
    return KEPT.t(), (x * 2).sin() + 1, x[1:], x.view(-1, 2).chunk(2), x.reshape(rows * 4), rows


def gives_views_of_what_it_writes(x: Tensor) -> tuple[Tensor, ...]:
    MEMORY.add_(x.sum())
    return MEMORY[1:].view(2, 2), MEMORY.exp(), (MEMORY * 2)[:2]


def gives_views_of_what_it_has_made(x: Tensor) -> tuple[Tensor, ...]:
    y = (x * 2).sin()
    return y.exp(), x.t(), (x + y).view(-1)


@pytest.mark.parametrize(
    "function", [gives_views, gives_views_of_what_it_writes, gives_views_of_what_it_has_made]
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_views_of_inputs_are_made_beside_a_library(
    function: Any, dynamic: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call waits for a graph that gives them. They share memory with the inputs."""
    asked, waited = libraries_in_python(monkeypatch), stand_in(monkeypatch)
    compiled = stator.compile(function, backend="inductor", tier="compiled", dynamic=dynamic)
    for size in (6, 6, 6, 4, 6, 8, 8, 4):
        numbers = torch.linspace(-1, 1, size * 4).view(size, 4)
        states = []
        for call in (function, compiled):
            x = numbers.clone()
            MEMORY.fill_(1)
            with torch.no_grad():
                results = tensors_of(call(x))
                seen = [(it.requires_grad, it.clone()) for it in results]
                # What shares memory shows what is written.
                for memory in (x, MEMORY, KEPT):
                    memory.add_(1)
                seen += [it.clone() for it in results]
                KEPT.sub_(1)
            states.append(seen)
        torch.testing.assert_close(states[1], states[0])
        assert stator.wait(timeout=LONG)
    assert asked and not waited
    assert "compiled" in stats(compiled).tiers, stats(compiled).why
    assert not any("compared" in str(why) for why in stats(compiled).why)


def test_views_alone_are_left_to_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits, or is warned: there is nothing to compile."""
    asked, waited = libraries_in_python(monkeypatch), stand_in(monkeypatch)
    compiled = stator.compile(lambda x: (x.t(), x[1:].view(-1)), backend="inductor")
    for _ in range(4):
        found = compiled(X)
        assert all(torch.equal(*pair) for pair in zip(found, (X.t(), X[1:].view(-1)), strict=True))
        assert found[0].data_ptr() == X.data_ptr()
        assert stator.wait(timeout=LONG)
    assert not asked and not waited
    assert set(stats(compiled).tiers) == {"replay"}
    assert "nothing but views" in str(stats(compiled).why)


def test_inputs_that_lie_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library is for the strides that it was made for: others have a trace of their own."""
    libraries_in_python(monkeypatch)

    def step(x: Tensor) -> Tensor:
        return (x * 2).sin() + x.cumsum(1)

    compiled = stator.compile(step, backend="inductor", tier="compiled")
    wide = torch.linspace(-1, 1, 48).view(4, 12)
    ran = []
    for x in (wide.view(12, 4)[:6].t(), *[wide[:, :6].contiguous()] * 4):
        torch.testing.assert_close(compiled(x), step(x))
        assert stator.wait(timeout=LONG)
        ran.append(stats(compiled).tiers)
    assert "compiled" in ran[-1]
    for _ in range(2):
        torch.testing.assert_close(compiled(wide[:, ::2]), step(wide[:, ::2]))
    assert stats(compiled).traces == 3


@pytest.mark.parametrize("dynamic", [None, True])
def test_inputs_that_lie_in_others(dynamic: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of rows, one row of many, rows that are the same: no call waits for their graph."""
    asked, waited = libraries_in_python(monkeypatch), stand_in(monkeypatch)

    def step(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return (x * 2 + y).softmax(-1).cumsum(0) * z + x.mean()

    compiled = stator.compile(step, backend="inductor", tier="compiled", dynamic=dynamic)
    for size, row in ((6, 9), (6, 9), (6, 9), (4, 9), (3, 9), (6, 11), (4, 11)):
        for width in (5, 5, 4):
            tokens = torch.linspace(-1, 1, 2 * size * row).view(2 * size, row)
            given = (tokens[:size, :width], tokens[:size, 1 : width + 1], tokens[0, :width])
            for x, y, z in (given, (given[0], given[0][:1].expand(size, width), given[2][None])):
                torch.testing.assert_close(compiled(x, y, z), step(x, y, z))
                assert stator.wait(timeout=LONG)
    assert asked and not waited
    assert "compiled" in stats(compiled).tiers, stats(compiled).why
