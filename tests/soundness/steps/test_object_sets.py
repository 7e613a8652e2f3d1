"""Sets of tensors, modules and other objects that are equal to themselves alone: searched, changed, and changed between calls."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator

from .within_nodes import Program, Programs, network, rows

PROGRAMS = Programs(most_traced=5)
program, whole = PROGRAMS.program, PROGRAMS.whole


class Thing:
    pass


class Numbered:
    """Equal to others of its number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numbered) and self.number == other.number


@whole
def frozen_parameters() -> Program:
    net: Any = network()
    frozen: set[Any] = set(net[0].parameters())

    def step(x: Tensor) -> Any:
        return [x.sum() for it in net.parameters() if it not in frozen], len(frozen)

    def before(call: int) -> None:
        if call == 4:
            frozen.discard(net[0].bias)

    return step, before, lambda: None


@whole
def another_thing_is_asked_for() -> Program:
    one, two, three = Thing(), Thing(), Thing()
    given: dict[str, Any] = {"held": {one, two}, "thing": three}

    def step(x: Tensor) -> Any:
        return x + 1 if given["thing"] in given["held"] else x - 1

    def before(call: int) -> None:
        # What was in none stands in one now, and the other way round.
        given["thing"] = one if call == 3 else three
        given["held"] = {one, two, three} if call == 5 else {two, one}

    return step, before, lambda: None


@whole
def one_alone_has_no_order() -> Program:
    values: list[Any] = [1.0, 2.5, 4.0]
    things = {"first": Thing()}

    def step(x: Tensor) -> Any:
        kinds = {type(value) for value in values}
        alone = {things["first"]}
        found = [it is things["first"] for it in alone], [*alone][0] is things["first"]
        return x + 1, [kind.__name__ for kind in kinds], found, statistics.stdev(values)

    def before(call: int) -> None:
        values[1] = 3.5 if call > 3 else 2.5
        things["first"] = things["first"] if call < 5 else Thing()

    return step, before, lambda: None


@program
def two_have_one() -> Program:
    values: list[Any] = [1.0, 2.5]

    def step(x: Tensor) -> Any:
        kinds = {type(value) for value in values}
        return x + len(kinds), sorted(kind.__name__ for kind in kinds)

    def before(call: int) -> None:
        values[1] = 3 if call in (3, 4) else 2.5

    return step, before, lambda: None


@program
def things_added_and_taken() -> Program:
    things = [Thing() for _ in range(3)]
    seen: set[Any] = set()
    given = [things[0]]

    def step(x: Tensor) -> Any:
        thing = given[0]
        if thing in seen:
            seen.discard(thing)
        else:
            seen.add(thing)
        return x * len(seen), thing in seen

    def before(call: int) -> None:
        given[0] = things[call * call % 3]

    return step, before, lambda: [it in seen for it in things]


@program
def two_names_of_one_thing() -> Program:
    one, two = Thing(), Thing()
    given = {"one": one, "two": two}
    held: set[Any] = set()

    def step(x: Tensor) -> Any:
        held.clear()
        held.add(given["one"])
        held.add(given["two"])
        return x * len(held)

    def before(call: int) -> None:
        given["two"] = one if call in (3, 4) else two

    return step, before, lambda: len(held)


@program
def one_that_was_there_before() -> Program:
    """Whether `add` adds something isn't looked at by anybody but `len`."""
    one, two = Thing(), Thing()
    held: set[Any] = {one}
    given = [two]

    def step(x: Tensor) -> Any:
        held.add(given[0])
        return x * len(held)

    def before(call: int) -> None:
        held.clear()
        held.add(two if call in (3, 6) else one)

    return step, before, lambda: len(held)


@program
def many_at_once() -> Program:
    one, two, three = Thing(), Thing(), Thing()
    given = {"all": [one, two]}
    held: set[Any] = {three}

    def step(x: Tensor) -> Any:
        held.update(given["all"])
        count = len(held)
        held.difference_update(given["all"])
        return x * count + len(held)

    def before(call: int) -> None:
        given["all"] = [one, one] if call == 3 else [one, three] if call == 5 else [one, two]

    return step, before, lambda: len(held)


@program
def keys_and_new_lists_at_once() -> Program:
    one, two = Thing(), Thing()
    given: dict[str, Any] = {"one": one, "two": two, "all": {one: 1}}
    held: set[Any] = set()

    def step(x: Tensor) -> Any:
        held.update([given["one"], given["two"]])
        held.update(given["all"])
        return x * len(held)

    def before(call: int) -> None:
        held.clear()
        if call in (5, 6):
            held.add(two)
        given["two"] = one if call in (3, 4) else two
        given["all"] = {two: 1} if call == 4 else {one: 1, Thing(): 2}

    return step, before, lambda: len(held)


@program
def tuples_of_things() -> Program:
    one, two = Thing(), Thing()
    given: dict[str, Any] = {"one": one, "two": two}
    held: set[Any] = set()

    def step(x: Tensor) -> Any:
        held.clear()
        held.add((given["one"], 1))
        held.add((given["two"], 1))
        return x * len(held), (one, 1) in held

    def before(call: int) -> None:
        given["two"] = one if call in (3, 4) else two

    return step, before, lambda: len(held)


@program
def modules_passed_over() -> Program:
    net = network()
    passed: set[nn.Module] = {net[1]}

    def step(x: Tensor) -> Any:
        for it in net:
            if it not in passed:
                x = it(x)
        return x

    def before(call: int) -> None:
        if call == 4:
            passed.clear()

    return step, before, lambda: None


@program
def equal_by_a_method() -> Program:
    held = {Numbered(1), Numbered(2)}
    given = [Numbered(1)]

    def step(x: Tensor) -> Any:
        return x + 1 if given[0] in held else x - 1

    def before(call: int) -> None:
        given[0].number = 7 if call in (3, 4, 5) else 1
        if call == 5:
            held.add(Numbered(7))

    return step, before, lambda: None


@pytest.mark.parametrize("name", list(PROGRAMS.all))
def test_equals_plain_python(name: str) -> None:
    PROGRAMS.check(name)


def test_a_tensor_of_the_call_is_in_no_set_from_outside() -> None:
    held = {rows(0, 2), rows(1, 2)}

    def step(x: Tensor) -> Any:
        return (x * 2) in held, x in held

    compiled = stator.compile(step)
    member = next(iter(held))
    with stator.config.patch(skip_unprofitable=False):
        for given in (torch.ones(2), torch.ones(2), member, torch.ones(2), member):
            assert compiled(given) == step(given)
