"""Computations and values: what the differential tests with the peer don't reach."""

from __future__ import annotations

import collections
import copy
import dataclasses
import gc
import pickle
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import stator.federated as fl
from stator.federated import framework as fw

fc = fl.federated_computation


def clients(member: Any, all_equal: bool | None = None) -> fl.FederatedType:
    return fl.FederatedType(member, fl.CLIENTS, all_equal)


def test_docstring_is_kept() -> None:
    @fc(np.int32)
    def f(x):
        """What f does."""
        return x

    @fc
    def g(x):
        """What g does."""

    assert f.__doc__ == "What f does."
    assert g.__doc__ == "What g does."
    assert fc(lambda: 1).__doc__ is None
    assert "federated computation" in fc.__doc__


def test_equal_computations() -> None:
    def make():
        return fc(lambda x: (x, x), np.int32)

    a, b, other = make(), make(), fc(lambda x: x, np.int32)
    assert a == b
    assert hash(a) == hash(b)
    assert a != other
    assert a != 1
    assert len({a, b, other}) == 2


def test_bytes_round_trip() -> None:
    total = fc(lambda v: fl.federated_sum(v.a), clients([("a", np.int32)]))
    again = fw.ConcreteComputation.from_bytes(total.to_bytes())
    assert again == total
    assert str(again.to_building_block()) == str(total.to_building_block())
    assert again.type_signature is total.type_signature
    assert pickle.loads(pickle.dumps(total)) == total


def test_containers_stay_in_the_type_only() -> None:
    pair = fc(lambda x: [x, x], np.int32)
    assert repr(pair.type_signature.result).endswith("as list")
    plain = pair.to_building_block().type_signature.result
    assert type(plain) is fl.StructType
    again = fw.ConcreteComputation.from_bytes(pair.to_bytes())
    assert type(again.type_signature.result) is fl.StructType


def test_containers_pass_through_calls() -> None:
    pair = fc(lambda x: [x, x], np.int32)
    outer = fc(lambda x: pair(x), np.int32)
    assert repr(outer.type_signature.result).endswith("as list")


def test_derived_class() -> None:
    class Mine(fw.ConcreteComputation):
        def __init__(self, computation: Any, label: str) -> None:
            super().__init__(
                computation_proto=computation.to_proto(),
                context_stack=computation.context_stack,
                annotated_type=computation.type_signature,
            )
            self.label = label

    base = fc(lambda x: [x], np.int32)
    mine = Mine(base, "mine")
    assert mine.label == "mine"
    assert mine.type_signature is base.type_signature
    assert mine == base
    assert str(fc(lambda x: mine(x), np.int32)).startswith("<ConcreteComputation")
    assert isinstance(mine, fl.Computation)
    assert isinstance(mine, fl.TypedObject)

    class Forgetful(fw.ConcreteComputation):
        def __init__(self) -> None:
            pass

    with pytest.raises(RuntimeError, match="isn't initialized"):
        Forgetful()(1)


def test_dataclass_and_attrs_results() -> None:
    @dataclasses.dataclass
    class Point:
        x: Any
        y: Any

    f = fc(lambda x: Point(x, (x,)), np.int32)
    assert str(f.type_signature) == "(int32 -> <x=int32,y=<int32>>)"
    assert f.type_signature.result.python_container is Point


def test_partly_zipped_argument() -> None:
    """The peer forgets all fields but the first."""
    inner = fc(lambda y, z: z, clients((np.int32, np.int32)), np.int32)
    ty = fl.StructType([("y", (clients(np.int32), clients(np.int32))), ("z", np.int32)])
    outer = fc(lambda x: inner(x), ty)
    assert str(outer.to_building_block()) == (
        "(<lambda>_arg -> (let fc_<lambda>_symbol_0=(<lambda>_arg -> <lambda>_arg[1])"
        "(<y=federated_zip_at_clients(<lambda>_arg[0]),z=<lambda>_arg[1]>)"
        " in fc_<lambda>_symbol_0))"
    )


def test_list_for_a_federated_argument() -> None:
    """The peer fails: it looks for fields of the federated type."""
    inner = fc(lambda y: y, clients((np.int32, np.int32)))
    outer = fc(lambda a, b: inner([a, b]), clients(np.int32), clients(np.int32))
    assert "federated_zip_at_clients(<<lambda>_arg[0],<lambda>_arg[1]>)" in str(
        outer.to_building_block()
    )


def test_values_of_outer_functions() -> None:
    """Usable while the function that they belong to is traced, also in functions inside it."""
    kept: list[Any] = []

    @fc(np.int32)
    def outer(x):
        @fc(np.int32)
        def inner(y):
            kept.append(x)
            return x, y

        kept.append(inner)
        return inner(x)

    assert "(inner_arg -> <outer_arg,inner_arg>)" in str(outer.to_building_block())
    for escaped in kept:
        with pytest.raises(fw.ContextError, match="outside the function"):
            fc(lambda z: (z, escaped), np.int32)  # noqa: B023
        with pytest.raises(fw.ContextError, match="outside the function"):
            fl.to_value(escaped, None)


def test_same_named_function_cannot_capture_an_escaped_value() -> None:
    """By name alone the reference would be bound to another function's parameter."""
    kept: list[Any] = []

    def make():
        @fc(np.int32)
        def f(x):
            kept.append(x)
            return kept[0]

        return f

    make()
    with pytest.raises(fw.ContextError):
        make()


def test_depth_two_capture_is_known() -> None:
    """A function two levels inside makes all functions between depend on the outermost."""
    kept: list[Any] = []

    @fc(np.int32)
    def outer(x):
        @fc
        def middle():
            @fc
            def inner():
                return x

            return inner()

        kept.append(middle)
        return middle()

    with pytest.raises(fw.ContextError):
        kept[0]()


def test_values_as_keys_and_in_sets() -> None:
    @fc(np.int32, np.int32)
    def f(a, b):
        table = {a: "a", b: "b"}
        assert table[a] == "a"
        assert len({a, b, a}) == 2
        assert a is a  # noqa: PLR0124
        return [v for v in (a, b) if v is a]

    assert len(f.type_signature.result) == 1


def test_absent_fields_and_copies() -> None:
    @fc([("a", np.int32)])
    def f(s):
        assert hasattr(s, "a")
        assert not hasattr(s, "b")
        assert getattr(s, "b", None) is None
        assert copy.copy(s) is s
        assert copy.deepcopy([s])[0] is s
        return s

    assert f is not None


def test_deeply_nested_results() -> None:
    nested: Any = 1
    for _ in range(3000):
        nested = [nested]
    f = fc(lambda: nested)
    assert len(f.to_bytes()) > 3000
    own: list[Any] = []
    own.append(own)
    with pytest.raises(ValueError, match="holds itself"):
        fc(lambda: own)


def test_deeply_nested_computations() -> None:
    """Each embeds the one before, twice: 2**n places, n nodes."""
    f = fc(lambda x: x, np.int32)
    for _ in range(2000):
        f = _wrap(f)
    assert str(f.type_signature) == "(int32 -> int32)"
    assert f.to_building_block() is f.to_building_block()


def _wrap(f: Any) -> Any:
    return fc(lambda x: f(x), np.int32)


def test_long_chain() -> None:
    same = fc(lambda x: x, np.int32)

    @fc(clients(np.int32))
    def chain(v):
        for _ in range(20_000):
            v = fl.federated_map(same, v)
        return v

    assert len(chain.to_building_block().result.locals) == 20_000


def test_polymorphic_is_freed_with_its_function() -> None:
    def make():
        @fc
        def f(x):
            assert f is not None
            return x

        fc(lambda x: f(x), np.int32)
        return weakref.ref(f)

    gone = make()
    gc.collect()
    assert gone() is None


def test_polymorphic_calls_itself_with_other_types() -> None:
    @fc
    def count(x):
        return count([x]) if len(str(x.type_signature)) < 12 else x

    f = fc(lambda x: count(x), np.int32)
    assert str(f.type_signature.result) == "<<<<int32>>>>"


def test_polymorphic_after_an_error() -> None:
    attempts = []

    @fc
    def f(x):
        attempts.append(None)
        if len(attempts) == 1:
            raise ValueError("once")
        return x

    with pytest.raises(ValueError, match="once"):
        fc(lambda x: f(x), np.int32)
    fc(lambda x: f(x), np.int32)
    fc(lambda x: f(x), np.int32)
    assert len(attempts) == 2


def test_own_wrapper() -> None:
    calls = []

    def make(fn, parameter_type, unpack=None, name=None, **kwargs):
        calls.append((str(parameter_type), unpack, name))
        return fc(fn, parameter_type)

    wrapper = fw.ComputationWrapper(make)

    @wrapper(np.int32)
    def f(x):
        """What f does."""
        return x

    assert isinstance(f, fw.ConcreteComputation)
    polymorphic = wrapper(lambda x: x)
    assert isinstance(polymorphic, fw.PolymorphicComputation)
    assert calls == [("int32", None, "f")]


def test_threads() -> None:
    """Each thread traces for itself."""
    results: dict[int, str] = {}

    def work(number: int) -> None:
        def f(x):
            for _ in range(200):
                x = fl.federated_map(same, x)
            return x

        f.__name__ = f"f{number}"
        results[number] = str(fc(f, clients(np.int32)).to_building_block())

    same = fc(lambda x: x, np.int32)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, text in results.items():
        assert text.count(f"fc_f{number}_symbol_") == 200 + 199 + 1
    assert len(results) == 8


def test_keyword_order_of_named_tuples() -> None:
    point = collections.namedtuple("point", "x y")
    f = fc(lambda p: p.y, point(np.int32, np.float32))
    g = fc(lambda a, b: f(y=b, x=a), np.int32, np.float32)
    assert "(<x=<lambda>_arg[0],y=<lambda>_arg[1]>)" in str(g.to_building_block())


def test_too_deep_for_pythons_containers() -> None:
    ty: Any = fl.to_type(np.int32)
    for _ in range(50_000):
        ty = fl.StructType([ty])
    with pytest.raises(RecursionError, match="containers in each other"):
        fw.structure_with_type(str, ty)
    value: Any = 1
    for _ in range(50_000):
        value = fw.pack_args_into_struct([value], {})
    with pytest.raises(RecursionError, match="containers in each other"):
        fw.type_to_py_container(value, ty)


def test_least_index() -> None:
    with pytest.raises(IndexError):
        fc(lambda x: x[-(2**63)], (np.int32,))
    with pytest.raises(IndexError):
        fc(lambda x: x[2**70], (np.int32,))
