"""Sets from outside that are asked for one element: guarded for that element, whatever else they hold."""

from __future__ import annotations

from typing import Any

from differential.support import api
from torch import Tensor

from ..objects import Equal, X
from ..probe import Probe, Steps, flip, right_after, same, two_worlds


class First:
    pass


class Second:
    pass


def _asks(known: set[Any], wanted: Any) -> Any:
    return lambda x: x * 2 if wanted in known else x * 3


@flip
def test_a_class_that_is_added() -> Steps:
    known: set[Any] = {Second}
    yield _asks(known, First), (X,)
    known.add(First)
    yield None
    known.discard(First)
    yield None


@flip
def test_a_class_that_is_taken_out() -> Steps:
    known: set[Any] = {First, 3}
    yield _asks(known, First), (X,)
    known.remove(First)
    yield None
    known.add(First)
    yield None


@same
def test_other_elements_do_not_matter() -> Steps:
    known: set[Any] = {First, 3}

    def fn(x: Tensor) -> Tensor:
        return x * (First in known) + (Second not in known) * 2 + ("a" in known) * 4

    yield fn, (X,)
    for other in (5, "b", int, (1, 2), Equal(3), object()):
        known.add(other)
        yield None
    known.discard(3)
    yield None


@flip
def test_a_constant_found_by_another_of_its_value() -> Steps:
    known: set[Any] = {First, 1.0}
    yield _asks(known, 1), (X,)
    known.discard(True)
    yield None
    known.add(True)
    yield None


@right_after
def test_an_element_that_says_it_is_equal() -> Steps:
    class Like:
        def __hash__(self) -> int:
            return hash(First)

        def __eq__(self, other: object) -> bool:
            return other is First

    known: set[Any] = {Second}
    yield _asks(known, First), (X,)
    known.add(Like())
    yield None
    known.discard(First)
    yield None


@right_after
def test_classes_whose_metaclass_compares() -> Steps:
    class Meta(type):
        name = "a"

        def __hash__(cls) -> int:
            return 7

        def __eq__(cls, other: object) -> bool:
            return isinstance(other, Meta) and cls.name == other.name

    class One(metaclass=Meta):
        pass

    class Two(metaclass=Meta):
        pass

    known: set[Any] = {One}
    yield _asks(known, Two), (X,)
    type.__setattr__(Two, "name", "b")
    yield None


@right_after
def test_a_metaclass_that_begins_to_compare() -> Steps:
    class Meta(type):
        pass

    class One(metaclass=Meta):
        pass

    class Two(metaclass=Meta):
        pass

    known: set[Any] = {Two}
    yield _asks(known, One), (X,)
    Meta.__hash__ = lambda cls: 5  # type: ignore[assignment, method-assign]
    Meta.__eq__ = lambda cls, other: True  # type: ignore[assignment, method-assign]
    known.clear()
    known.add(Two)
    yield None


@right_after
def test_a_class_made_in_the_call() -> Steps:
    known: set[Any] = {First}

    def fn(x: Tensor) -> Tensor:
        made = type("Made", (), {})
        return x * 2 if made in known else x * 3

    yield fn, (X,)


@two_worlds
def test_asked_then_added_then_asked() -> Steps:
    known: set[Any] = {Second}

    def fn(x: Tensor, wanted: Any) -> Any:
        before = wanted in known
        if not before:
            known.add(wanted)
        return x * (1 + before), wanted in known, len(known)

    yield fn, (X, First)
    known.discard(First)
    yield None
    yield X, 5
    known.clear()
    yield None


@two_worlds
def test_added_then_asked() -> Steps:
    known: set[Any] = set()

    def fn(x: Tensor, wanted: Any) -> Any:
        known.add(wanted)
        return x + 1, Second in known, sorted(repr(one) for one in known)

    yield fn, (X, First)
    yield X, Second
    known.clear()
    yield X, 5


@right_after
def test_one_set_under_two_names() -> Steps:
    class Holder:
        left: set[Any] = {First}
        right: set[Any] = {Second}

    def fn(x: Tensor) -> Any:
        if First in Holder.left:
            Holder.right.discard(Second)
        return x * (Second in Holder.left) + (Second in Holder.right), len(Holder.right)

    yield fn, (X,)
    Holder.left = Holder.right = {First, Second}
    yield None


def test_a_symbolic_size_is_fixed_by_the_question() -> None:
    known = {4, 5}
    probe = Probe(lambda x: x * 2 if x.shape[0] in known else x * 3, dynamic=True)
    for size in (3, 4, 3, 5, 6):
        probe.right(X.new_ones(size))
    known.add(6)
    probe.right(X.new_ones(6))


def test_the_guard_is_printed() -> None:
    known: set[Any] = {First}

    def fn(x: Tensor) -> Tensor:
        return x + 1 if First in known and "a" not in known else x

    compiled = api.compile(fn)
    compiled(X)
    if not api.PLAIN:
        lines = "\n".join(compiled.guards()[0])
        assert "'a' not in " in lines and " in fn.__closure__" in lines, lines


def test_sets_of_classes_are_read_whole() -> None:
    known: set[Any] = {First, int}

    def fn(x: Tensor) -> Tensor:
        return x * len(known)

    probe = Probe(fn)
    probe.right(X)
    probe.steady(X)
    known.add(Second)
    probe.retraced(X)
