"""Methods of C types as values: of the types, and bound to the objects, that plain Python gives."""

from __future__ import annotations

import fnmatch
import functools
import operator
import re
import types
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

from ..objects import X
from ..probe import Probe, Steps, flip, right_after, two_worlds


class Named(list):
    """A list with C methods as attributes of its class."""

    put = list.append
    put_all = list.extend
    keys = dict.fromkeys
    text = "a{}".format
    length = staticmethod(len)

    def inherited(self) -> Any:
        return super().append


class Meta(type):
    @classmethod
    def made_by(cls) -> str:
        return cls.__name__

    @staticmethod
    def three() -> int:
        return 3


class Made(metaclass=Meta):
    pass


def of_list(x: Tensor) -> Any:
    items = [x + 1]
    return items.append, items


def of_constants(x: Tensor) -> Any:
    number = 3
    return "a{}".format, ", ".join, number.__add__, (1.5).__mul__, b"ab".hex, range(5).index, x + 1


def of_slots(x: Tensor) -> Any:
    items = [x * 2]
    return items.__len__, items.__iter__, items.__len__(), x + 1


def of_dict(x: Tensor) -> Any:
    table = {"a": x + 1}
    return table.get, table.get("a"), table.setdefault, table.items


def of_tensors(x: Tensor) -> Any:
    made = x * 2
    return made.add_, x.add_, made.add, x.sum.__name__, x.add_.__self__ is x


def of_class(x: Tensor) -> Any:
    table: dict[str, int] = {}
    number = 5
    made = table.fromkeys([1, 2]), number.from_bytes(b"\1\2", "big")
    return made, dict.fromkeys, int.from_bytes, list.append, torch.Tensor.add, x + 1


def of_class_attributes(x: Tensor) -> Any:
    items = Named()
    items.put(x + 1)
    more = items.put_all
    more([x])
    made = items.keys([1]), items.text(3), items.length([1]), items.inherited()
    return made, list(items), more.__name__, items


def of_metaclass(x: Tensor) -> Any:
    return Made.made_by(), Made.three(), Made.mro.__name__, type(Made.mro).__name__, x + 1


def of_others(x: Tensor) -> Any:
    held, queue = {1}, deque([1])
    put, front = held.add, queue.appendleft
    put(2)
    front(0)
    return held, queue, put, front, x + 1


def types_of_methods(x: Tensor) -> Any:
    put = [1].append
    kinds = types.BuiltinMethodType, types.MethodType, types.BuiltinFunctionType
    told = type(put).__name__, put.__name__, put.__qualname__, put.__self__, put.__doc__
    return [isinstance(put, kind) for kind in kinds], told, hasattr(put, "__func__"), x + 1


def no_function(x: Tensor) -> Any:
    put = [1].append
    try:
        return put.__func__  # type: ignore[attr-defined]
    except AttributeError as error:
        return str(error), x + 1


def wrong_receiver(x: Tensor) -> Any:
    class_ = types.new_class("Wrong")
    class_.put = list.append
    try:
        return class_().put
    except TypeError as error:
        return str(error), x + 1


def equal(x: Tensor) -> Any:
    items, others = [1], [1]
    same = items.append == items.append, items.append is items.append
    other = items.append == others.append, items.append == items.extend
    return same, other, items.__len__ == items.__len__, x + 1


def given_to_c_code(x: Tensor) -> Any:
    table = {"a": 3, "b": 2}
    found = list(map(table.get, "abc")), sorted("ab", key=table.get), max(table, key=table.get)
    kept = list(filter({1, 2}.__contains__, [0, 1, 2, 3]))
    return found, kept, list(map("x".__add__, "ab")), x + 1


def partials(x: Tensor) -> Any:
    table = {"a": 3}
    get = functools.partial(table.get, "z", 7)
    return get(), get, functools.partial((x * 2).mul)(3), operator.attrgetter("append")([x])


def stored(x: Tensor) -> Any:
    items: list[Tensor] = []
    calls = {"one": items.append, "all": items.extend, "relu": x.relu}
    calls["one"](x + 1)
    calls["all"]([x, calls["relu"]()])
    return items, calls


def across_a_break(x: Tensor) -> Any:
    items: list[Tensor] = []
    put, length = items.append, items.__len__
    put(x + 1)
    stator.graph_break()
    put(x + 2)
    return items, length(), put


ALL = [
    of_list,
    of_constants,
    of_slots,
    of_dict,
    of_tensors,
    of_class,
    of_class_attributes,
    of_metaclass,
    of_others,
    types_of_methods,
    no_function,
    wrong_receiver,
    equal,
    given_to_c_code,
    partials,
    stored,
    across_a_break,
]


@pytest.mark.parametrize("fn", ALL, ids=lambda fn: fn.__name__)
def test_methods_are_plain_pythons(fn: Callable[[Tensor], Any]) -> None:
    api.reset()
    probe = Probe(fn)
    for given in (X, X, X, X * 2, torch.ones(2), torch.ones(2)):
        probe.right(given.clone())


@pytest.mark.skipif(api.PLAIN, reason="plain mode has no statistics")
def test_a_method_bound_by_each_call_is_guarded_by_its_parts() -> None:
    api.reset()
    compiled = stator.compile(across_a_break)
    for _ in range(6):
        compiled(X)
    assert stator.stats(compiled).traces <= 2


ITEMS: list[int] = [1]
PUT, LENGTH = ITEMS.append, ITEMS.__len__


@flip
def test_contents_behind_a_method_from_outside() -> Steps:
    items = [1]
    held = [items.__len__, items.count]
    yield (lambda x: x * held[0]() + held[1](1)), (X,)
    items.append(1)
    yield None
    items.pop()
    yield None


@flip
def test_another_method_in_its_place() -> Steps:
    items, others = [1, 2], [2, 2, 2]
    held = [items.count]
    yield (lambda x: x * held[0](2)), (X,)
    held[0] = others.count
    yield None
    held[0] = items.count
    yield None


@flip
def test_a_method_of_another_name() -> Steps:
    items = [3, 3, 2]
    held = [items.count]
    yield (lambda x: x * held[0](2)), (X,)
    held[0] = items.index
    yield None
    held[0] = items.count
    yield None


@two_worlds
def test_the_object_of_a_method_is_written() -> Steps:
    items: list[int] = []
    put = items.append

    def fn(x: Tensor) -> Any:
        put(1)
        put.__self__.append(2)
        return x * len(put.__self__)

    yield fn, (X,)
    items.clear()
    yield None


@right_after
def test_receivers_that_become_one() -> Steps:
    one, two = Named(), Named()
    held: list[Any] = [one, two]

    def fn(x: Tensor) -> Any:
        first, second = held
        python, native = first.inherited == second.inherited, first.append == second.append
        return x, python, native, first.append in [second.append]

    yield fn, (X,)
    held[1] = one
    yield None
    held[0] = two
    yield None


@right_after
def test_a_set_that_holds_a_method() -> Steps:
    items, held = [1], set()
    held.add(items.append)
    place = [items]
    yield (lambda x: x * (place[0].append in held)), (X,)
    place[0] = [1]
    yield None
    place[0] = items
    yield None


class Tagged:
    @classmethod
    @property
    def tag(cls) -> str:
        return cls.__name__.lower()

    count = classmethod(len)


def test_class_methods_around_other_objects() -> None:
    def fn(x: Tensor) -> Any:
        try:
            return Tagged.tag, Tagged().tag, Tagged.count(), x
        except TypeError as error:
            return str(error), x

    api.reset()
    probe = Probe(fn)
    for _ in range(3):
        probe.right(X)


SEARCHES = [re.compile("a+").search, re.compile("b+").search]


@right_after
def test_methods_that_are_told_their_class() -> Steps:
    """`pattern.match` is of another type than `items.append`."""
    patterns = {"first": re.compile("a+"), "match": re.compile("b").match}

    def fn(x: Tensor, text: str) -> Any:
        search = patterns["first"].search
        found = search(text)
        every = [bool(match) for match in map(patterns["first"].match, [text, "b"])]
        matched = patterns["match"](text)
        which = SEARCHES[0](text)
        return x * len(found.group()), every, matched is None, which.span(), search("b")

    yield fn, (X, "xaab")
    yield X, "aaa"
    patterns["first"] = re.compile("a")
    yield X, "aaa"
    patterns["match"] = re.compile("a+").match
    yield X, "baa"
    SEARCHES.reverse()
    yield X, "baa"
    SEARCHES.reverse()


def test_methods_that_are_told_their_class_break_no_graph() -> None:
    match = re.compile("a+").match

    def fn(x: Tensor, name: str) -> Any:
        own = re.compile("b+").match
        return x * bool(match(name)), fnmatch.fnmatch(name, "a*"), own(name) is None, own

    compiled = api.compile(fn)
    for name in ("aa", "ab", "b", "aa", "ab", "b"):
        (y, *expected, _), (found, *others, own) = fn(X, name), compiled(X, name)
        assert torch.equal(y, found) and expected == others
        assert type(own) is type(match) and own("bb").end() == 2
    compiled = api.compile(lambda x, name: fn(x, name)[:3])
    for _ in range(6):
        compiled(X, "aa")
    if not api.PLAIN:
        assert compiled.stats.breaks == 0, api.reason(compiled)
