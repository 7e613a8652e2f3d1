"""`repr` of dataclasses and of what `reprlib.recursive_repr` decorates: a set of their own knows what is being shown."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

import stator


@dataclass
class Layer:
    n: int
    act: str = "relu"
    extra: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class Config:
    layers: list[Layer]
    rate: float = 0.1
    parent: Any = None


class Ring:
    """Shows itself as `...` within itself."""

    def __init__(self, name: str) -> None:
        self.name, self.next = name, self

    @reprlib.recursive_repr(fillvalue="<again>")
    def __repr__(self) -> str:
        return f"Ring({self.name}, {self.next!r})"


class Cut:
    """Breaks the graph where it is shown."""

    def __repr__(self) -> str:
        stator.graph_break()
        return "Cut()"


HELD = {"config": Config([Layer(2), Layer(3, "silu")]), "ring": Ring("a")}


def made_inside(x: Tensor, n: int) -> Any:
    config = Config([Layer(n), Layer(n + 1, "tanh")], rate=n / 4)
    return x * n, repr(config), f"{config.layers[0]}", f"{config!s:>60}"


def from_outside(x: Tensor, n: int) -> Any:
    config = HELD["config"]
    return x * config.layers[0].n, repr(config), str(config.layers)


def with_what_was_read(x: Tensor, n: int) -> Any:
    return x + n, repr(Config([Layer(n)], rate=round(x.sum().item(), 3)))


def within_itself(x: Tensor, n: int) -> Any:
    config = Config([], parent=None)
    config.parent = [config]
    return x + n, repr(config), repr(HELD["ring"])


def that_fails(x: Tensor, n: int) -> Any:
    layer = Layer(n)
    del layer.n
    try:
        return x, repr(layer)
    except AttributeError as error:
        return x + 1, error.name, repr(Layer(n))


def broken_within(x: Tensor, n: int) -> Any:
    config = Config([Layer(n)])
    config.parent = [Cut(), config]
    return x + n, repr(config), repr(config)


PROGRAMS = [made_inside, from_outside, with_what_was_read, within_itself, that_fails, broken_within]


def equal(found: Any, expected: Any) -> bool:
    assert len(found) == len(expected)
    return torch.equal(found[0], expected[0]) and found[1:] == expected[1:]


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_texts(program: Callable[..., Any], forced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"skip_unprofitable": False} if forced else {}
    compiled = stator.compile(program)
    ring = Ring("b")
    with stator.config.patch(**settings):
        for step in range(8):
            if step == 3:
                monkeypatch.setitem(HELD, "config", Config([Layer(2), Layer(5)], parent="p"))
            if step == 4:
                monkeypatch.setitem(HELD, "ring", ring)
            if step == 5:
                ring.next = Ring("c")
                monkeypatch.setattr(Layer, "__repr__", lambda self: f"<{self.n}>")
            if step == 6:
                ring.next.next = ring
            args = torch.randn(2 + step % 2), 2 + step // 2
            try:
                expected = program(*args)
            except AttributeError:
                with pytest.raises(AttributeError):
                    compiled(*args)
                continue
            assert equal(compiled(*args), expected), step
    stats = stator.stats(compiled)
    if forced and program is not broken_within and program is not that_fails:
        assert stats.breaks == 0, stats.reason
        assert stats.hits


def test_within_a_text_of_the_callers() -> None:
    """What is shown already when the compiled function is called is shown as `...` there, too."""

    class Shown:
        calls: Any = None

        @reprlib.recursive_repr()
        def __repr__(self) -> str:
            return f"Shown({self.calls(torch.ones(1)) if self.calls else None})"

    shown = Shown()

    def program(x: Tensor) -> str:
        return f"{x.dim()} {shown!r}"

    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            assert compiled(torch.ones(1)) == "1 Shown(None)"
        shown.calls = program
        expected = repr(shown)
        assert expected == "Shown(1 ...)"
        shown.calls = compiled
        for _ in range(3):
            assert repr(shown) == expected
            shown.calls = None
            assert compiled(torch.ones(1)) == "1 Shown(None)"
            shown.calls = compiled
