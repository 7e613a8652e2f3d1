"""`Struct` and the functions on nested containers, beside `federated_language`."""

from __future__ import annotations

import collections
import dataclasses
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import stator.federated as sf
from stator.federated.common_libs import structure as ours

from .beside import outcome

theirs = pytest.importorskip("federated_language.common_libs.structure")
attrs = pytest.importorskip("attrs")

Pair = collections.namedtuple("Pair", "x y")


@attrs.define
class Attrs:
    p: Any
    q: Any


@dataclasses.dataclass
class Data:
    p: Any
    q: Any


def nest(m: ModuleType) -> Any:
    return m.Struct([("a", 1), (None, 2), ("b", m.Struct([("c", 3)]))])


def named(m: ModuleType) -> Any:
    return m.Struct([("a", 1), ("b", m.Struct([("c", 3)]))])


def add(x: Any, y: Any) -> Any:
    return x + y


def double(x: Any) -> Any:
    return x * 2


# Each is run on both modules.
CASES: list[Callable[[ModuleType], Any]] = [
    nest,
    lambda m: (nest(m).a, nest(m)["a"], nest(m)[0], nest(m)[True], nest(m)[np.int64(1)]),
    lambda m: (nest(m)[0:2], nest(m)[::-1], nest(m)[5:]),
    lambda m: nest(m)[-1],
    lambda m: nest(m)[3],
    lambda m: nest(m)[1.0],
    lambda m: nest(m)[None],
    lambda m: nest(m).z,
    lambda m: nest(m)["z"],
    lambda m: (len(nest(m)), list(nest(m)), list(reversed(nest(m))), dir(nest(m))),
    lambda m: (bool(m.Struct([])), str(m.Struct([])), 1 in nest(m), 9 in nest(m)),
    lambda m: (nest(m) == nest(m), nest(m) != nest(m), nest(m) == 3, nest(m) == named(m)),
    lambda m: m.Struct([("a", 1)]) == m.Struct([(None, 1)]),
    lambda m: hash(nest(m)) == hash(nest(m)),
    lambda m: hash(m.Struct([("a", [1])])),
    lambda m: m.Struct([("a", np.array([1, 2]))]) == m.Struct([("a", np.array([1, 2]))]),
    lambda m: nest(m) < nest(m),
    lambda m: nest(m) + nest(m),
    lambda m: setattr(nest(m), "a", 3),
    lambda m: setattr(nest(m), "new", 3),
    lambda m: delattr(nest(m), "a"),
    lambda m: nest(m)._asdict(),
    lambda m: (named(m)._asdict(), named(m)._asdict(True), named(m)._asdict(recursive=True)),
    lambda m: m.Struct([1]),
    lambda m: m.Struct([(1, 2)]),
    lambda m: m.Struct([(b"a", 2)]),
    lambda m: m.Struct([("a", 1, 2)]),
    lambda m: m.Struct([("a", 1), ("a", 2)]),
    lambda m: m.Struct([("_asdict", 1)]),
    lambda m: m.Struct([("_hash", 1)]),
    lambda m: m.Struct([["a", 1], ("", 2), ("items", 3), ("named", 4), ("__len__", 5)]),
    lambda m: m.Struct({"a": 1}.items()),
    lambda m: m.Struct(x for x in [("a", "b"), (None, None)]),
    lambda m: m.Struct(3),
    lambda m: m.Struct(),
    lambda m: (m.Struct.named(a=1, b=2), m.Struct.unnamed(1, 2), m.Struct.named()),
    lambda m: m.Struct.named(1),
    lambda m: (m.name_list(nest(m)), m.name_list_with_nones(nest(m)), m.to_elements(nest(m))),
    lambda m: list(m.iter_elements(nest(m))),
    lambda m: (m.has_field(nest(m), "a"), m.has_field(nest(m), "z")),
    lambda m: m.to_odict(nest(m)),
    lambda m: (m.to_odict(named(m)), m.to_odict(named(m), recursive=True)),
    lambda m: m.to_odict(m.Struct([("a", m.Struct([(None, 3)]))]), recursive=True),
    lambda m: m.to_odict_or_tuple(nest(m)),
    lambda m: m.to_odict_or_tuple(m.Struct([("a", m.Struct([(None, 3)]))])),
    lambda m: m.to_odict_or_tuple(m.Struct([("a", m.Struct([(None, 3)]))]), recursive=False),
    lambda m: m.to_odict_or_tuple(m.Struct([])),
    lambda m: (m.flatten(nest(m)), m.flatten(3), m.flatten(None), m.flatten("abc")),
    lambda m: m.flatten([1, [2, {"b": 3, "a": (4, 5)}], Pair(6, [7]), Attrs(8, [9])]),
    lambda m: m.flatten(m.Struct([("a", [1, 2]), ("b", {"z": 1, "y": (2,)})])),
    lambda m: m.flatten([m.Struct([(None, 5)])]),
    lambda m: m.flatten(m.Struct([("a", [m.Struct([(None, 5)])])])),
    lambda m: (m.flatten(collections.OrderedDict(b=1, a=2)), m.flatten({2: 1, 1: 2})),
    lambda m: m.flatten({"a": 1, 2: 2}),
    lambda m: (m.flatten(collections.deque([1, 2])), m.flatten(range(3)), m.flatten([])),
    lambda m: (m.flatten({"a": 1}.items()), m.flatten({"a": 1}.values()), m.flatten(b"ab")),
    lambda m: (m.flatten(collections.UserDict(b=1, a=2)), m.flatten(collections.UserList([1]))),
    lambda m: m.flatten(Data(1, 2)),
    lambda m: m.pack_sequence_as(nest(m), [7, 8, 9]),
    lambda m: m.pack_sequence_as(nest(m), (7, 8, 9, 10)),
    lambda m: m.pack_sequence_as(nest(m), [7]),
    lambda m: (m.pack_sequence_as(3, [7]), m.pack_sequence_as(m.Struct([("a", None)]), [7])),
    lambda m: m.pack_sequence_as([1], [7]),
    lambda m: m.pack_sequence_as(m.Struct([("a", [1])]), [7]),
    lambda m: m.pack_sequence_as(m.Struct([("a", Pair(1, 2))]), [7, 8]),
    lambda m: m.pack_sequence_as(m.Struct([("a", Attrs(1, 2))]), [7, 8]),
    lambda m: m.pack_sequence_as(m.Struct([("a", {"x": 1})]), [7, 8]),
    lambda m: m.map_structure(double, nest(m)),
    lambda m: m.map_structure(add, nest(m), nest(m)),
    lambda m: m.map_structure(double),
    lambda m: m.map_structure(add, nest(m), named(m)),
    lambda m: m.map_structure(double, [1, {"b": (2,), "a": Pair(3, Attrs(4, 5))}]),
    lambda m: m.map_structure(double, collections.OrderedDict(b=1, a=2)),
    lambda m: (m.map_structure(double, 5), m.map_structure(double, ())),
    lambda m: m.map_structure(add, {"a": 1}, collections.OrderedDict(a=1)),
    lambda m: m.map_structure(add, [1], [1, 2]),
    lambda m: m.map_structure(add, [1], (1,)),
    lambda m: m.map_structure(add, Pair(1, 2), (1, 2)),
    lambda m: m.map_structure(add, 1, [1]),
    lambda m: m.map_structure(add, {"a": 1}, {"b": 1}),
    lambda m: m.map_structure(add, nest(m), [1]),
    lambda m: m.map_structure(double, m.Struct([("a", [1, 2])])),
    lambda m: m.map_structure(3, nest(m)),
    lambda m: (m.from_container({"b": 1, "a": 2}), m.from_container([1, 2])),
    lambda m: (m.from_container(Pair(1, [2])), m.from_container(Pair(1, [2]), True)),
    lambda m: (m.from_container(Attrs(1, 2)), m.from_container([("a", 1)])),
    lambda m: m.from_container({"a": [1, {"b": (2,)}], "c": m.Struct([(None, [1])])}, True),
    lambda m: m.from_container(3),
    lambda m: m.from_container("ab"),
    lambda m: m.from_container({1: 2}),
    lambda m: m.from_container(range(2)),
    lambda m: m.from_container(None),
    lambda m: m.update_struct(nest(m), a=7),
    lambda m: m.update_struct(nest(m), z=7),
    lambda m: (m.update_struct({"a": 1, "b": 2}, a=7), m.update_struct(Pair(1, 2), x=9)),
    lambda m: (m.update_struct(Attrs(1, 2), p=9), m.update_struct(nest(m))),
    lambda m: m.update_struct(collections.OrderedDict(a=1), a=2),
    lambda m: m.update_struct({"a": 1}, z=7),
    lambda m: m.update_struct([1], a=1),
    lambda m: m.update_struct(3, a=1),
]


@pytest.mark.parametrize("at", range(len(CASES)))
def test_does_what_the_peer_does(at: int) -> None:
    assert outcome(lambda: CASES[at](ours)) == outcome(lambda: CASES[at](theirs))


def test_data_classes_are_containers() -> None:
    assert ours.from_container(Data(1, [2]), recursive=True) == ours.Struct(
        [("p", 1), ("q", ours.Struct.unnamed(2))]
    )
    assert ours.update_struct(Data(1, 2), p=3) == Data(3, 2)


def test_packing_takes_no_tuple_for_a_leaf() -> None:
    with pytest.raises(TypeError, match="structs of leaves only"):
        ours.map_structure(double, ours.Struct([("a", (1, 2))]))


def test_a_struct_type_is_a_struct() -> None:
    ty = sf.StructType([("a", np.int32), np.bool_])
    assert isinstance(ty, ours.Struct)
    assert issubclass(sf.StructWithPythonType, ours.Struct)
    assert not isinstance(sf.TensorType(np.int32), ours.Struct)
    assert ours.name_list_with_nones(ty) == ["a", None]
    assert ours.flatten(ty) == list(ty)
    assert ours.from_container(ty) is ty


def test_pickles_and_copies() -> None:
    struct = nest(ours)
    assert pickle.loads(pickle.dumps(struct)) == struct


def test_deep_structs_die_without_recursion() -> None:
    struct: Any = 1
    for _ in range(200_000):
        struct = ours.Struct([("a", struct)])
    assert ours.flatten(struct) == [1]
    assert ours.flatten(ours.map_structure(double, struct)) == [2]
    with pytest.raises(RecursionError):
        str(struct)


def test_what_contains_itself_is_an_error() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for function in (ours.flatten, sf.to_type, lambda x: ours.from_container(x, recursive=True)):
        with pytest.raises(ValueError, match="contains itself"):
            function(loop)
