"""`+=` and such where the class has a method in Python: what that writes its frame says, and what it reads is guarded."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

import torch
from torch import Tensor

from ..probe import Steps, two_worlds

X = torch.ones(2)


class Tally(dict[str, int]):
    """A dictionary that is added to."""

    def __iadd__(self, name: str) -> Tally:
        self[name] = self.get(name, 0) + 1
        return self

    def __isub__(self, name: str) -> Any:
        self.pop(name, None)
        return OrderedDict(self)


ADDS = Tally.__iadd__


class Rows(set[int]):
    def __ior__(self, other: Any) -> Rows:  # type: ignore[override,misc]
        self.add(len(other))
        return self


@two_worlds
def a_counter() -> Steps:
    held = {"seen": Counter(a=2)}

    def step(x: Tensor, names: str) -> Any:
        held["seen"] += Counter(names)
        held["seen"] -= Counter(a=1)
        return x * held["seen"].total(), dict(held["seen"]), held["seen"].most_common(1)

    yield step, (X, "ab")
    yield X, "bcc"
    held["seen"]["b"] = 7
    yield X, "bcc"
    held["seen"] = Counter()
    yield X, "a"


@two_worlds
def a_counter_of_the_trace() -> Steps:
    def step(x: Tensor, names: str) -> Any:
        seen = Counter(names)
        seen += Counter(b=x.shape[0])
        seen |= Counter(z=3)
        seen &= Counter(a=1, b=5, z=9)
        return x + 1, dict(seen)

    yield step, (X, "aab")
    yield torch.ones(4), "aab"
    yield torch.ones(7), "z"


@two_worlds
def a_dictionary() -> Steps:
    Tally.__iadd__ = ADDS  # type: ignore[method-assign]
    tally = Tally(a=1)

    def step(x: Tensor, name: str) -> Any:
        nonlocal tally
        tally += name
        other: Any = tally
        other -= "zz"
        return x * tally[name], list(tally), type(other).__name__

    yield step, (X, "a")
    yield X, "b"
    tally["b"] = 10
    yield X, "b"
    Tally.__iadd__ = lambda self, name: self  # type: ignore[method-assign]
    yield X, "b"


@two_worlds
def a_set() -> Steps:
    rows = Rows([1])

    def step(x: Tensor, text: str) -> Any:
        nonlocal rows
        rows |= text  # type: ignore[arg-type]
        return x + len(rows), sorted(rows)

    yield step, (X, "a")
    yield X, "bcd"
    rows.clear()
    yield X, "bcd"


class Row(list[int]):
    def __iadd__(self, other: Any) -> Any:  # type: ignore[misc]
        if isinstance(other, str):
            self.append(len(other))
            return self
        return NotImplemented


@two_worlds
def a_list_of_another_class() -> Steps:
    """What the class doesn't know C code adds itself."""
    row = Row([1])

    def step(x: Tensor, more: Any) -> Any:
        nonlocal row
        row += more
        own = Row(row)
        own += more
        return x * len(row), list(row), list(own)

    yield step, (X, "abc")
    yield X, [4, 5]
    row.clear()
    yield X, [6]
    yield X, "z"


@two_worlds
def views_with_nothing_in_common() -> Steps:
    held = {"a": 1, "b": 2}

    def step(x: Tensor, names: Any) -> Any:
        keys = held.keys().isdisjoint(names)
        return x + keys, held.items().isdisjoint([("a", 1)]), {}.keys().isdisjoint(held)

    yield step, (X, ["c"])
    yield X, ("a", "c")
    yield X, {"d": 1}
    del held["a"]
    yield X, ["a"]
    held["c"] = 3
    yield X, ["c"]


test_a_counter = a_counter
test_a_counter_of_the_trace = a_counter_of_the_trace
test_a_dictionary = a_dictionary
test_a_set = a_set
test_a_list_of_another_class = a_list_of_another_class
test_views = views_with_nothing_in_common
