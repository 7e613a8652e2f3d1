"""Types as Python objects: identity, messages, what the peer doesn't have."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import stator.federated as sf
from stator.federated import framework as fw
from stator.federated.types import type_analysis, type_transformations

INT = sf.TensorType(np.int32)


@dataclasses.dataclass
class Data:
    x: Any
    y: Any


@dataclasses.dataclass
class Annotated:
    x: np.int32
    y: float


EXAMPLES = [
    INT,
    sf.TensorType(np.str_, [2, None]),
    sf.TensorType(np.float32, None),
    sf.StructType([("a", INT), np.bool_]),
    sf.to_type({"a": [np.int32], "b": Data(np.int8, (np.int8, [3]))}),
    sf.SequenceType([np.int32]),
    sf.FunctionType(None, [np.int32]),
    sf.FunctionType(np.int32, np.int32),
    sf.FederatedType([np.int32], sf.CLIENTS),
    sf.FederatedType(np.int32, sf.SERVER, False),
    sf.PlacementType(),
    sf.AbstractType("T"),
]


@pytest.mark.parametrize("ty", EXAMPLES, ids=str)
def test_one_object_for_a_type(ty: sf.Type) -> None:
    assert pickle.loads(pickle.dumps(ty)) is ty
    assert copy.copy(ty) is copy.deepcopy(ty) is ty
    assert hash(ty) == hash(pickle.loads(pickle.dumps(ty)))
    assert {ty: 1}[ty] == 1
    assert ty.is_identical_to(ty)


def test_placements_are_singletons() -> None:
    assert pickle.loads(pickle.dumps(sf.CLIENTS)) is copy.deepcopy(sf.CLIENTS) is sf.CLIENTS
    assert fw.PlacementLiteral("SERVER", "server", True) is sf.SERVER
    with pytest.raises(ValueError, match="no placement with the uri 'here'"):
        fw.PlacementLiteral("HERE", "here", True)


def test_types_die() -> None:
    ty = sf.StructType([("only_here", np.int32)])
    address, reference = id(ty), weakref.ref(ty)
    del ty
    gc.collect()
    assert reference() is None
    # And come back, perhaps at another address.
    again = sf.StructType([("only_here", np.int32)])
    assert again is sf.StructType([("only_here", np.int32)]) is sf.parse_type("<only_here=int32>")
    assert isinstance(address, int)


def test_types_come_back_while_they_die() -> None:
    ty: Any = sf.StructType([("phoenix", np.int32)])
    seen = []
    reference = weakref.ref(ty, lambda _: seen.append(sf.parse_type("<phoenix=int32>")))
    del ty
    assert reference() is None
    assert seen == [sf.parse_type("<phoenix=int32>")]
    assert seen[0] is sf.parse_type("<phoenix=int32>")


def test_many_threads_make_one_type() -> None:
    made: list[Any] = []

    def make() -> None:
        for n in range(300):
            made.append([sf.StructType([(f"n{n}", np.int32)]) for _ in range(3)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(set(map(id, types))) == 1 for types in made)


def test_attributes_cannot_be_set() -> None:
    for ty in EXAMPLES:
        with pytest.raises(AttributeError):
            ty.new = 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        INT.dtype = np.dtype("int8")  # type: ignore[misc]


def test_references_are_counted() -> None:
    before = sys.getrefcount(sf.CLIENTS)
    for _ in range(100):
        assert sf.FederatedType(np.int32, sf.CLIENTS).placement is sf.CLIENTS
    assert abs(sys.getrefcount(sf.CLIENTS) - before) < 10


def test_attributes_of_struct_types_name_no_fields() -> None:
    for name in [*dir(sf.StructWithPythonType), *dir(object), "_hash"]:
        with pytest.raises(ValueError, match=f"can't be named `{name}`"):
            sf.StructType([(name, np.int32)])


def test_data_classes_say_types() -> None:
    ty = sf.to_type(Data([np.int32], Data(np.int8, np.bool_)))
    assert str(ty) == "<x=<int32>,y=<x=int8,y=bool>>"
    assert ty.python_container is ty.y.python_container is Data
    assert repr(sf.to_type(Annotated)) == (
        "StructType([('x', TensorType(np.int32)), ('y', TensorType(np.float64))]) as Annotated"
    )


def test_deep_types() -> None:
    depth = 100_000
    spec: Any = np.int32
    for _ in range(depth):
        spec = [spec]
    ty = sf.to_type(spec)
    while spec:
        (spec,) = spec if isinstance(spec, list) else (None,)
    text = "<" * depth + "int32" + ">" * depth
    assert str(ty) == text
    assert repr(ty).count("StructType") == depth
    assert type_analysis.count(ty, lambda _: True) == depth + 1
    assert str(type_transformations.strip_placement(ty)) == text
    assert sf.parse_type(text).is_equivalent_to(ty)
    for of in (ty, sf.FederatedType(ty, sf.CLIENTS), sf.FunctionType(ty, ty)):
        assert type_transformations.transform_type_postorder(of, lambda x: (x, False))[0] is of


def test_shared_types_are_visited_once() -> None:
    ty: Any = INT
    for _ in range(60):
        ty = sf.StructType([ty, ty])
    other, changed = type_transformations.transform_type_postorder(
        ty, lambda of: (sf.TensorType(np.int8), True) if of is INT else (of, False)
    )
    assert changed
    assert type_analysis.count(ty, lambda of: of is INT) == 2**60
    assert type_analysis.is_structure_of_integers(other)
    assert not ty.is_assignable_from(other)
    assert not type_analysis.contains(ty, lambda of: isinstance(of, sf.FederatedType))


# The call, and all that its error says.
ERRORS: list[tuple[Any, type[Exception], str]] = [
    (
        lambda: sf.to_type({"a": [np.int32, "int32"]}),
        TypeError,
        """\
`obj['a'][1]` says no type
  expected: a type, a NumPy dtype, a pair (dtype, shape), or a container of such
  found:    'int32' (str)
  hint:     the dtype itself, as `numpy.int32`, says a type; its name doesn't""",
    ),
    (
        lambda: sf.FunctionType(int, np.int32),
        TypeError,
        """\
`parameter` says no type
  expected: a type, a NumPy dtype, a pair (dtype, shape), or a container of such
  found:    <class 'int'> (type)
  hint:     write `numpy.int32` or `numpy.int64`""",
    ),
    (
        lambda: sf.TensorType(np.int32, [2, -1]),
        ValueError,
        """\
a size of a shape must be an int from 0 on, or None
  found:    -1 (int)""",
    ),
    (
        lambda: sf.TensorType(np.int32, 3),  # type: ignore[arg-type]
        TypeError,
        """\
a shape must be a list or tuple of sizes, or None
  found:    3 (int)
  hint:     one dimension of that size is [3]""",
    ),
    (
        lambda: sf.TensorType(np.int32, 2.5),  # type: ignore[arg-type]
        TypeError,
        """\
a shape must be a list or tuple of sizes, or None
  found:    2.5 (float)""",
    ),
    (
        lambda: sf.FederatedType(np.int32, "clients"),  # type: ignore[arg-type]
        TypeError,
        """\
`placement` must be a placement
  expected: CLIENTS or SERVER
  found:    'clients' (str)""",
    ),
    (
        lambda: sf.StructType([("a", INT), ("a", INT)]),
        ValueError,
        "two fields are named `a`",
    ),
    (
        lambda: sf.StructType([("items", INT)]),
        ValueError,
        "a field can't be named `items`: struct types have an attribute of that name",
    ),
    (
        lambda: sf.StructType([("a", INT)]).b,
        AttributeError,
        """\
the struct type has no field 'b'
  found:    <a=int32>""",
    ),
    (
        lambda: sf.StructType([("a", INT)])[-1],
        IndexError,
        "there is no field -1: the struct type has one field, 0",
    ),
    (
        lambda: sf.StructType([("a", [np.int32])]).check_assignable_from(
            sf.StructType([("a", [np.int8])])
        ),
        fw.TypeNotAssignableError,
        """\
a value of one type can't stand where the other is asked for
  expected: <a=<int32>>
  found:    <a=<int8>>
  because:  a[0] must be int32, is int8""",
    ),
    (
        lambda: sf.StructType([("a", INT)]).check_equivalent_to(sf.StructType([INT])),
        fw.TypesNotEquivalentError,
        """\
two types must be equivalent
  expected: <a=int32>
  found:    <int32>
  because:  conversely, it must have field 0 without a name, has it named `a`""",
    ),
    (
        lambda: sf.parse_type("<a=int32,(bool)>"),
        ValueError,
        """\
line 1, column 15: the text says no type
  there:    <a=int32,(bool)>
                          ^
  expected: `->`
  found:    `)`""",
    ),
    (
        lambda: type_analysis.check_is_sum_compatible(sf.to_type([np.int32, {"a": np.str_}])),
        type_analysis.SumIncompatibleError,
        """\
a type isn't made of what it has to be
  expected: a tensor, or a struct, of numbers of fully known shapes
  found:    str
  in:       <int32,<a=str>>""",
    ),
    (
        lambda: type_analysis.check_concrete_instance_of(
            sf.parse_type("(int32 -> float32)"), sf.parse_type("(T -> T)")
        ),
        type_analysis.UnassignableConcreteTypesError,
        """\
`T` is int32, which float32 doesn't accept
  type:     (int32 -> float32)
  template: (T -> T)""",
    ),
]


@pytest.mark.parametrize(("call", "cls", "text"), ERRORS, ids=range(len(ERRORS)))
def test_errors(call: Any, cls: type[Exception], text: str) -> None:
    with pytest.raises(cls) as caught:
        call()
    assert type(caught.value) is cls
    assert str(caught.value) == text
    # Only the user's frames: this test's and the lambda's.
    frames = []
    trace = caught.value.__traceback__
    while trace:
        frames.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    assert set(frames) == {__file__}
