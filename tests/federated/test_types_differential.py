"""Types, beside `federated_language`: what both say of the same, chosen and random."""

from __future__ import annotations

import collections
import random
import typing
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import stator.federated as sf
from stator.federated.common_libs import structure as our_structure
from stator.federated.types import type_analysis as our_analysis
from stator.federated.types import type_factory as our_factory
from stator.federated.types import type_transformations as our_transformations

from .beside import outcome

fl = pytest.importorskip("federated_language")
attrs = pytest.importorskip("attrs")
ml_dtypes = pytest.importorskip("ml_dtypes")
their_structure = pytest.importorskip("federated_language.common_libs.structure")
their_analysis = pytest.importorskip("federated_language.types.type_analysis")
their_factory = pytest.importorskip("federated_language.types.type_factory")
their_transformations = pytest.importorskip("federated_language.types.type_transformations")

Pair = collections.namedtuple("Pair", "x y")


# The functional syntax, because the peer doesn't resolve annotations that are strings.
Typed = typing.NamedTuple("Typed", [("x", np.int32), ("y", np.bool_)])
Numbers = typing.NamedTuple("Numbers", [("x", int), ("y", float)])


@attrs.define
class Attrs:
    p: Any
    q: Any


class MyList(list[Any]):
    pass


class MyDict(dict[str, Any]):
    pass


def struct(m: ModuleType, elements: list[tuple[str | None, Any]]) -> Any:
    return (our_structure if m is sf else their_structure).Struct(elements)


def three(m: ModuleType) -> Any:
    return m.StructType([("a", np.int32), ("b", np.bool_), np.float32])


def tensor(m: ModuleType, *args: Any) -> Any:
    return m.TensorType(*args)


# Each is run on both packages.
CASES: list[Callable[[ModuleType], Any]] = [
    *(lambda m, d=d: m.TensorType(d) for d in (np.bool_, np.str_, np.bytes_, np.float16)),
    *(lambda m, d=d: m.TensorType(d) for d in (ml_dtypes.bfloat16, np.intc, np.dtype("<i4"))),
    *(lambda m, d=d: m.TensorType(d) for d in (int, "int32", np.object_, np.longlong, None)),
    *(lambda m, d=d: m.TensorType(d) for d in (np.longdouble, np.dtype("S5"), np.generic)),
    *(lambda m, s=s: m.TensorType(np.int32, s) for s in ((), None, [2, None], (0,))),
    lambda m: m.TensorType(np.int32, iter([1])),
    lambda m: m.TensorType(np.int32, 3),
    lambda m: m.TensorType(np.int32, shape=[2]),
    lambda m: (tensor(m, np.int32, [2, None]).shape, tensor(m, np.int32).dtype),
    lambda m: (tensor(m, np.str_).dtype, tensor(m, np.int32, None).shape),
    lambda m: m.StructType([("a", np.int32), np.bool_, (None, np.int8), ["b", np.str_]]),
    lambda m: m.StructType({"a": np.int32}),
    lambda m: m.StructType(x for x in [np.int32]),
    lambda m: m.StructType([(np.int32, [2]), ("a", (np.int32, [2]))]),
    lambda m: m.StructType([("", np.int32)]),
    *(lambda m, e=e: m.StructType(e) for e in (3, [3], "ab", [("a", [2])], [("a", None)], [None])),
    *(lambda m, n=n: m.StructType([(n, np.int32)]) for n in ("items", "named", "_asdict", "x")),
    lambda m: m.StructType([("a", np.int32), ("a", np.int32)]),
    lambda m: m.StructType([("a", m.TensorType(np.int32))], convert=False),
    lambda m: m.StructWithPythonType([("a", np.int32)], dict),
    lambda m: m.StructWithPythonType({"a": np.int32}, collections.OrderedDict),
    lambda m: m.StructWithPythonType([np.int32], container_type=list).python_container,
    lambda m: m.StructType([np.int32]).python_container,
    lambda m: m.SequenceType([np.int32, [("a", [np.bool_])], {"x": [np.int8]}]),
    lambda m: m.SequenceType(m.SequenceType(np.int32)),
    lambda m: m.SequenceType([m.FunctionType(None, np.int32)]),
    lambda m: m.SequenceType(None),
    lambda m: (m.FunctionType(None, np.int32), m.FunctionType([np.int32], (np.int32, [1]))),
    lambda m: m.FunctionType(np.int32, None),
    lambda m: m.FunctionType(3, np.int32),
    lambda m: m.FunctionType(None, np.int32).parameter,
    *(lambda m, e=e: m.FederatedType(np.int32, m.CLIENTS, e) for e in (None, True, False)),
    *(lambda m, e=e: m.FederatedType(np.int32, m.SERVER, e) for e in (None, True, False)),
    lambda m: m.FederatedType([m.FunctionType(None, np.int32)], m.CLIENTS),
    lambda m: m.FederatedType([m.FederatedType(np.int32, m.SERVER)], m.CLIENTS),
    lambda m: m.FederatedType(np.int32, m.CLIENTS).placement,
    lambda m: (m.AbstractType("T"), m.AbstractType("T").label, m.PlacementType()),
    lambda m: m.Type(),
    lambda m: (three(m)[0], three(m)["a"], three(m).b, three(m)[0:2], three(m)[np.int64(1)]),
    *(lambda m, k=k: three(m)[k] for k in (-1, 7, "z", 1.0, None)),
    lambda m: three(m).z,
    lambda m: (len(three(m)), list(three(m)), list(three(m).items()), three(m).fields()),
    lambda m: (dir(three(m)), list(three(m).children()), list(reversed(three(m)))),
    lambda m: three(m)._asdict(),
    lambda m: m.StructType([("a", [np.int32])])._asdict(),
    lambda m: (m.StructType.named(a=np.int32), m.StructType.unnamed(np.int32)),
    lambda m: isinstance(three(m), type(three(m)).__mro__[-1]) and three(m) == three(m),
    lambda m: three(m) == m.StructWithPythonType(list(three(m).items()), list),
    lambda m: three(m) == struct(m, list(three(m).items())),
    lambda m: tensor(m, np.int32) < tensor(m, np.int32),
    lambda m: tensor(m, np.int32).is_assignable_from(3),
    lambda m: tensor(m, np.int32).is_identical_to(tensor(m, np.int32)),
    lambda m: tensor(m, np.int32).check_assignable_from(tensor(m, np.int8)),
    lambda m: tensor(m, np.int32).check_equivalent_to(tensor(m, np.int8)),
    lambda m: m.AbstractType("T").is_assignable_from(tensor(m, np.int8)),
    lambda m: m.AbstractType("T").is_equivalent_to(m.AbstractType("T")),
    lambda m: tensor(m, np.int8).is_assignable_from(m.AbstractType("T")),
    # Conversions.
    *(lambda m, o=o: m.to_type(o) for o in (Pair(np.int32, np.bool_), Typed, Numbers)),
    *(lambda m, o=o: m.to_type(o) for o in (Attrs(np.int32, [np.bool_]), Attrs, MyList([np.int8]))),
    *(lambda m, o=o: m.to_type(o) for o in (MyDict(a=np.int8), {"b": np.int32, "a": np.bool_})),
    *(lambda m, o=o: m.to_type(o) for o in ({1: np.int32}, {}, [], (), {"": np.int8})),
    *(lambda m, o=o: m.to_type(o) for o in (("a", np.int32), [("a", np.int32)], [["a", np.int8]])),
    *(lambda m, o=o: m.to_type(o) for o in ([("a", np.int32), np.bool_], [(None, np.int32)])),
    *(lambda m, o=o: m.to_type(o) for o in ([("a", np.int8), (None, np.int8)], [np.int32, [1]])),
    *(lambda m, s=s: m.to_type((np.int32, s)) for s in ([1], (1, None), None, (), [], "", 3)),
    *(lambda m, s=s: m.to_type((np.int32, s)) for s in (np.bool_, [np.bool_], [1.5])),
    *(lambda m, o=o: m.to_type(o) for o in (3, "int32", None, int, float, str, object(), range(2))),
    *(lambda m, o=o: m.to_type(o) for o in (np.array([1]), np.int32(1), {np.int32}, np.ndarray)),
    *(
        lambda m, o=o: m.to_type(o)
        for o in (np.object_, np.dtype("M8"), np.dtype("S3"), (int, [2]))
    ),
    *(lambda m, o=o: m.to_type(o) for o in (ml_dtypes.bfloat16, (ml_dtypes.bfloat16, [2]))),
    *(lambda m, o=o: m.to_type(o) for o in (ml_dtypes.float8_e4m3fn, (("a", np.int32),))),
    *(
        lambda m, o=o: m.to_type(o)
        for o in ([("a", np.int8), ("a", np.int8)], [("items", np.int8)])
    ),
    *(lambda m, o=o: m.to_type(o) for o in (collections.UserDict(a=np.int8), [np.int8, ("a", [])])),
    *(lambda m, o=o: m.to_type(o) for o in ((None, np.int8), [None, np.int8], ["a", np.int8])),
    *(lambda m, o=o: m.to_type(o) for o in (("a", ("b", np.int8)), ("a", "b"), ("a", [np.int8]))),
    *(lambda m, o=o: m.to_type(o) for o in ([(None, (None, np.int8))], ("a",), (np.int8, "a"))),
    *(lambda m, o=o: m.to_type(o) for o in ([Pair("a", np.int8)], [Pair(np.int8, np.int8)])),
    *(lambda m, o=o: m.to_type(o) for o in ({"a": (None, np.int8)}, [[("a", np.int8)], np.int8])),
    *(lambda m, o=o: m.StructType(o) for o in (("a", np.int8), [Pair("a", np.int8)], [None])),
    lambda m: m.to_type(collections.defaultdict(int, a=np.int32)),
    lambda m: m.to_type(collections.deque([np.int32])),
    lambda m: m.to_type(struct(m, [("a", np.int32), (None, [np.bool_])])),
    lambda m: m.to_type(m.CLIENTS),
    lambda m: (m.to_type(three(m)) is three(m), m.to_type([three(m)])),
    # Placements.
    lambda m: (m.CLIENTS, m.SERVER, m.CLIENTS.name, m.CLIENTS.uri, m.CLIENTS.default_all_equal),
    lambda m: m.framework.uri_to_placement_literal("clients") is m.CLIENTS,
    lambda m: m.framework.uri_to_placement_literal("nowhere"),
    lambda m: m.CLIENTS == "clients",
]


@pytest.mark.parametrize("at", range(len(CASES)))
def test_does_what_the_peer_does(at: int) -> None:
    assert outcome(lambda: CASES[at](sf)) == outcome(lambda: CASES[at](fl))


# A type as the calls that make it, so that both packages can make it.
Recipe = Callable[[ModuleType], Any]

DTYPES = (np.bool_, np.int32, np.uint8, np.float32, ml_dtypes.bfloat16, np.complex64, np.str_)
SHAPES: tuple[Any, ...] = ((), (2,), (None,), (2, 3), (2, None), None)
CONTAINERS = (list, tuple, dict, collections.OrderedDict, Attrs)


def recipe(rng: random.Random, depth: int, labels: bool) -> Recipe:
    """Any type; the same choices often, so that types fit each other now and then."""
    kind = rng.randrange(9) if depth else 0
    inner = [recipe(rng, depth - 1, labels) for _ in range(rng.randrange(1, 4))] if kind else []
    if kind == 0 and labels and rng.random() < 0.6:
        label = rng.choice("TU")
        return lambda m: m.AbstractType(label)
    if kind in (0, 8):
        dtype, shape = rng.choice(DTYPES[: rng.choice((2, 7))]), rng.choice(SHAPES)
        shape = () if rng.random() < 0.5 else shape
        return lambda m: m.TensorType(dtype, shape)
    if kind in (1, 2, 3):
        names = [rng.choice((None, name)) for name in "abc"]
        container = rng.choice((None, *CONTAINERS)) if kind == 3 else None

        def make(m: ModuleType) -> Any:
            elements = [(name, of(m)) for name, of in zip(names, inner, strict=False)]
            if container is None:
                return m.StructType(elements)
            return m.StructWithPythonType(elements, container)

        return make
    if kind == 4:
        return lambda m: m.SequenceType(inner[0](m))
    if kind == 5:
        return lambda m: m.FunctionType(inner[1](m) if inner[1:] else None, inner[0](m))
    all_equal = rng.choice((None, True, False))
    if rng.random() < 0.5:
        return lambda m: m.FederatedType(inner[0](m), m.CLIENTS, all_equal)
    return lambda m: m.FederatedType(inner[0](m), m.SERVER, all_equal)


def pairs(seed: int, count: int, labels: bool = False) -> list[tuple[Any, Any]]:
    """Random types, ours beside theirs. What one refuses to make, the other does too."""
    rng = random.Random(seed)
    made = []
    while len(made) < count:
        make = recipe(rng, rng.randrange(4), labels)
        ours, theirs = outcome(lambda: make(sf)), outcome(lambda: make(fl))
        assert ours == theirs
        if ours[0] == "value":
            made.append((make(sf), make(fl)))
    return made


PREDICATES = (
    "check_is_structure_of_integers",
    "check_is_sum_compatible",
    "contains_federated_types",
    "contains_tensor_types",
    "is_average_compatible",
    "is_generic_op_compatible_type",
    "is_min_max_compatible",
    "is_structure_of_floats",
    "is_structure_of_integers",
    "is_structure_of_tensors",
)


def test_single_types() -> None:
    for ours, theirs in pairs(1, 3000):
        assert (str(ours), repr(ours)) == (str(theirs), repr(theirs))
        assert ours.formatted_representation() == theirs.formatted_representation()
        assert sf.parse_type(str(ours)) is sf.parse_type(ours.formatted_representation())
        assert str(sf.parse_type(str(ours))) == str(ours)
        listed = [str(ty) for ty in our_analysis.preorder_types(ours)]
        assert listed == [str(ty) for ty in their_analysis.preorder_types(theirs)]
        for name in PREDICATES:
            if name == "is_average_compatible" and "bfloat16" in str(ours):
                continue  # theirs have no mean
            ask = (getattr(our_analysis, name), getattr(their_analysis, name))
            assert outcome(lambda f=ask[0]: f(ours)) == outcome(lambda f=ask[1]: f(theirs)), name
        for count in ("count", "contains", "contains_only"):
            numbers = [
                getattr(analysis, count)(ty, lambda of, m=m: isinstance(of, m.TensorType))
                for analysis, ty, m in ((our_analysis, ours, sf), (their_analysis, theirs, fl))
            ]
            assert numbers[0] == numbers[1]
        stripped = our_transformations.strip_placement(ours)
        assert repr(stripped) == repr(their_transformations.strip_placement(theirs))


def test_pairs_of_types() -> None:
    made = pairs(2, 220)
    positive = 0
    for ours, theirs in made:
        for our_other, their_other in made:
            fits = ours.is_assignable_from(our_other)
            positive += fits
            assert fits == theirs.is_assignable_from(their_other), (ours, our_other)
            assert ours.is_equivalent_to(our_other) == theirs.is_equivalent_to(their_other)
            assert (ours == our_other) == (theirs == their_other)
            assert (ours is our_other) == (ours == our_other)
            assert our_analysis.is_single_integer_or_matches_structure(
                ours, our_other
            ) == their_analysis.is_single_integer_or_matches_structure(theirs, their_other)
    assert positive > len(made) * 2


def substituted(rng: random.Random, template: Any, m: ModuleType, types: dict[str, Any]) -> Any:
    """A template with types for its labels, mostly the same for each, sometimes another tensor."""

    def change(ty: Any) -> tuple[Any, bool]:
        if isinstance(ty, m.AbstractType):
            return (types[ty.label] if rng.random() < 0.8 else types["other"]), True
        if isinstance(ty, m.TensorType) and rng.random() < 0.05:
            return types["other"], True
        return ty, False

    # The peer's, because it asks about each occurrence.
    return their_transformations.transform_type_postorder(template, change)[0]


def test_templates() -> None:
    rng = random.Random(3)
    seen: collections.Counter[Any] = collections.Counter()
    for ours, theirs in pairs(4, 6000, labels=True):
        types = {
            label: fl.TensorType(
                rng.choice((np.int32, np.float32)), rng.choice(((), (2,), (None,)))
            )
            for label in ("T", "U", "other")
        }
        try:
            concrete = substituted(rng, theirs, fl, types)
        except ValueError:
            continue
        if "( -> " in str(concrete) or "( -> " in str(theirs):
            continue  # The peer takes what has no parameter for what has one.
        ours_concrete = sf.Type.from_proto(concrete.to_proto())
        assert str(ours_concrete) == str(concrete)
        result = outcome(lambda: our_analysis.check_concrete_instance_of(ours_concrete, ours))
        expected = outcome(lambda: their_analysis.check_concrete_instance_of(concrete, theirs))
        assert result == expected, (ours_concrete, ours)
        seen[result[1]] += 1
    assert len(seen) >= 5, seen


def test_factory() -> None:
    for name in ("unary_op", "binary_op"):
        for spec in (np.int32, [np.int32], None):
            ours = outcome(lambda: getattr(our_factory, name)(spec))
            assert ours == outcome(lambda: getattr(their_factory, name)(spec))
    ours = outcome(lambda: our_factory.reduction_op([np.int32], np.float32))
    assert ours == outcome(lambda: their_factory.reduction_op([np.int32], np.float32))


def test_transforming() -> None:
    for ours, theirs in pairs(5, 500):

        def other(m: ModuleType) -> Callable[[Any], tuple[Any, bool]]:
            return lambda ty: (
                (m.TensorType(np.int8), True) if isinstance(ty, m.TensorType) else (ty, False)
            )

        result = our_transformations.transform_type_postorder(ours, other(sf))
        assert repr(result) == repr(
            their_transformations.transform_type_postorder(theirs, other(fl))
        )
