"""A graph through which gradients are computed, compiled by Inductor ahead of time.

AOTAutograd makes two graphs of it: one that gives the results and what is saved, one that gives the
gradients. Each becomes a library; `stator._fx.tied` has what calls them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
from torch._functorch._aot_autograd.schemas import OutputType
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext, tracing
from torch._inductor.compile_fx import compile_fx_aot
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from stator._fakes import fake_mode
from stator._fx.libraries import HopelessError, Look, allocated, ask_for_sizes, tensor_of
from stator._fx.tied import Pair, Place
from stator.errors import BackendError

__all__ = ["compile_pair"]


def compile_pair(
    module: torch.fx.GraphModule, looks: Sequence[Look], settings: dict[str, Any]
) -> Pair | None:
    """Has Inductor make the libraries, for these sizes and integers, and any floats; None: no
    result asks for gradients. Raises what Inductor does, or BackendError where libraries would do
    something else than the graph."""
    ask_for_sizes(module, looks)
    inputs = [
        allocated(value).requires_grad_(value.requires_grad) for value in map(tensor_of, looks)
    ]
    # Where there are floats, symbols stand for what elements of tensors are.
    has_floats = any(isinstance(value, float) for value in looks)
    environment = ShapeEnv() if has_floats else None
    mode = fake_mode(shape_env=environment, allow_non_fake_inputs=True)
    fakes = [mode.from_tensor(value, static_shapes=True) for value in inputs]
    parts = _parts(module, fakes, mode)
    if parts is None:
        return None
    first, second, facts = parts
    _check_operators(first)
    # AOTAutograd has the graph give what it leaves in its inputs, before its outputs.
    mutated = list(facts.mutated_inp_runtime_indices)
    own = len(mutated) + len(facts.output_info)
    _read_again(first, second, own)
    depends = _depends(module, fakes, mode)
    differentiable = [info.requires_grad for info in facts.output_info]
    takes = list(second.graph.find_nodes(op="placeholder"))
    tangents = [node for node in takes if node.name.startswith("tangents_")]
    count = len(takes) - len(tangents)
    if len(tangents) != sum(differentiable) or takes[count:] != tangents:
        raise BackendError("its gradients are computed in a way of their own")
    if _draws(second):
        raise BackendError("its gradients draw random numbers")
    draws = _draws(first)
    _save_bases(first, second, own)
    forward, results = _library(first, mode, settings)
    left, outputs, saved = _all(results[: len(mutated)]), results[len(mutated) : own], results[own:]
    if len(saved) != count:
        raise BackendError("it saves something else than tensors")
    if any(place[0] != "result" for place in outputs if place is not None):
        raise BackendError("a result of it is an input")
    if any(place is not None and place[0] == "input" and place[1] in mutated for place in saved):
        raise BackendError("its gradients need an input that it writes to")
    backward, gradients = _library(second, mode, settings)
    looks_of_tangents = [node.meta["val"] for node in tangents]
    return Pair(
        libraries=[forward, backward],
        outputs=_all(outputs),
        differentiable=differentiable,
        saved=_all(saved),
        strides=[list(node.meta["val"].stride()) for node in takes],
        gradients=gradients,
        depends=depends,
        tangents=[(list(look.shape), str(look.dtype).split(".")[1]) for look in looks_of_tangents],
        written=[
            (index, place, _counts(module, index))
            for index, place in zip(mutated, left, strict=True)
        ],
        draws=draws,
    )


def _depends(
    module: torch.fx.GraphModule, fakes: Sequence[torch.Tensor], mode: FakeTensorMode
) -> list[list[int]]:
    """For each input, the outputs through which eager computes gradients of it. AOTAutograd gives
    zeros of all others, and whoever looks at `.grad` or decays weights would know."""
    with mode, torch.enable_grad():
        outputs = module(*fakes)
    reached = [_leaves(output) if isinstance(output, torch.Tensor) else set() for output in outputs]
    return [[at for at, leaves in enumerate(reached) if id(value) in leaves] for value in fakes]


def _leaves(output: torch.Tensor) -> set[int]:
    """The ids of the tensors that gradients of this one come to."""
    found: set[int] = set()
    known, left = set(), [output.grad_fn]
    while left:
        node: Any = left.pop()
        if node is None or node in known:
            continue
        known.add(node)
        if (leaf := getattr(node, "variable", None)) is not None:
            found.add(id(leaf))
        left.extend(following for following, _ in node.next_functions)
    return found


def _counts(module: torch.fx.GraphModule, index: int) -> bool:
    """Whether PyTorch counts what a graph writes to an input: of running statistics it doesn't."""
    placeholder = list(module.graph.find_nodes(op="placeholder"))[index]
    names = [getattr(user.target, "__name__", str(user.target)) for user in placeholder.users]
    norms = [name for name in names if name in ("batch_norm", "instance_norm")]
    return not norms or any(name.endswith("_") for name in names)


_UNKNOWN = ("aten::mkldnn_rnn_layer",)
"""Operators that save memory for their gradients of which PyTorch's compilers don't know the size:
their fake kernels say that there is none."""


def _check_operators(module: torch.fx.GraphModule) -> None:
    for node in module.graph.nodes:
        if getattr(node.target, "_name", "").split(".")[0] in _UNKNOWN:
            raise HopelessError(
                f"Inductor can't compute gradients through {node.target}, by which LSTMs run on "
                "the CPU"
            )


def _draws(module: torch.fx.GraphModule) -> bool:
    tag = torch.Tag.nondeterministic_seeded
    return any(tag in getattr(node.target, "tags", ()) for node in module.graph.nodes)


def _all(places: Sequence[Place | None]) -> list[Place]:
    found = [place for place in places if place is not None]
    if len(found) < len(places):
        raise BackendError("a result of it is no tensor")
    return found


def _parts(
    module: torch.fx.GraphModule, fakes: Sequence[torch.Tensor], mode: FakeTensorMode
) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule, Any] | None:
    """What gives the results and what is saved; what gives the gradients; and AOTAutograd's facts
    of the graph. None: there are no gradients."""
    parts: list[torch.fx.GraphModule] = []

    def partition(*args: Any, **settings: Any) -> Any:
        found = min_cut_rematerialization_partition(*args, **settings)
        parts.extend(copy.deepcopy(part) for part in found)
        return found

    def nothing(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        return make_boxed_func(gm.forward)

    context = TracingContext(mode)
    with tracing(context):
        aot_module_simplified(
            module,
            list(fakes),
            fw_compiler=nothing,
            bw_compiler=nothing,
            partition_fn=partition,
            decompositions=select_decomp_table(),
        )
    facts: Any = context.fw_metadata
    if not parts:
        return None
    if any(info.mutates_metadata for info in facts.input_info):
        raise BackendError(
            "gradients are computed through it, and it changes what an input is like"
        )
    if any(info.mutates_data and info.requires_grad for info in facts.input_info):
        raise BackendError("gradients are computed through it, and it writes to what asks for them")
    plain = (OutputType.non_alias, OutputType.unsafe_view_alias)
    if any(info.output_type not in plain for info in facts.output_info):
        raise BackendError("gradients are computed through it, and results share memory")
    return parts[0], parts[1], facts


def _read_again(first: torch.fx.GraphModule, second: torch.fx.GraphModule, outputs: int) -> None:
    """Where a number is saved behind the outputs, saves the tensors that it is computed of: a
    library takes and gives tensors alone."""
    end = first.graph.output_node()
    given: Any = end.args[0]
    saved = list(given[outputs:])
    numbers = [node for node in saved if not _is_tensor(node)]
    if not numbers:
        return
    takes = {node.name: node for node in second.graph.find_nodes(op="placeholder")}
    tensors = [node for node in saved if _is_tensor(node)]
    made: dict[Any, torch.fx.Node] = {node: takes[node.name] for node in tensors}
    tangent = next(node for node in takes.values() if node.name.startswith("tangents_"))
    begin = next(node for node in second.graph.nodes if node.op != "placeholder")

    def computed(node: torch.fx.Node) -> torch.fx.Node:
        if node in made:
            return made[node]
        if _is_tensor(node):
            with second.graph.inserting_before(tangent):
                made[node] = second.graph.placeholder(node.name)
            made[node].meta.update(node.meta)
            tensors.append(node)
        else:
            if node.op == "placeholder":
                raise BackendError("it saves something else than tensors")
            args = {arg: computed(arg) for arg in node.all_input_nodes}
            with second.graph.inserting_before(begin):
                made[node] = second.graph.node_copy(node, args.__getitem__)
        return made[node]

    for node in numbers:
        taken = takes[node.name]
        taken.replace_all_uses_with(computed(node))
        second.graph.erase_node(taken)
    end.args = ((*given[:outputs], *tensors),)


def _is_tensor(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _save_bases(first: torch.fx.GraphModule, second: torch.fx.GraphModule, outputs: int) -> None:
    """Where a view of an input is saved behind the outputs, saves the input: a library may give a
    copy of a view, of which nobody would know that it is out of date."""
    end = first.graph.output_node()
    given: Any = end.args[0]
    results = list(given)
    takes = list(second.graph.find_nodes(op="placeholder"))
    begin = next(node for node in second.graph.nodes if node.op != "placeholder")
    memory = {_memory(node) for node in first.graph.find_nodes(op="placeholder")}
    for at in range(outputs, min(len(results), outputs + len(takes))):
        node, taken = results[at], takes[at - outputs]
        if not isinstance(node, torch.fx.Node) or _memory(node) not in memory:
            continue
        views: list[torch.fx.Node] = []
        while node.op != "placeholder":
            views.append(node)
            if len(node.all_input_nodes) != 1 or _memory(node.all_input_nodes[0]) != _memory(node):
                raise BackendError("gradients are computed through it, and it saves a view")
            node = node.all_input_nodes[0]
        made = {node: taken}
        users = list(taken.users)
        with second.graph.inserting_before(begin):
            for view in reversed(views):
                made[view] = second.graph.node_copy(view, made.__getitem__)
        for user in users:
            user.replace_input_with(taken, made[results[at]])
        taken.meta["val"] = node.meta["val"]
        results[at] = node
    end.args = (tuple(results),)


def _memory(node: torch.fx.Node) -> int | None:
    """Whose memory a node's value has; None: it's no tensor."""
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def _library(
    module: torch.fx.GraphModule, mode: FakeTensorMode, settings: dict[str, Any]
) -> tuple[str, list[Place | None]]:
    """A library of a graph of AOTAutograd's, and where its outputs are."""
    placeholders = list(module.graph.find_nodes(op="placeholder"))
    examples = [node.meta["val"] for node in placeholders]
    if not all(isinstance(example, torch.Tensor) for example in examples):
        raise BackendError("it saves something else than tensors")
    memory = set(map(_memory, placeholders))
    results: list[torch.fx.Node] = []
    places: list[Place | None] = []
    end = module.graph.output_node()
    for node in end.args[0]:  # type: ignore[union-attr]
        if not isinstance(node, torch.fx.Node):
            places.append(None)
        elif node in placeholders:
            places.append(("input", placeholders.index(node)))
        else:
            if _memory(node) in memory:
                raise BackendError("gradients are computed through it, and a result is a view")
            if node not in results:
                results.append(node)
            places.append(("result", results.index(node)))
    if not results:
        raise BackendError("it computes nothing")
    end.args = (tuple(results),)
    module.graph.lint()  # type: ignore[no-untyped-call]
    module.recompile()
    with torch.no_grad(), tracing(TracingContext(mode)):
        library = compile_fx_aot(module, examples, **settings)
    assert isinstance(library, str)
    return library, places
