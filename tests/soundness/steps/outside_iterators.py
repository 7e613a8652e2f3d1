"""Programs that advance iterators of the caller's, whatever those go over; at the fourth call something else comes."""

from __future__ import annotations

import itertools
import operator
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .iterators import note, tensors

CALLS = 7
CHANGE = 4
"""From this call on the program is given something else."""


@dataclass
class Program:
    """A function with what it's called with."""

    fn: Callable[..., Any]
    given: Callable[[int], tuple[Any, ...]]
    """What the call of that number is given, besides a tensor."""
    left: Callable[[], Any] = field(default=lambda: None)
    """What is compared behind each call."""


BREAK = {
    "chain_of_one_iterator_twice",
    "chain_that_raises",
    "count_past_machine_words",
    "set_that_has_grown",
    "set_that_the_trace_changes",
    "trainable_of_a_chain",
    "accumulated",
    "longest",
    "behind_a_break",
    "one_within_the_other",
    "list_that_the_loop_grows",
    "deque_in_turn",
    "rows_of_a_list_of_its_own",
}
"""Those that break the graph, whatever else they do."""

PROGRAMS: dict[str, Callable[[], Program]] = {}


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    PROGRAMS[make.__name__] = make
    return make


def add_all(x: Tensor, items: Iterator[Any]) -> Any:
    for item in items:
        x = x * 0.5 + item
    return x, next(items, "end")


def add_two(x: Tensor, items: Iterator[Any]) -> Any:
    return x * next(items, 3.0) + next(items, 5.0)


def length_of_all(x: Tensor, items: Iterator[Any]) -> Any:
    names = []
    for item in items:
        names.append(item)
        x = x + len(item)
    return x, names


def fresh(fn: Callable[..., Any], before: Callable[[], Any], after: Callable[[], Any]) -> Program:
    """A new iterator for each call; what is left of it is compared."""
    last: list[Any] = []

    def given(number: int) -> tuple[Any, ...]:
        last[:] = [before() if number < CHANGE else after()]
        return (last[0],)

    def left() -> Any:
        found: list[Any] = []
        try:
            found.extend(itertools.islice(last[0], 3))
        except Exception as error:
            found.append(str(error))
        return found

    return Program(fn, given, left)


def kept(
    fn: Callable[..., Any], items: Any, step: Callable[[int, Any], Any] | None = None
) -> Program:
    """One iterator for all calls; `step` is what the caller does between."""

    def given(number: int) -> tuple[Any, ...]:
        if step is not None:
            step(number, items)
        return (items,)

    return Program(fn, given)


@program
def chained_lists() -> Program:
    return fresh(
        add_all,
        lambda: itertools.chain(tensors(2), (1.5, 2.5), tensors(1, 4.0)),
        lambda: itertools.chain(tensors(2), (1.5, 3.5), tensors(1, 4.0)),
    )


@program
def chain_of_other_lengths() -> Program:
    return fresh(
        add_all,
        lambda: itertools.chain(tensors(2), [], tensors(1)),
        lambda: itertools.chain(tensors(1), [], tensors(2)),
    )


@program
def chain_within_its_second_part() -> Program:
    def begun(last: Tensor | float) -> Any:
        items = itertools.chain([1.0, 2.0], [3.0, 4.0, last], {"a": 1})
        for _ in range(3):
            next(items)
        return items

    return fresh(add_two, lambda: begun(5.0), lambda: begun(torch.ones(3)))


@program
def chain_from_a_list_of_lists() -> Program:
    return fresh(
        add_all,
        lambda: itertools.chain.from_iterable([tensors(2), [2.0]]),
        lambda: itertools.chain.from_iterable([tensors(2), [2.0], [3.0]]),
    )


@program
def chain_of_one_iterator_twice() -> Program:
    def twice(count: int) -> Any:
        items = iter(tensors(count))
        return itertools.chain(items, [2.0], items)

    return fresh(add_all, lambda: twice(3), lambda: twice(2))


@program
def chain_that_raises() -> Program:
    return fresh(
        add_all,
        lambda: itertools.chain(tensors(1), [2.0]),
        lambda: itertools.chain(tensors(1), 7),  # type: ignore[arg-type]
    )


@program
def chain_kept_by_the_caller() -> Program:
    return kept(add_two, itertools.chain(tensors(5), tensors(5, 3.0), [1.0]))


@program
def sliced() -> Program:
    return fresh(
        add_all,
        lambda: itertools.islice(tensors(6), 1, 5, 2),
        lambda: itertools.islice(tensors(6), 0, 5, 2),
    )


@program
def slice_that_leaves_some() -> Program:
    source: list[Any] = []

    def given(number: int) -> tuple[Any, ...]:
        source[:] = [iter(tensors(6))]
        return (itertools.islice(source[0], 1, 3 if number < CHANGE else 4),)

    return Program(add_all, given, lambda: len(list(source[0])))


@program
def slice_of_what_the_caller_advances() -> Program:
    numbers = iter(range(100))

    def given(number: int) -> tuple[Any, ...]:
        next(numbers)
        return (itertools.islice(numbers, 3),)

    return Program(add_all, given, lambda: next(numbers))


@program
def slice_of_a_short_list() -> Program:
    return fresh(
        add_all,
        lambda: itertools.islice(tensors(2), 5),
        lambda: itertools.islice(tensors(3), 1, 5),
    )


@program
def cycle() -> Program:
    return kept(add_two, itertools.cycle(tensors(3)))


@program
def cycle_of_one_that_grows() -> Program:
    held: list[Any] = tensors(3)

    def step(number: int, _: Any) -> None:
        if number == 1:
            held.append(torch.full((3,), 7.0))

    return kept(add_two, itertools.cycle(held), step)


@program
def cycle_of_nothing() -> Program:
    return fresh(add_two, lambda: itertools.cycle([]), lambda: itertools.cycle([2.0]))


@program
def cycle_as_attribute() -> Program:
    class Loader:
        def __init__(self) -> None:
            self.batches = itertools.cycle(tensors(4))

    loader = Loader()

    def fn(x: Tensor) -> Any:
        return x + next(loader.batches)

    def given(number: int) -> tuple[Any, ...]:
        if number == CHANGE:
            loader.batches = itertools.cycle(tensors(2, 9.0))
        return ()

    return Program(fn, given, lambda: next(loader.batches))


@program
def count() -> Program:
    return kept(add_two, itertools.count())


@program
def count_that_the_caller_advances() -> Program:
    return kept(add_two, itertools.count(5), lambda number, items: next(items))


@program
def count_by_steps() -> Program:
    return fresh(add_two, lambda: itertools.count(2**40, 3), lambda: itertools.count(2, -1))


@program
def count_of_floats() -> Program:
    return fresh(add_two, lambda: itertools.count(0.5, 0.25), lambda: itertools.count(1.5))


@program
def count_past_machine_words() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        return x + 1, next(items), next(items), next(items)

    return fresh(fn, lambda: itertools.count(2**63 - 2), lambda: itertools.count(2**63 - 1))


@program
def number_of_each_call() -> Program:
    ids = itertools.count()
    names: list[str] = []

    def fn(x: Tensor) -> Any:
        names.append(f"call {next(ids)}")
        return x + 1

    return Program(fn, lambda number: (), lambda: list(names))


@program
def set_of_one() -> Program:
    return fresh(length_of_all, lambda: iter({"abc"}), lambda: iter({"abcd"}))


@program
def frozen_set_of_numbers() -> Program:
    return fresh(add_all, lambda: iter(frozenset(range(4))), lambda: iter(frozenset(range(5))))


@program
def set_that_has_grown() -> Program:
    def grown(then: bool) -> Any:
        held = {1, 2}
        items = iter(held)
        next(items)
        if then:
            held.add(3)
        return items

    return fresh(add_two, lambda: grown(False), lambda: grown(True))


@program
def set_that_the_trace_changes() -> Program:
    held: list[set[int]] = []

    def fn(x: Tensor, items: Iterator[Any], numbers: set[int]) -> Any:
        x = x + next(items)
        numbers.discard(100)
        return x + next(items)

    def given(number: int) -> tuple[Any, ...]:
        held[:] = [{1, 2, 3} if number < CHANGE else {1, 2, 100}]
        return iter(held[0]), held[0]

    return Program(fn, given, lambda: held[0])


@program
def letters() -> Program:
    return fresh(length_of_all, lambda: iter("abc"), lambda: iter("ab\u1234d"))


@program
def bytes_one_by_one() -> Program:
    return fresh(add_all, lambda: iter(b"abc"), lambda: iter(b"abd"))


@program
def reversed_values() -> Program:
    return fresh(
        add_all,
        lambda: reversed({"a": 1.0, "b": torch.ones(3), "c": 2.0}.values()),
        lambda: reversed({"a": 1.0, "b": torch.ones(3)}.values()),
    )


@program
def reversed_entries() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        order = []
        for key, value in items:
            order.append(key)
            x = x * 0.5 + value
        return x, order

    return fresh(
        fn,
        lambda: reversed({"a": 1.0, "b": torch.ones(3)}.items()),
        lambda: reversed({"b": 1.0, "a": torch.ones(3)}.items()),
    )


@program
def reversed_keys_with_holes() -> Program:
    def held(extra: str) -> Any:
        names = {name: 1 for name in ["a", "bb", "ccc", extra]}
        del names["bb"]
        return reversed(names)

    return fresh(length_of_all, lambda: held("dddd"), lambda: held("e"))


@program
def mapped_function() -> Program:
    def double(value: Any) -> Any:
        return value * 2

    def halve(value: Any) -> Any:
        return value / 2

    return fresh(add_all, lambda: map(double, tensors(3)), lambda: map(halve, tensors(3)))


@program
def mapped_operator_over_two() -> Program:
    return fresh(
        add_all,
        lambda: map(operator.mul, tensors(3), [1.0, 2.0]),
        lambda: map(operator.sub, tensors(3), [1.0, 2.0]),
    )


@program
def mapped_function_that_raises() -> Program:
    def check(value: Any) -> Any:
        if value == 3:
            raise ValueError(f"not {value}")
        return value

    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        try:
            for item in items:
                x = x + item
        except ValueError as error:
            return x, str(error), next(items, "end")
        return x, "all", None

    return fresh(fn, lambda: map(check, [1, 2, 3, 4]), lambda: map(check, [1, 2, 4, 3]))


@program
def filtered() -> Program:
    def is_small(value: Any) -> bool:
        return bool(value < 3)

    return fresh(
        add_all,
        lambda: filter(is_small, [1, 5, 2, 7]),
        lambda: filter(is_small, [1, 5, 2, 1]),
    )


@program
def filtered_by_truth() -> Program:
    return fresh(add_all, lambda: filter(None, [0, 1, "", 2]), lambda: filter(None, [0, 1, 0, 3]))


@program
def trainable_of_a_chain() -> Program:
    first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    for parameter in [*first.parameters(), *second.parameters()]:
        torch.nn.init.constant_(parameter, 0.5)

    def fn(x: Tensor, parameters: Iterator[Any]) -> Any:
        for parameter in parameters:
            x = x + parameter.sum()
        return x

    def given(number: int) -> tuple[Any, ...]:
        first.bias.requires_grad_(number < CHANGE)
        both = itertools.chain(first.parameters(), second.parameters())
        return (filter(lambda parameter: parameter.requires_grad, both),)

    return Program(fn, given)


@program
def accumulated() -> Program:
    return fresh(
        add_all,
        lambda: itertools.accumulate([1.0, 2.0, 3.0]),
        lambda: itertools.accumulate([1.0, 2.0, 4.0]),
    )


@program
def longest() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for left, right in items:
            x = x * left + right
        return x

    return fresh(
        fn,
        lambda: itertools.zip_longest(tensors(2), [1.0, 2.0, 3.0], fillvalue=0.5),
        lambda: itertools.zip_longest(tensors(2), [1.0, 2.0, 3.0], fillvalue=0.25),
    )


@program
def behind_a_break() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for item in items:
            x = x + item
            note()
            x = x * 0.5
        return x

    return fresh(
        fn,
        lambda: itertools.chain(tensors(2), itertools.islice(tensors(5, 3.0), 2)),
        lambda: itertools.chain(tensors(2), itertools.islice(tensors(5, 3.0), 1)),
    )


@program
def behind_an_exit() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for item in items:
            if x.sum() > 40:
                return x, "left"
            x = x + item
        return x, "end"

    return fresh(
        fn,
        lambda: itertools.chain(tensors(2), tensors(2, 5.0)),
        lambda: itertools.chain(tensors(2), tensors(1, 50.0), tensors(2)),
    )


@program
def two_names_for_one() -> Program:
    def fn(x: Tensor, left: Iterator[Any], right: Iterator[Any]) -> Any:
        x = x + next(left)
        x = x * next(right)
        return x - next(left, 0.0)

    def given(number: int) -> tuple[Any, ...]:
        one = itertools.chain([1.0], [2.0, 3.0])
        other = one if number >= CHANGE else itertools.chain([7.0], [5.0])
        return one, other

    return Program(fn, given)


@program
def one_within_the_other() -> Program:
    def fn(x: Tensor, outer: Iterator[Any], inner: Iterator[Any]) -> Any:
        x = x + next(outer)
        x = x * next(inner)
        return x - next(outer, 0.0)

    def given(number: int) -> tuple[Any, ...]:
        inner = iter([1.0, 2.0, 3.0, 4.0])
        outer = itertools.islice(inner if number >= CHANGE else iter([7.0, 8.0]), 3)
        return outer, inner

    return Program(fn, given)


@program
def list_that_the_loop_grows() -> Program:
    held: list[list[Any]] = []

    def fn(x: Tensor, items: Iterator[Any], queue: list[Any]) -> Any:
        for item in items:
            x = x + item
            if len(queue) < 4:
                queue.append(item * 2)
        return x, len(queue)

    def given(number: int) -> tuple[Any, ...]:
        held[:] = [[1.0, 2.0] if number < CHANGE else [1.0]]
        return itertools.chain(held[0], [3.0]), held[0]

    return Program(fn, given, lambda: held[0])


@program
def of_another_type() -> Program:
    return fresh(add_two, lambda: itertools.chain([1.0, 2.0, 3.0]), lambda: iter([1.0, 2.0, 3.0]))


@program
def exhausted() -> Program:
    def ended() -> Any:
        items = itertools.chain([1.0])
        list(items)
        return items

    return fresh(add_two, lambda: itertools.chain([1.0]), ended)


@program
def whole_list_of_it() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        held = list(items)
        return torch.stack(held).sum(0) + x, len(held)

    return fresh(
        fn,
        lambda: itertools.chain(tensors(2), tensors(1)),
        lambda: itertools.chain(tensors(2), tensors(2)),
    )


@program
def numbered_by_the_callee() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for place, item in enumerate(items):
            x = x * place + item
        return x

    return fresh(fn, lambda: iter(tensors(3)), lambda: iter(tensors(4)))


@program
def sliced_by_the_callee() -> Program:
    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        for item in itertools.islice(items, 2):
            x = x + item
        return x

    return kept(fn, iter(tensors(40)))


@program
def counted() -> Program:
    seen: Counter[str] = Counter()

    def fn(x: Tensor, names: list[str]) -> Any:
        seen.update(names)
        return x + seen["a"], Counter(names)["a"]

    return Program(
        fn, lambda number: (["a", "b", "a"] if number < CHANGE else ["b"],), lambda: dict(seen)
    )


@program
def deque_in_turn() -> Program:
    return fresh(add_all, lambda: iter(deque(tensors(2))), lambda: iter(deque(tensors(3))))


@program
def from_a_list_within_a_generator() -> Program:
    def parts(rows: list[Tensor]) -> Iterator[Tensor]:
        yield rows[0]
        for _ in range(2):
            yield from list(rows)

    def begun(count: int) -> Iterator[Tensor]:
        items = parts(tensors(count))
        next(items), next(items)
        return items

    def fn(x: Tensor, items: Iterator[Any]) -> Any:
        return x + next(items), next(items, "end"), next(items, "end")

    return fresh(fn, lambda: begun(2), lambda: begun(3))


class Rows(list[Any]):
    """Has a method of its own."""

    def scaled(self, x: Tensor, by: float) -> Tensor:
        for row in self:
            x = x + row * by
            note(by)
        return x


@program
def rows_of_a_list_of_its_own() -> Program:
    def fn(x: Tensor, rows: Rows, by: float) -> Any:
        for row in rows:
            x = x + row
            if x.sum() > 5:
                x = x * by
        return rows.scaled(x, by)

    return Program(fn, lambda n: (Rows(tensors(3 if n < CHANGE else 2)), n + 0.5))
