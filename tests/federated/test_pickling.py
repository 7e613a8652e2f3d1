"""Pickles and copies: each object of the language can be pickled, or says why not."""

from __future__ import annotations

import collections
import copy
import pickle
from typing import Any

import numpy as np
import pytest

import stator.federated as fl
from stator._stator import federated as native
from stator.federated import framework as fw
from stator.federated.execution import LocalContext

PAIR = collections.OrderedDict(a=np.int32, b=fl.to_type([np.float32, np.bool_]))


def again(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def parts() -> list[Any]:
    x = fw.Reference("x", fl.to_type(PAIR), "scope")
    one = fw.Literal(np.array([1, 2], np.int32), fl.TensorType(np.int32, [2]))
    struct = fw.Struct([("a", one), (None, x)])
    identity = fw.Lambda("x", fl.to_type(PAIR), x)
    compiled = fl.local_computation(lambda x: x + 1, np.int32).to_compiled_building_block()
    return [
        x,
        one,
        fw.Literal(b"\0text", fl.TensorType(np.str_)),
        struct,
        fw.Struct([x, x], list),
        fw.Selection(struct, name="a"),
        fw.Selection(struct, index=1),
        identity,
        fw.Lambda(None, None, one),
        fw.Call(identity, x),
        fw.Call(fw.Lambda(None, None, one)),
        fw.Block([("v", struct), ("w", fw.Selection(struct, index=0))], x),
        fw.Intrinsic(
            "federated_sum",
            fl.FunctionType(
                fl.FederatedType(np.int32, fl.CLIENTS), fl.FederatedType(np.int32, fl.SERVER)
            ),
        ),
        fw.Data(native.AnyMessage("example.org/x", b"content"), np.int32),
        fw.Placement(fl.CLIENTS),
        fw.CompiledComputation(compiled, name="added"),
    ]


@pytest.mark.parametrize("block", parts(), ids=lambda block: type(block).__name__)
def test_blocks(block: Any) -> None:
    found = again(block)
    assert type(found) is type(block)
    assert repr(found) == repr(block)
    assert found.type_signature is block.type_signature
    if not any(isinstance(part, fw.Reference) for part in found.children()) and not isinstance(
        block, (fw.Reference, fw.Call, fw.Block, fw.CompiledComputation)
    ):
        assert found == block or "x@scope" in str(block) or "'x'" in repr(block)
    assert copy.copy(block) is copy.deepcopy(block) is block


def test_shared_blocks_stay_shared_and_deep_ones_fit() -> None:
    block: Any = fw.Literal(1, fl.TensorType(np.int32))
    for _ in range(30):
        block = fw.Struct([block, block])
    found = again(block)
    assert found[0] is found[1]
    deep: Any = fw.Literal(1, fl.TensorType(np.int32))
    for _ in range(2000):
        deep = fw.Call(fw.Lambda(None, None, deep))
    assert str(again(deep)) == str(deep)


def test_computations_keep_their_containers() -> None:
    @fl.federated_computation(fl.FederatedType(np.int32, fl.CLIENTS))
    def total(values):
        return {"sum": fl.federated_sum(values), "list": [fl.federated_max(values)] * 2}

    found = again(total)
    assert found == total and found.type_signature is total.type_signature
    assert found([1, 2]) == total([1, 2]) == {"sum": 3, "list": [2, 2]}
    assert copy.deepcopy(total) is total
    added = again(fl.local_computation(lambda x: [x + 1], np.int32))
    assert added(1) == [2]


def test_a_python_function_says_why_not() -> None:
    def work(x):
        return x

    local = fl.local_computation(np.int32, result=np.int32)(work)
    for value in (local, local.to_compiled_building_block()):
        with pytest.raises(TypeError, match=r"a Python function can't be serialized(.|\n)*`work`"):
            pickle.dumps(value)


@fl.federated_computation
def polymorphic(x, y):
    """Pickled by its name."""
    return y, x


class Holder:
    polymorphic = staticmethod(fl.local_computation(lambda x: x + 1))


def test_polymorphic_computations() -> None:
    assert again(polymorphic) is polymorphic is copy.deepcopy(polymorphic)
    hidden = fl.federated_computation(lambda x: x)
    with pytest.raises(TypeError) as caught:
        pickle.dumps(hidden)
    lines = str(caught.value).splitlines()
    assert lines[0] == "a polymorphic computation is pickled by its name, and isn't found there"
    assert "<lambda>" in lines[2] and "fn_for_argument_type" in lines[-1]
    concrete = hidden.fn_for_argument_type(np.int32)
    assert again(concrete)(3) == 3


def test_contexts() -> None:
    for context in (LocalContext(), LocalContext(3), LocalContext(3, threads=2)):
        found = again(context)
        assert repr(found) == repr(context)
        assert repr(copy.copy(context)) == repr(context)
    with pytest.raises(TypeError, match="can't be pickled: what is installed on it"):
        pickle.dumps(fw.get_context_stack())


def test_values_say_why_not() -> None:
    errors = []

    @fl.federated_computation(np.int32)
    def keep(x):
        with pytest.raises(TypeError) as caught:
            pickle.dumps(x)
        errors.append(str(caught.value))
        return x

    assert errors[0].startswith("a value of a computation can't be pickled")
    assert "pickle the computation that uses it" in errors[0] and "`keep`" in errors[0]


def test_definitions_and_messages() -> None:
    for definition in fw.get_aggregation_intrinsics():
        assert again(definition) is definition
    own = fw.IntrinsicDef("OWN", "own", fl.TensorType(np.int32))
    assert repr(again(own)) == repr(own)
    message = native.AnyMessage("example.org/x", b"content")
    assert again(message) == message


def test_compiled_computations_can_be_made() -> None:
    local = fl.local_computation(lambda x: x + 1, np.int32)
    message = local.to_proto()
    made = fw.CompiledComputation(message)
    assert made.type_signature == local.type_signature
    assert made == fw.CompiledComputation.from_proto(message)
    named = fw.CompiledComputation(message, name="added")
    assert (str(named), named.name) == ("comp#added", "added")
    assert fw.CompiledComputation(named).name == "added"
    assert fw.CompiledComputation(named, "other").name == "other"
    assert fw.ConcreteComputation.from_building_block(named)(4) == 5
    with pytest.raises(fw.TypesNotEquivalentError):
        fw.CompiledComputation(message, type_signature=fl.FunctionType(np.int32, np.float32))
    with pytest.raises(TypeError, match="the message of a compiled computation"):
        fw.CompiledComputation(fl.federated_computation(lambda x: x, np.int32).to_proto())
    with pytest.raises(TypeError, match="`proto` is no message"):
        fw.CompiledComputation(3)
    pair = fl.local_computation(lambda x: {"a": x}, np.int32)
    with_dict = fw.CompiledComputation(pair.to_proto(), type_signature=pair.type_signature)
    found = fw.ConcreteComputation.from_building_block(with_dict)(1)
    assert type(found) is dict and found == {"a": 1}


def test_types_get_a_container() -> None:
    named = fl.to_type(collections.OrderedDict(a=np.int32, b=np.bool_))
    plain = fl.StructType([("a", np.int32), ("b", np.bool_)])
    message = named.to_proto()
    of = fl.StructWithPythonType
    assert of.from_proto(message, container_type=collections.OrderedDict) is named
    assert of.from_bytes(message, container_type=dict).python_container is dict
    assert of.from_proto(message) is plain
    with pytest.raises(TypeError, match="`container_type` is for structs with a Python class"):
        fl.StructType.from_proto(message, container_type=dict)
    with pytest.raises(ValueError, match="another kind"):
        of.from_proto(fl.TensorType(np.int32).to_proto(), container_type=dict)


def test_names_for_no_tree() -> None:
    from stator.federated.compiler.building_block_factory import unique_name_generator

    names = unique_name_generator(None)
    assert [next(names), next(names)] == ["_var1", "_var2"]
    assert next(unique_name_generator(None, prefix=None)) == "_aaa1"
    with pytest.raises(TypeError, match="a building block"):
        unique_name_generator(3)


def test_programs_of_computations_know_the_users_lines() -> None:
    torch = pytest.importorskip("torch")
    rows = fl.to_type(collections.OrderedDict(x=fl.TensorType(np.float32, [2, 3]), y=np.int64))

    @fl.local_computation(rows)
    def chosen(rows: Any) -> Any:
        return torch.nn.functional.nll_loss(rows["x"], rows["y"].expand(2))

    @fl.federated_computation(fl.FederatedType(rows, fl.CLIENTS))
    def total(rows: Any) -> Any:
        return fl.federated_sum(fl.federated_map(chosen, rows))

    clients = [{"x": np.zeros((2, 3), np.float32), "y": np.int64(label)} for label in (0, 7)]
    block = fw.ConcreteComputation.from_building_block(again(total.to_building_block()))
    for told in (total, again(total), again(again(total)), block):
        with pytest.raises(IndexError, match="out of bounds") as failed:
            told(clients)
        [note, client] = failed.value.__notes__
        assert 'nll_loss(rows["x"], rows["y"].expand(2))' in note
        assert client == "at client 1"


def test_pickles_of_before_have_no_lines() -> None:
    """The row of a compiled computation had three arguments."""
    pytest.importorskip("torch")
    compiled = fl.local_computation(lambda x: x + 1, np.int32).to_compiled_building_block()
    make, (row,) = fw.CompiledComputation(compiled, name="added").__reduce__()
    [(name, arguments)] = row
    made = make([(name, arguments[:3])])
    assert again(made).type_signature is made.type_signature
