"""Numbers in outside containers, in `*args`, `**kwargs` and closures: symbols once they have changed."""

from __future__ import annotations

import collections
import copy
import dataclasses
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import stator

from .test_native_reads import PROGRAMS as NATIVE_READS
from .test_native_reads import outcome
from .test_programs import same


class Pair(NamedTuple):
    n: int
    other: int


@dataclasses.dataclass
class Settings:
    n: int
    sizes: Any = ()


def looped(x: Any, numbers: Any) -> Any:
    for number in numbers:
        x = x * number
    return x


def unpacked(x: Any, numbers: Any) -> Any:
    first, *rest = numbers
    return x * first + rest[0]


def items(x: Any, numbers: Any) -> Any:
    for name, number in numbers.items():
        x = x * number + len(name)
    return x


# What holds the numbers, and functions of it. Each takes two traces for all numbers.
LIST: list[Callable[[Any, Any], Any]] = [
    lambda x, c: x * c[0] + c[1],
    lambda x, c: x * c[-2],
    lambda x, c: x * sum(c),
    lambda x, c: x * max(c),
    lambda x, c: x + [2 * k for k in c][0],
    lambda x, c: x.new_zeros(c),
    lambda x, c: x.new_zeros(*c),
    lambda x, c: x + list(c)[0] + tuple(c)[1] + [*c, 1][0],
    lambda x, c: x + sum(a * b for a, b in zip(c, reversed(c), strict=True)),
    lambda x, c: (x, c[0], c),
    looped,
    unpacked,
]
DICT: list[Callable[[Any, Any], Any]] = [
    lambda x, c: x * c["n"],
    lambda x, c: x * c.get("n") + c.get("missing", 3),
    lambda x, c: x * sum(c.values()),
    lambda x, c: x * {**c, "more": 1}["n"],
    lambda x, c: x * dict(c)["n"],
    lambda x, c: (x, dict(c)),
    lambda x, c: x * c["n"] if "n" in c else x,
    lambda x, c: x if "n" not in c or "k" in c else x * c.get("n"),
    lambda x, c: (x * c.setdefault("n", 1), c.__contains__("n")),
    items,
]
MAKERS: dict[str, tuple[Callable[[int], Any], list[Callable[[Any, Any], Any]]]] = {
    "list": (lambda n: [n, 2], LIST),
    "tuple": (lambda n: (n, 2), LIST),
    "size": (lambda n: torch.Size([n, 2]), LIST),
    "named tuple": (lambda n: Pair(n, 2), [*LIST, lambda x, c: x * c.n]),
    "dict": (lambda n: {"n": n, "m": 2}, DICT),
    "nested": (
        lambda n: {"a": [(1, n), [n, 2]]},
        [
            lambda x, c: x * c["a"][0][1] + c["a"][1][0],
            lambda x, c: x * sum(pair[0] for pair in c["a"]),
            lambda x, c: x * sum(sum(pair) for value in c.values() for pair in value),
        ],
    ),
    "attributes": (
        lambda n: Settings(n, (n, [n + 1])),
        [lambda x, c: x * c.n + c.sizes[0] - c.sizes[1][0]],
    ),
    "floats": (lambda n: [n / 4, 2], [lambda x, c: x * c[0] + c[1]]),
}
CASES = [(name, at) for name, (_, functions) in MAKERS.items() for at in range(len(functions))]
NUMBERS = (4, 5, 6, 7, 3, 12, 8)


@pytest.mark.parametrize(("name", "at"), CASES)
def test_two_traces(name: str, at: int) -> None:
    make, functions = MAKERS[name]
    function = functions[at]
    compiled = stator.compile(function)
    for n in NUMBERS:
        x, given = torch.ones(3), make(n)
        assert same(function(x, make(n)), compiled(x, given)), f"for {n}"
        assert given == make(n)
    stats = stator.stats(compiled)
    assert (stats.traces, stats.native) == (2, 0), stats.reason


def test_the_same_object_comes_back() -> None:
    compiled = stator.compile(lambda x, c: (x * c[0], c, c is c, {"c": c}))
    for n in NUMBERS:
        for given in ((n, 2), [n, 2], Pair(n, 2)):
            _, found, is_same, held = compiled(torch.ones(2), given)
            assert found is given and is_same is True and held["c"] == given


def varied(x: Any, *args: Any, **kwargs: Any) -> Any:
    for number in args:
        x = x * number
    return x.view(*args[1:]) * kwargs["n"] + sum(kwargs.values())


@pytest.mark.parametrize("dynamic", [None, True])
def test_variadic_arguments(dynamic: bool | None) -> None:
    compiled = stator.compile(varied, dynamic=dynamic)
    for n in NUMBERS:
        x = torch.ones(n, 4)
        given, named = (n / 2, n, 2, 2), {"n": n, "m": 2}
        assert same(varied(x, *given, **named), compiled(x, *given, **named))
    assert stator.stats(compiled).traces == 2, "with `dynamic=True` 4 rows of 4 were one symbol"


def test_closures() -> None:
    factor = 1
    sizes = (2, 3)

    def scaled(x: Any) -> Any:
        return x * factor + (lambda: factor + sizes[0])()

    compiled = stator.compile(scaled)
    for factor in NUMBERS:  # noqa: B007
        sizes = (factor, 3)
        assert same(scaled(torch.ones(2)), compiled(torch.ones(2)))
    assert stator.stats(compiled).traces == 2


def test_a_closure_that_is_written() -> None:
    def counter() -> Any:
        count = 0

        def step(x: Any) -> Any:
            nonlocal count
            count += 2
            return x * count, count

        return step

    plain, counted = counter(), counter()
    compiled = stator.compile(counted)
    for _ in range(6):
        assert same(plain(torch.ones(2)), compiled(torch.ones(2)))
    assert stator.stats(compiled).traces <= 3


class Counter:
    __slots__ = ("n", "rate", "sizes")

    def __init__(self) -> None:
        self.n, self.rate, self.sizes = 0, 0.5, (2, 3)

    def step(self, x: Any) -> Any:
        self.n += 2
        self.rate = self.rate * 1.5
        self.sizes = (self.sizes[0] + 1, 3)
        return x * self.n / max(self.n - 1, 1), x.new_zeros(self.sizes), f"{self.n}: {self.rate}"


def test_slots_that_are_written() -> None:
    plain, counted = Counter(), Counter()
    compiled = stator.compile(lambda x: counted.step(x))
    for _ in range(8):
        assert same(plain.step(torch.ones(2)), compiled(torch.ones(2)))
        assert (plain.n, plain.rate, plain.sizes) == (counted.n, counted.rate, counted.sizes)
        assert [type(value) for value in (counted.n, counted.rate)] == [int, float]
    assert stator.stats(compiled).traces <= 3


def test_a_slot_that_is_read_only() -> None:
    held = Counter()

    def scaled(x: Any) -> Any:
        return x * held.n + held.rate + (lambda: held.n + held.sizes[0])()

    compiled = stator.compile(scaled)
    for n in NUMBERS:
        held.n, held.rate, held.sizes = n, n / 2, (n, 3)
        assert same(scaled(torch.ones(2)), compiled(torch.ones(2)))
    assert stator.stats(compiled).traces == 2
    # A number of another type, nothing, and what isn't one.
    for other in (1.5, True, torch.ones(2)):
        held.n = other
        assert same(scaled(torch.ones(2)), compiled(torch.ones(2)))
    del held.n
    with pytest.raises(AttributeError, match="n"):
        compiled(torch.ones(2))
    held.n = 12
    assert same(scaled(torch.ones(2)), compiled(torch.ones(2)))


def test_a_slot_that_is_deleted_and_written() -> None:
    held = Counter()

    def step(x: Any) -> Any:
        count = held.n
        held.n = count + 1
        del held.n
        held.n = 3
        return x * count

    compiled = stator.compile(step)
    for n in NUMBERS:
        held.n = n
        assert same(torch.ones(2) * n, compiled(torch.ones(2)))
        assert held.n == 3
    assert stator.stats(compiled).traces == 2


def test_slots_around_a_graph_break() -> None:
    plain, counted = Counter(), Counter()

    def step(x: Any, counter: Counter) -> Any:
        counter.n += 1
        x = x * counter.n
        stator.graph_break()
        counter.n += 1
        return x + counter.n, copy.copy(counter).n, counter.n == 6

    compiled = stator.compile(step)
    for _ in range(6):
        assert same(step(torch.ones(2), plain), compiled(torch.ones(2), counted))
        assert plain.n == counted.n


CONSTANT = (4, 2)


def test_a_constant_tuple_stays_one() -> None:
    """A tuple of the caller's may be a constant of the function's code."""

    def both(x: Any, sizes: Any) -> Any:
        held = (4, 2)
        return x * sizes[0] + held[0] * CONSTANT[0] + sum((4, 2)) + x.new_zeros((4, 2)).sum()

    constants = [each for each in both.__code__.co_consts if each == (4, 2)]
    compiled = stator.compile(both)
    for sizes in ((5, 2), constants[0], (6, 2), CONSTANT, (7, 2)):
        assert same(both(torch.ones(2), sizes), compiled(torch.ones(2), sizes))


# -- C code reads containers; the program changes them -------------------------------------------------


def mutated(change: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def function(x: Any, c: Any) -> Any:
        before = c[0]
        change(c)
        return x * c[0] + c[-1] + before, len(c), [k + 1 for k in c]

    return function


READS: dict[str, Callable[[Any, Any], Any]] = {
    "sorted": lambda x, c: x + sorted(c)[0],
    "text": lambda x, c: x + len(str(c)) + len(f"{c!r}"),
    "json": lambda x, c: x + len(json.dumps(c)),
    "equal": lambda x, c: x + (c == [4, 2]) + (c != [5, 2]) + (tuple(c) == (6, 2)),
    "less": lambda x, c: x + (c < [5, 2]),
    "in": lambda x, c: x + (5 in c) + c.count(6) + (c.index(2)),
    "set": lambda x, c: x + len(set(c)) + len(frozenset(c)) + len(dict.fromkeys(c)),
    "multiplied": lambda x, c: x + (c * 2)[2] + (c + [1])[0] + len(c * c[1]),
    "slices": lambda x, c: x + c[:1][0] + c[::-1][1],
    "sum of an iterator": lambda x, c: x + sum(iter(c)) + sum(k for k in c),
    "sum of values": lambda x, c: x + sum({"a": c[0], "b": 1}.values()),
    "sum of items": lambda x, c: x + sum(v for _, v in {"a": c[0]}.items()) + max({c[0]: 1}),
    "copies": lambda x, c: x + copy.copy(c)[0] + copy.deepcopy(c)[0] + c.copy()[0],
    "counter": lambda x, c: x + collections.Counter(c)[4],
    "deque": lambda x, c: x + collections.deque(c)[0] + collections.deque(c, c[1])[0],
    "bytes": lambda x, c: x + bytes(c)[0] + sum(bytearray(c)),
    "any": lambda x, c: x + any(k - 4 for k in c) + all(c) + any([c[0] - 4]),
    "tensor": lambda x, c: x + torch.tensor(c).sum() + torch.tensor(c[0]),
    "index": lambda x, c: x + torch.arange(20)[c].sum() + list(range(20))[c[0]],
    "append": mutated(lambda c: c.append(c[0] + 1)),
    "insert": mutated(lambda c: c.insert(0, 9)),
    "pop": mutated(lambda c: c.pop()),
    "pop first": mutated(lambda c: c.append(c.pop(0))),
    "set item": mutated(lambda c: c.__setitem__(1, c[0])),
    "sort": mutated(lambda c: c.sort()),
    "reverse": mutated(lambda c: c.reverse()),
    "extend": mutated(lambda c: c.extend(c)),
    "clear": mutated(lambda c: (c.append(1), c.clear(), c.append(7))),
    "delete": mutated(lambda c: c.__delitem__(0)),
}


@pytest.mark.parametrize("name", READS)
def test_reads_and_writes_of_lists(name: str) -> None:
    function = READS[name]
    compiled = stator.compile(function, recompile_limit=40)
    for n in (4, 5, 6, 7, 5, 4, 8, 3, 2):
        plain, given = [n, 2], [n, 2]
        x = torch.ones(2)
        expected, found = outcome(function, x, plain), outcome(compiled, x.clone(), given)
        assert same(expected, found), f"for {n}: {expected} != {found}"
        assert same(plain, given), f"for {n}: {plain} != {given}"


def test_numbers_that_are_taken_out_of_lists_stay_symbols() -> None:
    """What takes an element out by its place looks at none."""

    def taken(x: Any, c: Any, n: int) -> Any:
        own = [n, n + 1, n + 2]
        own.__delitem__(1)
        del own[1]
        return x * own.pop(), c.pop()

    compiled = stator.compile(taken)
    for n in (4, 5, 6, 7, 5, 9):
        plain, given = [n, 3, n + 1], [n, 3, n + 1]
        expected = taken(torch.ones(2), plain, n)
        assert same(expected, compiled(torch.ones(2), given, n))
        assert plain == given == [n, 3]
    assert stator.stats(compiled).traces == 2


@pytest.mark.parametrize("held", ["list", "tuple", "dict", "args", "closure", "attribute", "slot"])
def test_native_reads_of_what_containers_hold(held: str) -> None:
    class Held:
        n = 0

    class Slotted:
        __slots__ = ("n",)

    n = 0
    for name, function in NATIVE_READS.items():

        def program(x: Any, given: Any, *args: Any, function: Any = function) -> Any:
            match held:
                case "args":
                    return function(x, args[0])
                case "closure":
                    return function(x, n)
                case "attribute" | "slot":
                    return function(x, given.n)
                case "dict":
                    return function(x, given["n"])
            return function(x, given[0])

        compiled = stator.compile(program, recompile_limit=40)
        for n in (4, 5, 6, 5, 8, 3):
            x = torch.arange(n * 3.0).reshape(n, 3)
            holder = Slotted() if held == "slot" else Held()
            holder.n = n
            given: Any = {"list": [n], "tuple": (n,), "dict": {"n": n}}.get(held, holder)
            args = (n,) if held == "args" else ()
            expected = outcome(program, x, given, *args)
            found = outcome(compiled, x.clone(), given, *args)
            assert same(expected, found), f"{name}, n = {n}: {expected} != {found}"


def leaves_of(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in leaves_of(each)]
    if isinstance(value, list | tuple):
        return [leaf for each in value for leaf in leaves_of(each)]
    return [value]


ENDS: dict[str, Callable[[Any, Any], Any]] = {
    "returns": lambda x, c: x * sum(c["l"]) + c["t"][0] * c["d"]["k"],
    "raises": lambda x, c: x.view(c["l"][0] * c["t"][0] * c["d"]["k"] + 1, -1),
    "breaks": lambda x, c: (x * c["l"][0], stator.graph_break(), x * sum(c["d"].values())),
    "fails half way": lambda x, c: [x * k for k in c["l"] if [][k] or True],
    "leaves a generator": lambda x, c: (x * c["l"][0], (k for k in c["l"])),
    "keeps a function": lambda x, c: (x * c["t"][0], lambda: c["l"][0] + c["t"][0]),
    "an exception in flight": lambda x, c: (_ for _ in c["l"]).throw(KeyError(c["l"][0])),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_containers_hold_the_objects_that_they_held(end: str, backend: str) -> None:
    function = ENDS[end]
    compiled = stator.compile(function, backend=backend)
    for n in (1004, 1005, 1006, 1007):
        given = {"l": [n, n + 1, n], "t": (n + 2, 3), "d": {"k": n + 3, "m": n}, "n": [[n]]}
        before = leaves_of(given)
        x = torch.ones(2)
        expected, found = outcome(function, x, given), outcome(compiled, x, given)
        assert isinstance(found, type) == isinstance(expected, type)
        after = leaves_of(given)
        assert len(after) == len(before)
        for old, new in zip(before, after, strict=True):
            assert old is new and type(new) is int
        results = [each for each in leaves_of(found) if not callable(each)]
        numbers = (int, float, torch.Tensor, type(None))
        assert all(type(each) in numbers or end == "leaves a generator" for each in results)


def test_a_list_that_holds_itself_often() -> None:
    """Each search for numbers goes into it once: along all ways through it, it never ended."""

    def spelt(x: torch.Tensor, n: int, items: list[Any]) -> Any:
        texts = sorted(str(item) for item in items)
        return x * n + len(texts[0]), len(items), max(items, key=id) is items

    items: list[Any] = [1]
    items.extend([items] * 40)
    compiled = stator.compile(spelt, dynamic=True)
    for n in (3, 4, 3, 6):
        assert repr(compiled(torch.ones(2), n, items)) == repr(spelt(torch.ones(2), n, items))
