"""Building blocks, passes and questions about trees, without another package."""

from __future__ import annotations

import gc
import traceback
import weakref
from typing import Any

import numpy as np
import pytest

import stator.federated as sf
from stator.federated import framework as fw
from stator.federated.compiler import building_block_factory as factory
from stator.federated.compiler import transformation_utils as utils

INT = sf.TensorType(np.int32)
PAIR = sf.StructType([("a", INT), ("b", INT)])
UNARY = sf.FunctionType(INT, INT)
DEEP = 100_000


def ref(name: str, ty: Any = INT) -> Any:
    return fw.Reference(name, ty)


def deep_calls(depth: int) -> Any:
    tree = ref("x")
    function = ref("f", UNARY)
    for _ in range(depth):
        tree = fw.Call(function, tree)
    return tree


def test_identity() -> None:
    x = ref("x")
    struct = fw.Struct([x, ("a", x)])
    assert struct[0] is x and struct.a is x and struct["a"] is x
    assert struct[0:2] == (x, x)
    assert list(struct.children()) == [x, x]
    assert fw.Selection(struct, index=0).source is struct
    gone = weakref.ref(struct)
    child = next(fw.Struct([struct]).children())
    assert child is struct
    del struct, child
    gc.collect()
    assert gone() is None


def test_references_equal_themselves_only() -> None:
    assert ref("x") != ref("x")
    assert hash(ref("x")) == hash(ref("x"))
    literal = fw.Literal(1, INT)
    assert fw.Struct([literal]) == fw.Struct([fw.Literal(np.int32(1), INT)])


def test_data() -> None:
    content = fw_any("type.googleapis.com/x", b"abc")
    data = fw.Data(content, INT)
    assert (data.content.type_url, data.content.value) == (content.type_url, b"abc")
    assert data.content == content
    with pytest.raises(TypeError, match="`content` must be a message"):
        fw.Data(1, INT)


def fw_any(url: str, value: bytes) -> Any:
    from stator.federated.compiler.building_blocks import AnyMessage

    return AnyMessage(url, value)


def test_deep_trees() -> None:
    tree = deep_calls(DEEP)
    assert str(tree).startswith("f(f(")
    assert repr(tree).startswith("Call(Reference('f'")
    assert tree.formatted_representation().endswith(")))")
    assert fw.computation_count(tree) == 2 * DEEP + 1
    assert tree == fw.Call(tree.function, tree.argument)
    made, changed = fw.transform_postorder(
        tree,
        lambda block: (
            (ref("y"), True)
            if isinstance(block, fw.Reference) and block.name == "x"
            else (block, False)
        ),
    )
    assert changed and fw.computation_count(made) == 2 * DEEP + 1
    for one in (fw.inline_block_locals, fw.uniquify_reference_names, fw.remove_unused_block_locals):
        assert one(tree)[0] is tree
    assert fw.contains_no_unbound_references(tree, ["f", "x"])
    fw.check_has_unique_names(tree)


def test_shared_blocks_are_asked_about_once() -> None:
    tree = ref("x")
    for _ in range(100):
        tree = fw.Struct([tree, tree])
    asked = []
    made, changed = fw.transform_postorder(
        tree, lambda block: (asked.append(block) or block, False)
    )
    assert made is tree and not changed and len(asked) == 101
    assert fw.computation_count(tree) == 2**101 - 1
    assert fw.inline_block_locals(tree) == (tree, False)
    assert fw.contains_no_unbound_references(tree, "x")


def test_passes() -> None:
    f = ref("f", UNARY)

    def run(one: Any, tree: Any, *args: Any) -> str:
        made, changed = one(tree, *args)
        assert changed == (made is not tree)
        return str(made)

    tree = fw.Call(fw.Lambda("x", INT, fw.Call(f, ref("x"))), ref("y"))
    assert run(fw.replace_called_lambda_with_block, tree) == "(let x=y in f(x))"
    tree = fw.Block([("v", fw.Call(f, ref("x"))), ("w", ref("v"))], fw.Struct([ref("v"), ref("w")]))
    assert run(fw.inline_block_locals, tree) == "<f(x),f(x)>"
    assert run(fw.inline_block_locals, tree, "w") == "(let v=f(x) in <v,v>)"
    assert run(fw.uniquify_reference_names, tree) == "(let _var1=f(x),_var2=_var1 in <_var1,_var2>)"
    names = iter(["p", "q"])
    assert run(fw.uniquify_reference_names, tree, names) == "(let p=f(x),q=p in <p,q>)"
    tree = fw.Block([("v", ref("x")), ("w", ref("y"))], ref("w"))
    assert run(fw.remove_unused_block_locals, tree) == "(let w=y in w)"
    tree = fw.Selection(
        fw.Selection(fw.Struct([("a", fw.Struct([ref("x"), ref("y")]))]), "a"), index=1
    )
    assert run(fw.merge_chained_selections, tree) == "y"
    assert run(fw.selections_by_index, fw.Selection(ref("s", PAIR), "b")) == "s[1]"
    # A name that would come to mean something else is changed.
    tree = fw.Block([("v", ref("x"))], fw.Lambda("x", INT, fw.Struct([ref("x"), ref("v")])))
    assert run(fw.inline_block_locals, tree) == "(_var1 -> <_var1,x>)"


def test_errors_of_callbacks_show_their_frames_only() -> None:
    def transform(block: Any) -> Any:
        raise KeyError("mine")

    def with_symbols(block: Any, symbols: Any) -> Any:
        raise KeyError("mine")

    tree = fw.Struct([ref("x"), fw.Lambda("y", INT, ref("y"))])
    calls = [
        lambda: fw.transform_postorder(tree, transform),
        lambda: fw.transform_preorder(tree, transform),
        lambda: fw.visit_preorder(tree, transform),
        lambda: fw.visit_postorder(tree, transform),
        lambda: fw.computation_count(tree, transform),
        lambda: fw.transform_postorder_with_symbol_bindings(
            tree, with_symbols, fw.SymbolTree(utils.ReferenceCounter)
        ),
        lambda: fw.find_aggregations_in_tree(
            factory.create_federated_sum(ref("c", sf.FederatedType(INT, sf.CLIENTS))), transform
        ),
    ]
    for call in calls:
        with pytest.raises(KeyError, match="mine") as caught:
            call()
        names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert names[-1] in ("transform", "with_symbols")
        assert names[-2] == "<lambda>" and len(names) == 3


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: fw.Call(ref("x")), TypeError, "expected: a function"),
        (lambda: fw.Selection(ref("s", PAIR), "c"), ValueError, "no field `c`"),
        (lambda: fw.Selection(ref("s", PAIR)), ValueError, "needs a `name` or an `index`"),
        (lambda: fw.Lambda("x", None, ref("x")), TypeError, "`x` has no type"),
        (lambda: fw.Block([(1, ref("x"))], ref("x")), TypeError, "wrong kind"),
        (lambda: fw.Struct([1]), TypeError, "wrong kind"),
        (lambda: fw.Call(1), TypeError, "`fn` must be a building block"),
        (lambda: fw.Literal(300, sf.TensorType(np.int8)), ValueError, "not of its type"),
        (lambda: fw.Intrinsic("federated_sum", INT), TypeError, "`federated_sum` can't be"),
        (lambda: fw.transform_postorder(ref("x"), lambda x: x), TypeError, "answer with a pair"),
        (
            lambda: fw.check_contains_no_unbound_references(ref("x")),
            ValueError,
            "names are used that nothing binds",
        ),
    ],
)
def test_errors(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
    assert len(traceback.extract_tb(caught.value.__traceback__)) == 2


def test_nonunique_names() -> None:
    tree = fw.Lambda("x", INT, fw.Lambda("x", INT, ref("x")))
    with pytest.raises(fw.NonuniqueNameError) as caught:
        fw.check_has_unique_names(tree)
    assert caught.value.comp is tree and caught.value.name == "x"
    fw.check_has_unique_names(fw.uniquify_reference_names(tree)[0])


def test_zip_to_match_keeps_all_fields() -> None:
    clients = sf.FederatedType(INT, sf.CLIENTS)
    both = sf.StructType([clients, clients])
    value = ref("v", sf.StructType([("p", both), ("q", clients), ("r", both)]))
    zipped = sf.FederatedType(sf.StructType([INT, INT]), sf.CLIENTS)
    target = sf.StructType([("p", zipped), ("q", clients), ("r", zipped)])
    made = factory.zip_to_match_type(comp_to_zip=value, target_type=target)
    assert made is not None and made.type_signature == target


def test_symbol_trees_are_compared_and_collected() -> None:
    first, second = fw.SymbolTree(utils.ReferenceCounter), fw.SymbolTree(utils.ReferenceCounter)
    assert first == second
    first.drop_scope_down(0)
    first.ingest_variable_binding("x", None)
    assert first != second
    assert str(first) == (
        "[BeginScope]->{([BeginScope]-[Instance count: 0; value: None; name: x.*])}"
    )
    with pytest.raises(ValueError, match="isn't bound here"):
        first.update_payload_with_name("y")
    payload = first.get_payload_with_name("x")
    payload.tree = first
    gone = weakref.ref(first)
    del first, payload
    gc.collect()
    assert gone() is None
