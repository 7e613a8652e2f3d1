"""Texts of whole tensors: what `Tensor.__repr__` gives, which a node calls again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator

from .results import copied, same


@pytest.fixture(autouse=True)
def replays_whatever_it_costs() -> Iterator[None]:
    with stator.config.patch(skip_unprofitable=False):
        yield
    torch.set_printoptions(profile="default")


def f_strings(x: Tensor) -> Any:
    return f"x = {x}", f"{x * 2!r:>60}|{x!s}", f"{x[:1]}", x + 1


def functions(x: Tensor) -> Any:
    return str(x), repr(x - 1), format(x), format(x, ""), str(x.sum()), repr(x.argmax()), x + 1


def percent_and_format(x: Tensor) -> Any:
    return "%s and %r" % (x, x.sum()), "%s" % x, "{} of {}".format(x, 3), x + 1


def put_together(x: Tensor) -> Any:
    lines = [f"{i}: {x + i}" for i in range(2)]
    lines.append("a " + str(x).replace("tensor", "T").upper())
    return {"text": "\n".join(lines), "lines": lines}, x + 1


def written_between(x: Tensor) -> Any:
    y = x.clone()
    before = f"{y}"
    y.add_(1)
    row = y[1:]
    row.mul_(2)
    return before, f"{y} {row}", str(y.t_()), y


def of_other_kinds(x: Tensor) -> Any:
    return (
        f"{x > 0} {x.long()} {x.double()} {x.to(torch.complex64)} {x[:0]} {x.reshape(2, 2).half()}"
    )


def asserted(x: Tensor) -> Any:
    assert not (x.sum() < -100), f"too small: {x}"
    return x + 1


def of_sized_data(x: Tensor) -> Any:
    return f"kept {x[x > 0]}", x + 1


PROGRAMS = [
    f_strings,
    functions,
    percent_and_format,
    put_together,
    written_between,
    of_other_kinds,
    asserted,
    of_sized_data,
]


def given(call: int) -> Tensor:
    x = torch.randn(4, generator=torch.Generator().manual_seed(call))
    if call == 4:
        x[0] = float("nan")
    if call == 5:
        x[1] = float("inf")
        x[2] *= 1e6
    return x


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda it: it.__name__)
def test_texts(program: Callable[[Tensor], Any]) -> None:
    compiled = stator.compile(program)
    for call in range(6):
        assert same(copied(program(given(call))), copied(compiled(given(call)))), call
    stats = stator.stats(compiled)
    assert (stats.traces, stats.breaks, stats.native) == (1, 0, 0), stats.reason


@pytest.mark.parametrize("program", PROGRAMS[:3], ids=lambda it: it.__name__)
def test_default_settings(program: Callable[[Tensor], Any]) -> None:
    with stator.config.patch(skip_unprofitable=True):
        compiled = stator.compile(program)
        for call in range(6):
            assert same(copied(program(given(call))), copied(compiled(given(call)))), call


def test_other_backends() -> None:
    compiled = stator.compile(f_strings, backend="fx")
    for call in range(3):
        assert same(copied(f_strings(given(call))), copied(compiled(given(call))))


def test_gradients_and_parameters_show() -> None:
    weight = nn.Parameter(torch.ones(4))

    def program(x: Tensor) -> Any:
        loss = (x * weight).sum()
        return f"{loss!r} {x * weight} {weight} {weight.detach()}", str(loss), loss

    compiled = stator.compile(program)
    for call in range(4):
        if call == 2:
            weight.data.mul_(0.5)
        if call == 3:
            weight.requires_grad_(False)
        assert same(copied(program(given(call))), copied(compiled(given(call)))), call


def test_how_tensors_are_printed_is_asked_each_time() -> None:
    compiled = stator.compile(f_strings)
    for options in ({}, {"precision": 2}, {"sci_mode": True}, {"profile": "default"}):
        torch.set_printoptions(**options)
        assert same(copied(f_strings(given(0))), copied(compiled(given(0)))), options
    assert stator.stats(compiled).traces == 1
    torch.set_default_dtype(torch.float64)
    try:
        assert same(copied(f_strings(given(0).float())), copied(compiled(given(0).float())))
    finally:
        torch.set_default_dtype(torch.float32)


def test_texts_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library may say how tensors are shown."""
    compiled = stator.compile(functions)
    for _ in range(2):
        assert same(copied(functions(given(0))), copied(compiled(given(0))))
    shown: list[int] = []

    def brief(tensor: Tensor, **kwargs: Any) -> str:
        shown.append(tensor.numel())
        return f"<{tensor.numel()}>"

    monkeypatch.setattr(Tensor, "__repr__", brief)
    for _ in range(2):
        plain = copied(functions(given(1)))
        plain_shown, shown[:] = list(shown), []
        assert same(plain, copied(compiled(given(1))))
        assert shown == plain_shown
        shown.clear()
    monkeypatch.undo()
    assert same(copied(functions(given(2))), copied(compiled(given(2))))
    monkeypatch.setattr(Tensor, "__str__", lambda tensor: "text", raising=False)
    assert same(copied(functions(given(2))), copied(compiled(given(2))))


def test_who_looks_into_a_text() -> None:
    def program(x: Tensor) -> Any:
        text = f"{x}"
        kept = {text: 1}
        return len(text), text == f"{x + 0}", "nan" in text, text[:9], kept, x + 1

    compiled = stator.compile(program)
    for call in range(6):
        assert same(copied(program(given(call))), copied(compiled(given(call)))), call


def test_raised_with_a_text() -> None:
    def program(x: Tensor) -> Any:
        try:
            if x.isnan().any():
                raise ValueError(f"bad: {x}")
        except ValueError as error:
            return str(error), x
        return "", x + 1

    compiled = stator.compile(program)
    for call in (0, 4, 1, 4, 5, 4):
        assert same(copied(program(given(call))), copied(compiled(given(call)))), call
