"""What iterators give next: read where they stand, as `next` would give it, and nothing is advanced."""

from __future__ import annotations

import gc
import itertools
import sys
from collections import OrderedDict, deque
from typing import Any

import pytest

from .support import Guards


class Reversible:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, place: int) -> int:
        raise AssertionError("code has run")


def grown() -> Any:
    items = [1, 2]
    pieces = iter(items)
    next(pieces)
    items.append(3)
    return pieces


def shrunk(make: Any) -> Any:
    items = [1, 2, 3, 4]
    pieces = make(items)
    next(pieces)
    del items[1:]
    return pieces


def with_holes() -> Any:
    held = {i: str(i) for i in range(8)}
    for key in (0, 3, 4):
        del held[key]
    return held


def ordered() -> Any:
    """Its own order isn't the table's."""
    held = OrderedDict((key, i) for i, key in enumerate(["a", 2, (3,), "d", "e"]))
    held.move_to_end("a")
    held.move_to_end("e", last=False)
    del held[2]
    held[2] = "again"
    held["d"] = "other"
    return held


def set_with_holes() -> Any:
    held = set(range(8))
    held -= {0, 3, 4}
    return held


class WithAttributes:
    """Its dictionary shares its keys with others'."""

    def __init__(self) -> None:
        self.a, self.b, self.c = 1, 2, 3


def attributes() -> Any:
    WithAttributes()
    return WithAttributes().__dict__


# Each can be gone over to its end, and has the parts that `zip` has.
LEAVES: dict[str, Any] = {
    "list": lambda: iter([1, "a", None]),
    "grown": grown,
    "shrunk": lambda: shrunk(iter),
    "shrunk_reversed": lambda: shrunk(reversed),
    "tuple": lambda: iter((1, "a", None)),
    "reversed_list": lambda: reversed([1, "a", None]),
    "reversed_tuple": lambda: reversed((1, "a", None)),
    "range": lambda: iter(range(3, 12, 2)),
    "downwards": lambda: iter(range(3, -9, -4)),
    "keys": lambda: iter({1: "a", "b": 2}),
    "holes": lambda: iter(with_holes()),
    "values_with_holes": lambda: iter(with_holes().values()),
    "attributes": lambda: iter(attributes()),
    "values_of_attributes": lambda: iter(attributes().values()),
    "ordered": lambda: iter(ordered()),
    "ordered_values": lambda: iter(ordered().values()),
    "ordered_and_empty": lambda: iter(OrderedDict()),
    "repeat": lambda: itertools.repeat("x", 3),
    "text": lambda: iter("abc"),
    "wide_text": lambda: iter("a\u1234\U0001f600"),
    "bytes": lambda: iter(b"abc"),
    "set": lambda: iter({"x", 2, (3,)}),
    "frozenset": lambda: iter(frozenset(range(5))),
    "set_with_holes": lambda: iter(set_with_holes()),
    "keys_backwards": lambda: reversed({1: "a", "b": 2}),
    "holes_backwards": lambda: reversed(with_holes()),
    "values_with_holes_backwards": lambda: reversed(with_holes().values()),
    "attributes_backwards": lambda: reversed(attributes()),
    "chain": lambda: itertools.chain([1], "ab", {3: 4}, range(2), (5,), {6}, b"c", frozenset()),
    "chain_of_iterators": lambda: itertools.chain(iter([1, 2]), iter(range(2))),
    "chain_of_chains": lambda: itertools.chain(itertools.chain([1], [2]), itertools.chain()),
    "chain_from_a_list": lambda: itertools.chain.from_iterable([[1], [], [2]]),
    "chain_of_nothing": lambda: itertools.chain(),
    "slice": lambda: itertools.islice([1, 2, 3, 4], 3),
    "slice_by_steps": lambda: itertools.islice(iter(range(20)), 1, 12, 3),
    "slice_to_its_stop": lambda: itertools.islice("abcdefgh", 0, 5, 2),
    "slice_behind_the_end": lambda: itertools.islice([1, 2], 5, 7),
    "slice_of_a_chain": lambda: itertools.islice(itertools.chain([1, 2], (3, 4)), 1, 3),
    "slice_of_a_cycle": lambda: itertools.islice(itertools.cycle("abc"), 2, 7),
    "slice_of_a_count": lambda: itertools.islice(itertools.count(3, -2), 4),
    "slice_of_floats": lambda: itertools.islice(itertools.count(0.1, 0.1), 4),
    "slice_of_half_floats": lambda: itertools.islice(itertools.count(0.5), 4),
    "slice_near_the_last_word": lambda: itertools.islice(itertools.count(2**63 - 4), 3),
    "cycle_of_nothing": lambda: itertools.cycle([]),
    "empty": lambda: iter([]),
    "empty_dict": lambda: iter({}.values()),
}


def found(iterator: Any, count: int, build: Any) -> list[Any] | None:
    """What a checker reads at sources made by `build`; `None`: it can't be read."""
    guards = Guards()
    root = guards.arg()
    guards.build(*[source for place in range(count) for source in build(guards, root, place)])
    return guards.objects(iterator) if guards.passes(iterator) else None


def gives(iterator: Any, items: int, ends: bool, parts: int | None = None) -> bool:
    """`parts`: how many things it goes over; none says: as many as it does."""

    def holds(parts: int) -> bool:
        guards = Guards()
        guards.guard(guards.arg(), "gives", (items, ends, parts))
        return guards.build().passes(iterator)

    return holds(parts) if parts is not None else any(map(holds, range(12)))


def one(guards: Any, root: Any, place: int) -> list[Any]:
    return [guards.upcoming(root, index=place)]


@pytest.mark.parametrize("passed", range(4))
@pytest.mark.parametrize("name", list(LEAVES))
def test_items(name: str, passed: int) -> None:
    def make() -> Any:
        iterator = LEAVES[name]()
        for _ in range(passed):
            next(iterator, None)
        return iterator

    expected = list(make())
    iterator = make()
    for count in range(len(expected) + 2):
        assert gives(iterator, count, False) is (count <= len(expected))
        assert gives(iterator, count, True) is (count == len(expected))
        if count:
            known = expected[:count] if count <= len(expected) else None
            assert found(iterator, count, one) == known
    assert list(iterator) == expected


@pytest.mark.parametrize("passed", range(3))
def test_entries(passed: int) -> None:
    for held in ({"a": 1, "b": 2, 3: 4}, with_holes(), attributes(), ordered()):
        iterator = iter(held.items())
        for _ in range(passed):
            next(iterator, None)
        expected = list(held.items())[passed:]

        def both(guards: Any, root: Any, place: int) -> list[Any]:
            return [guards.upcoming_key(root, index=place), guards.upcoming(root, index=place)]

        flat = [part for entry in expected for part in entry]
        assert found(iterator, len(expected), both) == flat
        assert found(iterator, len(expected) + 1, both) is None
        assert gives(iterator, len(expected), True)
        assert list(iterator) == expected
    assert found(iter({1: 2}), 1, lambda g, r, p: [g.upcoming_key(r, index=p)]) is None


def test_ordered_dicts_that_cannot_be_gone_over() -> None:
    for change in (
        lambda held: held.move_to_end("a"),
        lambda held: held.pop("d"),
        lambda held: held.update(new=1),
        lambda held: held.clear(),
    ):
        held = OrderedDict.fromkeys("abcd")
        iterator = iter(held.items())
        next(iterator)
        change(held)
        assert not gives(iterator, 1, False) and not gives(iterator, 0, True)
    held = OrderedDict.fromkeys("abcd")
    for iterator in (reversed(held), iter(dict.items(held)), iter(dict.values(held))):
        assert not gives(iterator, 1, False)
        assert len(list(iterator)) == 4


def test_combined() -> None:
    def of(guards: Any, root: Any, place: int) -> list[Any]:
        inner = guards.iterated(root)
        return [guards.upcoming(root, index=place), guards.upcoming(inner, index=place)]

    iterator = enumerate(iter(["a", "b", "c"]), 5)
    next(iterator)
    assert found(iterator, 2, of) == [6, "b", 7, "c"]
    assert found(iterator, 3, of) is None
    assert gives(iterator, 2, True) and list(iterator) == [(6, "b"), (7, "c")]
    most = 2**63 - 3
    # Beyond that it counts with an object.
    assert gives(enumerate([1, 2, 3], most), 2, False)
    assert not gives(enumerate([1, 2, 3], most), 3, False)
    assert not gives(enumerate([1], 2**70), 1, False)

    def pair(guards: Any, root: Any, place: int) -> list[Any]:
        return [guards.upcoming(guards.iterated(root, index=part), index=place) for part in (0, 1)]

    iterator = zip([1, 2, 3], {"a": 4, "b": 5})
    assert found(iterator, 2, pair) == [1, "a", 2, "b"]
    assert found(iterator, 1, one) is None
    assert gives(iterator, 2, True, 2) and not gives(iterator, 2, True, 3)
    assert gives(zip(), 0, True)
    assert list(iterator) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("passed", range(9))
def test_rounds_of_a_cycle(passed: int) -> None:
    for items in ([1, 2, 3], "ab", (7,)):
        iterator = itertools.cycle(items)
        first = [next(iterator) for _ in range(passed)]
        expected = (list(items) * 20)[passed : passed + 8]
        assert found(iterator, 8, one) == expected
        assert gives(iterator, 8, False) and not gives(iterator, 8, True)
        assert [next(iterator) for _ in range(8)] == expected and len(first) == passed


def test_a_set_in_its_order() -> None:
    for held in ({"a", "b", 7, (1, 2)}, frozenset("abcdef"), set_with_holes(), set()):
        expected = list(held)
        assert gives(held, len(expected), True, 0) and not gives(held, len(expected) + 1, False)
        assert found(held, len(expected), one) == expected


def test_an_iterator_over_a_set_that_has_changed() -> None:
    held = {1, 2, 3}
    iterator = iter(held)
    next(iterator)
    assert gives(iterator, 2, True)
    held.add(4)
    assert not gives(iterator, 1, False)
    held.remove(4)
    assert gives(iterator, 2, True) and len(list(iterator)) == 2


@pytest.mark.parametrize("strict", [False, True])
def test_how_a_zip_ends(strict: bool) -> None:
    """It's as plain Python has it, for all lengths of three lists; where that raises nothing is said."""
    for lengths in itertools.product(range(3), repeat=3):
        iterator = zip(*[range(length) for length in lengths], strict=strict)
        items = min(lengths)
        raises = strict and len(set(lengths)) > 1
        assert gives(iterator, items, True, 3) is not raises
        assert gives(iterator, items, False, 3)
        assert not gives(iterator, items + 1, False, 3)
        if raises:
            with pytest.raises(ValueError, match="argument"):
                list(iterator)
        else:
            assert len(list(iterator)) == items


def test_one_that_has_ended_goes_over_nothing() -> None:
    """One at the end of its list isn't that: the list may grow. From 3.13 on one that goes backward keeps its list, and
    is in one state before and behind its end."""
    for make in (iter, reversed, lambda items: iter(dict.fromkeys(items))):
        iterator = make([1, 2])
        for _ in range(2):
            assert gives(iterator, 0, False, 1) and not gives(iterator, 0, False, 0)
            next(iterator)
        assert gives(iterator, 0, True, 1) and not gives(iterator, 0, True, 0)
        assert next(iterator, None) is None
        kept = len(gc.get_referents(iterator))
        assert kept == (make is reversed and sys.version_info >= (3, 13))
        assert gives(iterator, 0, True, kept) and not gives(iterator, 0, True, 1 - kept)
    assert gives(iter(range(2)), 2, True, 0)
    assert gives(enumerate([1]), 1, True, 1)
    assert gives(itertools.repeat(1), 9, False, 1)


def test_nothing_is_said_of_others() -> None:
    held = {1: 1, 2: 2, 3: 3}
    resized = iter(held)
    held[4] = 4
    swapped = {1: 1, 2: 2}
    other_keys = iter(swapped.values())
    next(other_keys), swapped.pop(1), swapped.update({5: 5})
    assert gives(other_keys, 1, False) and not gives(other_keys, 1, True)
    others = [
        resized,
        iter(deque([1])),
        iter(bytearray(b"ab")),
        itertools.chain(7, [1]),  # type: ignore[arg-type]
        itertools.chain({2: 3}.items(), [1]),
        itertools.chain.from_iterable([i] for i in range(3)),
        itertools.islice(zip([1], [2]), 1),
        itertools.islice(range(99), 40, None),
        itertools.count(2**63),
        itertools.count(1, 0.5),
        itertools.cycle(map(str, [1])),
        (i for i in range(3)),
        map(str, [1]),
        reversed(Reversible()),
        enumerate(map(str, [1])),
        filter(None, [1]),
        itertools.starmap(str, [(1,)]),
        zip([1], map(str, [1])),
        7,
        (1,),
    ]
    for other in others:
        assert not gives(other, 1, False)
        assert not gives(other, 0, True)
        assert found(other, 1, one) is None
    for then in (7, {2: 3}.items(), map(str, [1])):
        chain = itertools.chain([1], then)  # type: ignore[arg-type]
        assert gives(chain, 1, False)
        assert not gives(chain, 1, True) and not gives(chain, 2, False)


def test_items_are_guarded() -> None:
    """They are arguments of their own: other ones are asked at each call, also where a snapshot was taken."""
    guards = Guards()
    root = guards.arg()
    item = guards.upcoming(root, index=1)
    guards.guard(root, "gives", (2, False, 1))
    guards.guard(guards.attr(item, "v"), "equals", 3)
    guards.guard(guards.iterated(root), "type", list)
    guards.build(item)

    class Item:
        def __init__(self, v: int) -> None:
            self.v = v

    three, four = Item(3), Item(4)
    for _ in range(3):
        assert guards.objects(iter([four, three])) == [three]
        assert guards.passes(iter([three, three, four]))
        assert not guards.passes(iter([three, four]))
        assert not guards.passes(iter([three]))
        assert not guards.passes(iter((four, three)))
        assert not guards.passes(reversed([three]))
    four.v, three.v = 3, 4
    assert guards.passes(iter([three, four])) and not guards.passes(iter([four, three]))
    assert guards.set.report()[4] is None


def test_how_many_a_list_holds() -> None:
    """Of these, how many there are at least is asked; what they hold is found from either end."""
    for held in ([1, 2], deque([1, 2])):
        assert gives(held, 0, False) and gives(held, 2, False) and gives(held, 2, True)
        assert not gives(held, 3, False) and not gives(held, 1, True)
