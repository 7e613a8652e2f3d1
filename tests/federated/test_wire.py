"""Messages of types and trees: the bytes are those of `federated_language`, both ways."""

from __future__ import annotations

import collections
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stator.federated as sf
from stator.federated import framework as fw

fl = pytest.importorskip("federated_language")
computation_pb2 = pytest.importorskip("federated_language.proto.computation_pb2")
any_pb2 = pytest.importorskip("google.protobuf.any_pb2")
ml_dtypes = pytest.importorskip("ml_dtypes")

DTYPES = [
    *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex64, np.complex128, np.str_),
]

OURS = SimpleNamespace(types=sf, blocks=fw)
THEIRS = SimpleNamespace(types=fl, blocks=fl.framework)


def build_type(side: Any, spec: Any) -> Any:
    """The type that a nested tuple describes, in one of the packages."""
    kind, *rest = spec
    types = side.types
    match kind:
        case "tensor":
            return types.TensorType(*rest)
        case "struct":
            fields, container = rest
            fields = [(name, build_type(side, inner)) for name, inner in fields]
            if container is None:
                return types.StructType(fields)
            return types.StructWithPythonType(fields, container)
        case "sequence":
            return types.SequenceType(build_type(side, rest[0]))
        case "function":
            parameter, result = rest
            parameter = None if parameter is None else build_type(side, parameter)
            return types.FunctionType(parameter, build_type(side, result))
        case "federated":
            member, placement, all_equal = rest
            at = getattr(types, placement)
            return types.FederatedType(build_type(side, member), at, all_equal)
        case "placement":
            return types.PlacementType()
        case "abstract":
            return types.AbstractType(*rest)
    raise AssertionError(spec)


def build_block(side: Any, spec: Any) -> Any:
    """The tree that a nested tuple describes, in one of the packages."""
    kind, *rest = spec
    blocks = side.blocks
    match kind:
        case "reference" | "intrinsic":
            name, of = rest
            return getattr(blocks, kind.capitalize())(name, build_type(side, of))
        case "placement":
            return blocks.Placement(getattr(side.types, rest[0]))
        case "literal":
            value, of = rest
            return blocks.Literal(value, build_type(side, of))
        case "data":
            url, value, of = rest
            content = any_pb2.Any(type_url=url, value=value)
            return blocks.Data(content, build_type(side, of))
        case "select":
            source, key = rest
            source = build_block(side, source)
            by_name = isinstance(key, str)
            return (
                blocks.Selection(source, name=key)
                if by_name
                else blocks.Selection(source, index=key)
            )
        case "struct":
            elements, container = rest
            elements = [(name, build_block(side, inner)) for name, inner in elements]
            return blocks.Struct(elements, container)
        case "call":
            function, argument = rest
            argument = None if argument is None else build_block(side, argument)
            return blocks.Call(build_block(side, function), argument)
        case "lambda":
            name, of, result = rest
            of = None if of is None else build_type(side, of)
            return blocks.Lambda(name, of, build_block(side, result))
        case "block":
            local, result = rest
            local = [(name, build_block(side, inner)) for name, inner in local]
            return blocks.Block(local, build_block(side, result))
    raise AssertionError(spec)


def message(theirs: Any) -> bytes:
    encoded = theirs.to_proto().SerializeToString(deterministic=True)
    assert isinstance(encoded, bytes)
    return encoded


def check_type(spec: Any) -> None:
    ours, theirs = build_type(OURS, spec), build_type(THEIRS, spec)
    bytes_ = message(theirs)
    assert ours.to_bytes() == ours.to_proto() == bytes_
    # Each reads what the other wrote.
    read = type(ours).from_bytes(bytes_)
    assert read is type(ours).from_proto(theirs.to_proto())
    again = fl.Type.from_proto(computation_pb2.Type.FromString(ours.to_bytes()))
    assert repr(read) == repr(again)
    assert read.to_bytes() == bytes_


def check_block(spec: Any) -> None:
    ours, theirs = build_block(OURS, spec), build_block(THEIRS, spec)
    bytes_ = message(theirs)
    assert ours.to_bytes() == ours.to_proto() == bytes_
    read = type(ours).from_bytes(bytes_)
    again = fl.framework.ComputationBuildingBlock.from_proto(
        computation_pb2.Computation.FromString(ours.to_bytes())
    )
    # The address of an object stands for data.
    if "'data'" not in repr(spec):
        assert str(read) == str(again)
    assert repr(read.type_signature) == repr(again.type_signature)
    assert read.to_bytes() == bytes_
    assert message(again) == bytes_


INT32 = ("tensor", np.int32, ())
BOOL = ("tensor", np.bool_, ())
PAIR = ("struct", [("a", INT32), (None, BOOL)], None)
X = ("reference", "x", INT32)
S = ("reference", "s", PAIR)

TYPES = {
    **{f"scalar {np.dtype(dtype)}": ("tensor", dtype, ()) for dtype in DTYPES},
    **{
        f"shape {shape}": ("tensor", np.float32, shape)
        for shape in [(2,), (0,), (2, None), (None,), (1, 2, 3, 4), (2**40, 2**62)]
    },
    "unknown rank": ("tensor", np.float32, None),
    "empty struct": ("struct", [], None),
    "struct": PAIR,
    "empty name": ("struct", [("", INT32)], None),
    "unicode": ("struct", [("élan", INT32)], None),
    "list": ("struct", [(None, INT32), (None, BOOL)], list),
    "dict": ("struct", [("a", INT32)], dict),
    "ordered dict": ("struct", [("a", INT32)], collections.OrderedDict),
    "sequence": ("sequence", PAIR),
    "function": ("function", PAIR, INT32),
    "no parameter": ("function", None, INT32),
    "server": ("federated", INT32, "SERVER", None),
    "server, not equal": ("federated", INT32, "SERVER", False),
    "clients": ("federated", PAIR, "CLIENTS", None),
    "clients, equal": ("federated", PAIR, "CLIENTS", True),
    "placement": ("placement",),
}


@pytest.mark.parametrize("spec", TYPES.values(), ids=TYPES.keys())
def test_types(spec: Any) -> None:
    check_type(spec)


@pytest.mark.parametrize("label", ["T", "", "é"])
def test_abstract_types(label: str) -> None:
    ours, theirs = sf.AbstractType(label), fl.AbstractType(label)
    assert ours.to_bytes() == message(theirs)
    assert sf.AbstractType.from_bytes(message(theirs)) is ours
    for side, of, source in [(sf, ours, ours), (fl, theirs, theirs)]:
        with pytest.raises(NotImplementedError):
            side.Type.from_proto(of.to_proto())
        function = side.FunctionType(source, source)
        with pytest.raises(NotImplementedError):
            side.FunctionType.from_proto(function.to_proto())
    assert sf.FunctionType(ours, ours).to_bytes() == message(fl.FunctionType(theirs, theirs))


def test_a_type_of_another_kind() -> None:
    for side in (sf, fl):
        of = side.TensorType(np.int32).to_proto()
        with pytest.raises(ValueError, match="."):
            side.StructType.from_proto(of)
    text = (
        "the message is of another kind\n  expected: a StructType\n  found:    a TensorType, int32"
    )
    with pytest.raises(ValueError, match=f"^{text}$"):
        sf.StructType.from_bytes(sf.TensorType(np.int32).to_bytes())


VALUES: list[tuple[Any, Any]] = [
    *((dtype(1), ("tensor", dtype, ())) for dtype in DTYPES if dtype is not np.str_),
    *((np.array([[1, 0]], dtype), ("tensor", dtype, (1, 2))) for dtype in DTYPES[:-1]),
    *((np.zeros(0, dtype), ("tensor", dtype, (0,))) for dtype in DTYPES[:-1]),
    *((7, ("tensor", dtype, ())) for dtype in DTYPES[1:9]),
    (-7, ("tensor", np.int64, ())),
    (0.1, ("tensor", np.float32, ())),
    (np.float32(-0.0), ("tensor", np.float64, ())),
    ("text", ("tensor", np.str_, ())),
    ("é", ("tensor", np.str_, ())),
    ("a\0", ("tensor", np.str_, ())),
    (b"\xff\0", ("tensor", np.str_, ())),
    (np.array(["a", "bc"]), ("tensor", np.str_, (2,))),
    (np.array([b"a", b"\xff"], object), ("tensor", np.str_, (2,))),
    (np.array([1, 2]), ("tensor", np.int64, (None,))),
    (np.array([1, 2]), ("tensor", np.int64, None)),
    (np.array([1, 2], np.int8), ("tensor", np.int64, (2,))),
]

BLOCKS = {
    "reference": X,
    "empty name": ("reference", "", INT32),
    "select by name": ("select", S, "a"),
    "select first": ("select", S, 0),
    "select second": ("select", S, 1),
    "struct": ("struct", [("a", X), (None, S)], None),
    "struct with a container": ("struct", [("a", X), ("b", S)], dict),
    "empty struct": ("struct", [], None),
    "call": ("call", ("lambda", "x", INT32, X), X),
    "call without argument": ("call", ("lambda", None, None, X), None),
    "lambda": ("lambda", "p", PAIR, X),
    "lambda without parameter": ("lambda", None, None, X),
    "block": ("block", [("v", X), ("w", S)], S),
    "block without locals": ("block", [], X),
    "intrinsic": ("intrinsic", "anything", ("function", None, INT32)),
    "clients": ("placement", "CLIENTS"),
    "server": ("placement", "SERVER"),
    "data": ("data", "a/b", b"c", PAIR),
    "empty data": ("data", "", b"", INT32),
}


@pytest.mark.parametrize("spec", BLOCKS.values(), ids=BLOCKS.keys())
def test_blocks(spec: Any) -> None:
    check_block(spec)


@pytest.mark.parametrize(("value", "of"), VALUES)
def test_literals(value: Any, of: Any) -> None:
    spec = ("literal", value, of)
    ours, theirs = build_block(OURS, spec), build_block(THEIRS, spec)
    bytes_ = message(theirs)
    assert ours.to_bytes() == bytes_
    read = fw.Literal.from_bytes(bytes_)
    again = fl.framework.Literal.from_proto(computation_pb2.Computation.FromString(ours.to_bytes()))
    assert np.array_equal(read.value, again.value)
    assert type(read.value) is type(again.value)
    assert read.to_bytes() == bytes_


def compiled_messages() -> list[Any]:
    of = fl.FunctionType(np.int32, np.float32).to_proto()
    tensorflow = computation_pb2.Computation(type=of)
    tensorflow.tensorflow.graph_def.type_url = "t"
    tensorflow.tensorflow.parameter.tensor.tensor_name = "arg"
    tensorflow.tensorflow.cache_key.id = 3
    xla = computation_pb2.Computation(type=of)
    xla.xla.hlo_module.value = b"hlo"
    xla.xla.result.tensor.index = 1
    empty = computation_pb2.Computation(type=of)
    empty.xla.SetInParent()
    return [tensorflow, xla, empty]


@pytest.mark.parametrize("proto", compiled_messages())
def test_compiled_computations_keep_their_bytes_and_are_named_after_them(proto: Any) -> None:
    theirs = fl.framework.CompiledComputation.from_proto(proto)
    ours = fw.CompiledComputation.from_proto(proto)
    assert ours.to_bytes() == proto.SerializeToString(deterministic=True)
    assert (ours.name, str(ours)) == (theirs.name, str(theirs))
    # Inside a tree too.
    inside = fl.framework.Call(theirs, fl.framework.Reference("x", np.int32))
    read = fw.Call.from_proto(inside.to_proto())
    assert (str(read), read.to_bytes()) == (str(inside), message(inside))


NAMES = st.text("abxyzé_0", min_size=1, max_size=3)


def named(values: Any) -> Any:
    """Fields with or without names, no name twice."""
    pairs = st.lists(st.tuples(st.none() | NAMES, values), max_size=4)

    def unique(fields: list[tuple[str | None, Any]]) -> list[tuple[str | None, Any]]:
        seen: set[str | None] = set()
        made = []
        for name, value in fields:
            made.append((None if name in seen else name, value))
            seen.add(name)
        return made

    return pairs.map(unique)


def _fit_container(spec: Any) -> Any:
    """A list or tuple has no names, a dict has only names."""
    kind, fields, container = spec
    if container in (list, tuple):
        fields = [(None, inner) for _, inner in fields]
    if container is dict:
        fields = [(f"f{at}", inner) for at, (_, inner) in enumerate(fields)]
    return kind, fields, container


SHAPES = st.none() | st.lists(st.none() | st.integers(0, 300), max_size=3).map(tuple)
TENSORS = st.tuples(st.just("tensor"), st.sampled_from(DTYPES), SHAPES)
MEMBERS = st.recursive(
    TENSORS | st.just(("placement",)),
    lambda inner: st.tuples(
        st.just("struct"), named(inner), st.sampled_from([None, list, tuple, dict])
    ).map(_fit_container),
    max_leaves=8,
)


PLACED = st.tuples(
    st.just("federated"),
    MEMBERS | st.tuples(st.just("sequence"), MEMBERS),
    st.sampled_from(["CLIENTS", "SERVER"]),
    st.none() | st.booleans(),
)
ANY_TYPE = st.recursive(
    MEMBERS | PLACED | st.tuples(st.just("sequence"), MEMBERS),
    lambda inner: (
        st.tuples(st.just("function"), st.none() | inner, inner)
        | st.tuples(st.just("struct"), named(inner), st.none())
    ),
    max_leaves=10,
)

RANDOM = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


@RANDOM
@given(ANY_TYPE)
def test_random_types(spec: Any) -> None:
    check_type(spec)


def lists_of(inner: Any) -> Any:
    return st.lists(st.tuples(NAMES, inner), max_size=3)


LITERALS = st.sampled_from([(value, of) for value, of in VALUES if not isinstance(value, str)])
LEAVES = (
    st.tuples(st.just("reference"), NAMES, ANY_TYPE)
    | st.tuples(st.just("intrinsic"), NAMES, ANY_TYPE)
    | st.tuples(st.just("data"), NAMES, st.binary(max_size=4), ANY_TYPE)
    | st.tuples(st.just("placement"), st.sampled_from(["CLIENTS", "SERVER"]))
    | LITERALS.map(lambda pair: ("literal", *pair))
)


def compound(inner: Any) -> Any:
    structs = st.tuples(st.just("struct"), named(inner), st.just(None))
    return (
        structs
        | st.tuples(structs.filter(lambda spec: bool(spec[1])), st.integers(0, 2**30)).map(
            lambda pair: ("select", pair[0], pair[1] % len(pair[0][1]))
        )
        | st.tuples(st.just("lambda"), NAMES, ANY_TYPE, inner)
        | st.tuples(st.just("lambda"), st.none(), st.none(), inner)
        | inner.map(lambda spec: ("call", ("lambda", None, None, spec), None))
        | st.tuples(NAMES, ANY_TYPE, inner).map(
            lambda parts: (
                "call",
                ("lambda", parts[0], parts[1], parts[2]),
                ("reference", parts[0], parts[1]),
            )
        )
        | st.tuples(st.just("block"), lists_of(inner), inner)
    )


@RANDOM
@given(st.recursive(LEAVES, compound, max_leaves=12))
def test_random_trees(spec: Any) -> None:
    check_block(spec)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda spec: ("struct", [(None, spec)], None),
        lambda spec: ("function", None, spec),
        lambda spec: ("function", spec, INT32),
    ],
)
def test_types_as_deep_as_the_peer_reads_them(wrap: Any) -> None:
    spec: Any = INT32
    for depth in range(100):
        try:
            fl.Type.from_proto(computation_pb2.Type.FromString(message(build_type(THEIRS, spec))))
        except Exception:
            # Ours go on.
            assert depth > 25
            ours = build_type(OURS, spec)
            assert sf.Type.from_bytes(ours.to_bytes()) is ours
            return
        check_type(spec)
        spec = wrap(spec)
    raise AssertionError("the peer has lost its limit")


@pytest.mark.parametrize(
    "wrap",
    [
        lambda spec: ("block", [], spec),
        lambda spec: ("block", [("v", spec)], X),
        lambda spec: ("call", ("lambda", None, None, spec), None),
        lambda spec: ("call", ("lambda", "x", INT32, X), spec),
        lambda spec: ("select", ("struct", [(None, spec)], None), 0),
    ],
)
def test_trees_as_deep_as_the_peer_reads_them(wrap: Any) -> None:
    spec: Any = X
    for depth in range(100):
        try:
            computation_pb2.Computation.FromString(message(build_block(THEIRS, spec)))
        except Exception:
            assert depth > 10
            ours = build_block(OURS, spec)
            assert fw.ComputationBuildingBlock.from_bytes(ours.to_bytes()).to_bytes() == (
                ours.to_bytes()
            )
            return
        check_block(spec)
        spec = wrap(spec)
    raise AssertionError("the peer has lost its limit")


def test_errors_name_the_argument_and_the_place() -> None:
    with pytest.raises(TypeError) as wrong:
        fw.Call.from_bytes(3)
    assert str(wrong.value) == (
        "`message` is no message\n  expected: bytes, or a protobuf message\n  found:    3 (int)"
    )
    call = build_block(OURS, BLOCKS["call"]).to_bytes()
    with pytest.raises(ValueError, match="^byte 6 of the message: field 7 is cut short"):
        fw.Call.from_bytes(call[:-1])
    broken = call[:-1] + b"\xff"
    with pytest.raises(ValueError) as text:
        fw.Call.from_bytes(broken)
    assert str(text.value) == (
        f"byte {len(call) - 1} of the message: the text is not UTF-8\n"
        "  expected: bytes that `to_bytes` wrote\n  in:       call.argument"
    )
    with pytest.raises(ValueError, match="expected: a Lambda\n  found:    a Call"):
        fw.Lambda.from_bytes(call)
    with pytest.raises(NotImplementedError):
        fw.ComputationBuildingBlock.from_bytes(b"")
