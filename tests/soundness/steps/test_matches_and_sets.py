"""Matches of regular expressions, counters, sets of objects and identities of parameters, read again after a change."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator

from .iterators import note
from .outside_iterators import CHANGE, Program
from .test_outside_iterators import check

PROGRAMS: dict[str, Callable[[], Program]] = {}


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    PROGRAMS[make.__name__] = make
    return make


def by_text(fn: Callable[..., Any], before: Any, after: Any) -> Program:
    return Program(fn, lambda number: (before if number < CHANGE else after,))


@program
def groups_of_a_match() -> Program:
    def fn(x: Tensor, name: str) -> Any:
        found = re.match(r"(?P<kind>\w+)\.(\d+)", name)
        if found is None:
            return x, None
        layer = int(found.group(2))
        return x * layer, found["kind"], found.span(), found.groups(), found.start(1), found.string

    return by_text(fn, "layer.3", "head")


@program
def matches_in_a_loop() -> Program:
    def fn(x: Tensor, text: str) -> Any:
        places = []
        for found in re.finditer(r"\d+", text):
            x = x + int(found.group())
            places.append(found.span())
        return x, places

    return by_text(fn, "a1b22c333", "4")


@program
def which_parameters_match() -> Program:
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))

    def fn(x: Tensor, pattern: str) -> Any:
        names = []
        for name, parameter in model.named_parameters():
            if re.search(pattern, name) and not re.fullmatch(r".*bias", name):
                x = x + parameter.detach().sum() * 0
                names.append(name)
        return x, names

    return by_text(fn, r"^0\.", r"^1\.")


@program
def match_that_is_kept() -> Program:
    last: list[Any] = []

    def fn(x: Tensor, text: str) -> Any:
        last[:] = [re.search(r"(b)(c)?", text, re.IGNORECASE)]
        return x + 1

    return Program(
        fn,
        lambda number: ("aBC" if number < CHANGE else "xb",),
        lambda: (last[0].regs, last[0].groups(), last[0].pos, last[0].endpos, last[0].lastindex),
    )


@program
def match_behind_a_break() -> Program:
    def fn(x: Tensor, text: str) -> Any:
        found = re.match(r"(\w)(\w)", text)
        x = x + 1
        note()
        assert found is not None
        return x * len(found.group(2)), found.groups()

    return by_text(fn, "ab", "cd")


@program
def bytes_that_match() -> Program:
    def fn(x: Tensor, text: bytes) -> Any:
        found = re.match(rb"a+", text)
        return x, found and found.group()

    return by_text(fn, b"aab", b"b")


@program
def counter_that_the_caller_changes() -> Program:
    seen: Counter[Any] = Counter({"a": 5})

    def fn(x: Tensor, names: Any) -> Any:
        seen.update(names)
        return x * seen["a"], seen["b"], seen.total()

    def given(number: int) -> tuple[Any, ...]:
        if number == 2:
            seen["a"] = 100
        if number == CHANGE:
            seen.clear()
        return (["a", "b", "a"] if number < CHANGE else ("b",),)

    return Program(fn, given, lambda: list(seen.items()))


@program
def counter_of_letters() -> Program:
    seen: Counter[str] = Counter()

    def fn(x: Tensor, text: str) -> Any:
        seen.update(text)
        return x + 1

    return Program(
        fn, lambda number: ("hello" if number < CHANGE else "go",), lambda: list(seen.items())
    )


@program
def counter_that_holds_no_number() -> Program:
    seen: Counter[str] = Counter()

    def fn(x: Tensor) -> Any:
        seen.update(["a", "b"])
        return x + 1

    def given(number: int) -> tuple[Any, ...]:
        if number == CHANGE:
            seen["b"] = None  # type: ignore[assignment]
        return ()

    return Program(fn, given, lambda: list(seen.items()))


@program
def counter_of_its_own_kind() -> Program:
    class Loud(Counter[str]):
        def __setitem__(self, key: str, value: int) -> None:
            super().__setitem__(key, value * 2)

    seen = Loud()

    def fn(x: Tensor) -> Any:
        seen.update(["a", "b", "a"])
        return x + seen["a"]

    return Program(fn, lambda number: (), lambda: list(seen.items()))


def parameters(*numbers: float) -> list[nn.Parameter]:
    return [nn.Parameter(torch.full((3,), number)) for number in numbers]


@program
def sum_of_a_set() -> Program:
    held = set(parameters(1.0, 2.0, 3.0))

    def fn(x: Tensor) -> Any:
        for parameter in held:
            x = x * 0.5 + parameter.detach()
        return x.sum() * 0 + len(held)

    def given(number: int) -> tuple[Any, ...]:
        if number == 2:
            held.pop()
        if number == CHANGE:
            held.update(parameters(7.0, 8.0))
        return ()

    return Program(fn, given, lambda: len(held))


@program
def total_of_a_frozen_set() -> Program:
    one, other = frozenset(parameters(1.0, 2.0)), frozenset(parameters(4.0))

    def fn(x: Tensor, held: Any) -> Any:
        return x + sum(parameter.detach().sum() for parameter in held)

    return Program(fn, lambda number: (one if number < CHANGE else other,))


@program
def set_without_an_argument() -> Program:
    first, second = parameters(1.0, 2.0)
    held = {first, second}

    def fn(x: Tensor, parameter: Tensor) -> Any:
        return x + len(held - {parameter}), parameter in held

    def given(number: int) -> tuple[Any, ...]:
        return (first if number < CHANGE else torch.ones(3),)

    return Program(fn, given)


@program
def set_that_grows_in_the_call() -> Program:
    held = set(parameters(1.0))
    extra = parameters(2.0)

    def fn(x: Tensor) -> Any:
        held.add(extra[0])
        for parameter in held:
            x = x + parameter.detach()
        return x

    def given(number: int) -> tuple[Any, ...]:
        if number == CHANGE:
            held.clear()
        return ()

    return Program(fn, given, lambda: len(held))


@program
def set_of_modules() -> Program:
    held: set[nn.Module] = {nn.ReLU(), nn.Hardtanh()}

    def fn(x: Tensor) -> Any:
        for module in held:
            x = module(x)
        return x, sorted(type(module).__name__ for module in held)

    def given(number: int) -> tuple[Any, ...]:
        if number == CHANGE:
            held.add(nn.Identity())
        return ()

    return Program(fn, given)


@program
def set_of_those_with_answers_of_their_own() -> Program:
    class Key:
        def __init__(self, value: int) -> None:
            self.value = value

        def __hash__(self) -> int:
            return 7

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Key) and self.value == other.value

    held = {Key(1), Key(2)}

    def fn(x: Tensor, value: int) -> Any:
        return x + sum(key.value for key in held), Key(value) in held

    return Program(fn, lambda number: (1 if number < CHANGE else 3,))


@program
def each_parameter_once() -> Program:
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    model[1].weight = model[0].weight

    def fn(x: Tensor) -> Any:
        seen: set[int] = set()
        count = 0
        for module in model:
            for parameter in (module.weight, module.bias):
                if id(parameter) in seen:
                    continue
                seen.add(id(parameter))
                count += parameter.numel()
        return x + count

    def given(number: int) -> tuple[Any, ...]:
        if number == CHANGE:
            model[1].weight = nn.Parameter(torch.ones(2, 2))
        return ()

    return Program(fn, given)


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_equals_plain_python(name: str) -> None:
    check(PROGRAMS[name])


def test_each_call_has_its_own_match() -> None:
    def fn(x: Tensor) -> Any:
        return x + 1, re.search("b", "abc")

    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False):
        found = [compiled(torch.ones(2))[1] for _ in range(3)]
    assert len({id(match) for match in found}) == 3
    assert [match.span() for match in found] == [(1, 2)] * 3
    assert stator.stats(compiled).hits == 2
