"""Views of dictionaries that were made before the call: `self.names = table.keys()`."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

X = torch.arange(3.0)

MADE: dict[str, Callable[[dict[str, int]], Any]] = {
    "dict": dict,
    "OrderedDict": collections.OrderedDict,
    "defaultdict": lambda items: collections.defaultdict(int, items),
    "Counter": collections.Counter,
}

# What is asked of a view of any kind.
ASKED: dict[str, Callable[[Any], Any]] = {
    "bool": lambda view: (bool(view), not view, 1 if view else 2),
    "enumerated": lambda view: list(enumerate(view)),
    "from keys": dict.fromkeys,
    "gone over": lambda view: [entry for entry in view],
    "length": len,
    "list": list,
    "next": lambda view: next(iter(view)),
    "reversed": lambda view: list(reversed(view)),
    "set": lambda view: sorted(set(view)),
    "several": lambda view: [*view, *view],
    "sorted": lambda view: sorted(view, reverse=True),
    "tuple": tuple,
    "unpacked": lambda view: (lambda first, *others: (first, others))(*view),
    "zipped": lambda view: dict(zip(view, range(9))),
}
OF_KEYS: dict[str, Callable[[Any], Any]] = {
    "contains": lambda view: ("b" in view, "z" in view),
    "equal": lambda view: (view == {"a", "b"}, view <= {"a", "b", "c"}, view != view),
    "joined": lambda view: "-".join(view),
    "operators": lambda view: (sorted(view & {"a", "z"}), sorted(view - {"a"}), len(view | {"q"})),
}
PROGRAMS = [
    *((view, name, asked) for view in ("keys", "values", "items") for name, asked in ASKED.items()),
    *(("keys", name, asked) for name, asked in OF_KEYS.items()),
]


class Holder:
    """Has a dictionary, and a view of one: its own at first."""

    def __init__(self, made: str, view: str) -> None:
        self.table: Any = MADE[made]({"a": 1, "b": 2})
        self.view: Any = getattr(self.table, view)()


def steps(
    made: str, view: str, asked: Callable[[Any], Any], wrap: Callable[[Any], Any]
) -> list[Any]:
    """What calls give, with the dictionary, the view, and both changed between them."""
    held = Holder(made, view)

    def program(x: Tensor) -> Any:
        return x * len(held.table), asked(held.view), held.view is held.view

    run = wrap(program)
    found = [run(X) for _ in range(3)]
    held.table["c"] = 7
    found += [run(X) for _ in range(2)]
    held.table["a"] = 5
    del held.table["b"]
    found += [run(X) for _ in range(2)]
    # Another dictionary's, while the first stays as it is.
    other = MADE[made]({"q": 1, "b": 3})
    held.view = getattr(other, view)()
    found += [run(X) for _ in range(2)]
    other["r"] = 4
    return found + [run(X) for _ in range(2)]


def same(found: Any, expected: Any) -> bool:
    return repr(found) == repr(expected)


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize(("view", "name", "asked"), PROGRAMS, ids=lambda part: str(part)[:12])
def test_it_shows_what_the_dictionary_holds(
    made: str, view: str, name: str, asked: Callable[[Any], Any]
) -> None:
    with stator.config.patch(skip_unprofitable=False):
        found = steps(made, view, asked, stator.compile)
    assert same(found, steps(made, view, asked, lambda fn: fn)), name


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("view", ["keys", "values", "items"])
def test_it_is_part_of_the_trace(made: str, view: str) -> None:
    held = Holder(made, view)

    def program(x: Tensor) -> Any:
        named = dict(zip(held.view, range(2)))
        return x * len(held.view), list(held.view), named

    with stator.config.patch(skip_unprofitable=False):
        compiled = stator.compile(program, fullgraph=True)
        assert same(compiled(X), program(X))
        assert same(compiled(X), program(X))
        assert stator.stats(compiled).traces == 1
        assert compiled(X)[1] is not held.view


@pytest.mark.parametrize("view", ["keys", "values", "items"])
def test_what_the_trace_writes_shows(view: str) -> None:
    def calls(wrap: Callable[[Any], Any]) -> list[Any]:
        held = Holder("dict", view)

        def program(x: Tensor) -> Any:
            before = list(held.view)
            held.table["a"] += 1
            held.table[f"new {len(held.table) % 3}"] = 0
            return x * held.table["a"], before, list(held.view)

        run = wrap(program)
        return [run(X) for _ in range(6)]

    with stator.config.patch(skip_unprofitable=False):
        assert same(calls(stator.compile), calls(lambda fn: fn))


@pytest.mark.parametrize("made", MADE)
def test_the_view_itself_is_handed_out(made: str) -> None:
    held = Holder(made, "keys")

    def program(x: Tensor) -> Any:
        return x * len(held.view), held.view, [held.view]

    with stator.config.patch(skip_unprofitable=False):
        compiled = stator.compile(program)
        for _ in range(3):
            _, view, (listed,) = compiled(X)
            assert view is held.view and listed is held.view


class Sizes:
    """A view of an object's own attributes."""

    def __init__(self) -> None:
        self.rows = 2
        self.columns = 3


@pytest.mark.parametrize("name", ["keys", "values", "items"])
def test_attributes_of_an_object(name: str) -> None:
    def calls(wrap: Callable[[Any], Any]) -> list[Any]:
        sizes = Sizes()
        view: Mapping[str, int] = getattr(vars(sizes), name)()

        def program(x: Tensor) -> Any:
            sizes.rows += 1
            return x * sizes.columns, list(view), len(view)

        run = wrap(program)
        found = [run(X) for _ in range(3)]
        sizes.columns = 9
        sizes.depth = 1  # type: ignore[attr-defined]
        return found + [run(X) for _ in range(3)]

    with stator.config.patch(skip_unprofitable=False):
        assert same(calls(stator.compile), calls(lambda fn: fn))
