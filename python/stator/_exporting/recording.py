"""One call of a function, traced: its graph, what goes in, and what comes out.

A call records the function, a second one asks the graph's backend for code, which is this file.
What the graph reads is found among arguments and state by identity, and so is what is returned.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import itertools
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.fx
from torch._dynamo.exc import UserError
from torch.export.dynamic_shapes import _combine_args, _DimHint, _tree_map_with_path
from torch.utils import _pytree as pytree

from stator._dynamic import mark_dynamic, maybe_mark_dynamic
from stator._settings import Settings
from stator._stator import Compiled
from stator._targets import compile_target, native_of
from stator.errors import DynamicDimensionError, ExportError, GraphBreakError

__all__ = [
    "Argument",
    "Constant",
    "Output",
    "Recorded",
    "Size",
    "State",
    "Value",
    "names_of",
    "record",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Argument:
    """A leaf of the call's arguments."""

    index: int


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """A parameter or buffer of the module, by name."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Constant:
    """Anything else."""

    value: Any
    source: str = ""
    """Where it was found, if it's a tensor."""


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """A size of one of the graph's inputs."""

    input: int
    dim: int


@dataclasses.dataclass(frozen=True, slots=True)
class Output:
    """What the graph gives."""

    index: int


Value: TypeAlias = Argument | State | Constant | Size | Output


@dataclasses.dataclass(frozen=True, slots=True)
class Recorded:
    """A traced call."""

    graph: torch.fx.GraphModule
    inputs: list[Value]
    """What the graph takes."""
    leaves: list[Value]
    """The leaves of what the function returns."""
    structure: pytree.TreeSpec
    keywords: list[str]
    """The keywords of the call, in the order of the arguments' leaves."""
    assigned: dict[str, int]
    """Buffers that the function replaces, and which outputs of the graph they become."""
    facts: list[str]
    """Conditions on sizes that the trace relies on, in terms of `names_of`."""
    places: list[tuple[str, int, str]]
    """Where sizes were decided by: file, line, function."""


def record(
    target: Any,
    module: torch.nn.Module | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
) -> Recorded:
    """Traces a call of `target`, which `module` is the state of."""
    captured: list[tuple[torch.fx.GraphModule, list[Any], list[int | None]]] = []
    outputs: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        captured.append((graph, list(inputs), [_version(value) for value in inputs]))

        def run(*values: Any) -> list[Any]:
            outputs[:] = map(_marked, graph(*values))
            return outputs

        return run

    settings = Settings(backend=backend, fullgraph=True, when="second_call")
    calls = [_marked_copies(args, kwargs, target, dynamic_shapes) for _ in range(2)]
    buffers = _Buffers(module)
    with _errors(), _exporting(buffers):
        compiled = compile_target(target, settings)
        native = native_of(compiled)
        # `fullgraph` has refused what has no Python code.
        assert native is not None
        native._keep_whole()
        (first_args, first_kwargs), (second_args, second_kwargs) = calls
        compiled(*first_args, **first_kwargs)
        _check_is_whole(native, buffers)
        buffers.put_back()
        result = compiled(*second_args, **second_kwargs)
        _check_is_whole(native, buffers)
        assigned = buffers.assigned()
    if len(captured) != 1:
        why = native.stats.reason or "it has no operation on tensors"
        raise ExportError(
            f"There is no graph of its own that stands for the call: {why}.",
            "Export a function that computes tensors from its arguments.",
        )
    [(graph, inputs, versions)] = captured
    arguments = pytree.tree_leaves(calls[1])
    found = _Found(arguments, module)
    taken = [found.input(node, value) for node, value in zip(_inputs(graph), inputs, strict=True)]
    taken = [_size(graph, index, value) for index, value in enumerate(taken)]
    _check_writes(taken, inputs, versions, pytree.tree_leaves((args, kwargs)), module)
    leaves, structure = pytree.tree_flatten(result)
    given = {id(output): index for index, output in reversed(list(enumerate(outputs)))}
    values = [found.leaf(leaf, given) for leaf in leaves]
    beyond = native._beyond_graph()[0]
    facts = [text for kind, text, _ in beyond if kind == "fact"]
    decided = [
        match for kind, text, _ in beyond if kind == "decided" and (match := _AT.search(text))
    ]
    places = [(at["file"], int(at["line"]), at["function"]) for at in decided]
    becomes = {name: _assignment(name, *both, given) for name, both in assigned.items()}
    return Recorded(graph, taken, values, structure, list(kwargs), becomes, facts, places)


_AT = re.compile(r" at (?P<file>.+):(?P<line>\d+) in (?P<function>.+)$")
"""How the `dynamic` log ends a line."""


class _Integer(int):
    """An integer that the graph gives, known by its identity."""


class _Float(float):
    """The same of a float."""


def _marked(value: Any) -> Any:
    """An output of the graph as an object that nothing else is."""
    if type(value) is int:
        return _Integer(value)
    return _Float(value) if type(value) is float else value


def copied(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, with tensors of their own."""
    own: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map_only(
        torch.Tensor, _copy, (args, kwargs)
    )
    return own


def _marked_copies(
    args: tuple[Any, ...], kwargs: dict[str, Any], target: Any, dynamic_shapes: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same, with those sizes marked that vary."""
    own = copied(args, kwargs)
    if dynamic_shapes is not None:
        owners: dict[int, list[Any]] = {}
        leaves = pytree.tree_leaves((args, kwargs))
        for leaf, copy in zip(leaves, pytree.tree_leaves(own), strict=True):
            owners.setdefault(id(leaf), []).append(copy)
        _mark(args, kwargs, target, dynamic_shapes, owners)
    return own


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    copy = tensor.detach().clone().requires_grad_(tensor.requires_grad)
    return torch.nn.Parameter(copy) if isinstance(tensor, torch.nn.Parameter) else copy


def _mark(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    target: Any,
    dynamic_shapes: Any,
    owners: Mapping[int, list[Any]],
) -> None:
    """Marks the sizes that vary."""
    combined: Any = _combine_args(target, args, kwargs)
    if isinstance(dynamic_shapes, tuple | list):
        combined = type(dynamic_shapes)(combined.values())

    def mark(path: Any, leaf: Any, shape: Any) -> None:
        if shape is None:
            return
        if not isinstance(leaf, torch.Tensor):
            if not _is_static(shape):
                raise ExportError(
                    f"dynamic_shapes{pytree.keystr(path)} says that {leaf!r} varies.",
                    "Only sizes of tensors do: pass a tensor, or export for this value.",
                )
            return
        pairs = shape.items() if isinstance(shape, dict) else enumerate(shape)
        for dim, size in pairs:
            if not _is_static(size):
                is_hint = isinstance(size, _DimHint) and size.type.name == "AUTO"
                for copy in owners[id(leaf)]:
                    (maybe_mark_dynamic if is_hint else mark_dynamic)(copy, dim)

    try:
        _tree_map_with_path(mark, combined, dynamic_shapes, tree_name="inputs")
    except UserError as error:
        [found, *_] = str(error).splitlines()
        raise ExportError(
            f"dynamic_shapes doesn't fit the arguments: {found}.",
            "Give it their structure: a tuple of shapes in order, or a dictionary by parameter.",
        ) from None


def _is_static(size: Any) -> bool:
    return (
        size is None
        or isinstance(size, int)
        or (isinstance(size, _DimHint) and size.type.name == "STATIC")
    )


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Says of graph breaks and sizes what they are to who exports."""
    try:
        yield
    except ExportError:
        raise
    except GraphBreakError as error:
        raise ExportError(error.explanation, error.hint, error.stack, error.why, error.id) from None
    except DynamicDimensionError as error:
        raise ExportError(
            f"{error.dimension} is to vary, but the trace is for one size: {error.reason}",
            "Let the function not depend on the size there, give an example whose size is neither "
            "0 nor 1, or take the dimension out of dynamic_shapes.",
        ) from None


class _Buffers:
    """The buffers of a module, as they were."""

    def __init__(self, module: torch.nn.Module | None) -> None:
        named = [] if module is None else list(module.named_modules())
        self._owned = [(name, each, dict(each._buffers)) for name, each in named]
        buffers = {id(it): it for *_, own in self._owned for it in own.values() if it is not None}
        self._saved = [(it, it.detach().clone()) for it in buffers.values()]

    def assigned(self) -> dict[str, tuple[torch.Tensor | None, torch.Tensor | None]]:
        """Those that are other objects now: what they were, and are."""
        return {
            f"{prefix}.{name}" if prefix else name: (buffer, each._buffers.get(name))
            for prefix, each, own in self._owned
            for name, buffer in own.items()
            if each._buffers.get(name) is not buffer
        }

    def put_back(self) -> None:
        """Everything is as it was."""
        for _, each, own in self._owned:
            each._buffers.update(own)
        with torch.no_grad():
            for buffer, values in self._saved:
                # Not all operations that write count it in the version (batch_norm).
                if not torch.equal(buffer, values):
                    buffer.copy_(values)


@contextlib.contextmanager
def _exporting(buffers: _Buffers) -> Iterator[None]:
    """PyTorch says that it exports. Afterwards buffers and random numbers are as they were."""
    was_exporting = torch.compiler._is_exporting_flag
    try:
        torch.compiler._is_exporting_flag = True
        with torch.random.fork_rng():
            yield
    finally:
        torch.compiler._is_exporting_flag = was_exporting
        buffers.put_back()


_OF_BUFFER = re.compile(r"\._buffers\['[^']*'\]$")
_OF_PERSISTENCE = re.compile(r"\._non_persistent_buffers_set\.(?:add|discard)\(\)$")
"""Setting a buffer says of it once more whether it is persistent, which it was before."""


def _assignment(
    name: str, old: torch.Tensor | None, new: torch.Tensor | None, given: Mapping[int, int]
) -> int:
    """The output of the graph that a buffer is replaced by."""
    if old is None or new is None or id(new) not in given:
        what = "something that the graph doesn't compute"
    elif (old.shape, old.dtype, old.device) != (new.shape, new.dtype, new.device):
        what = "a tensor of another size, type or device"
    else:
        return given[id(new)]
    raise ExportError(
        f"The function replaces the buffer {name} by {what}.",
        "Write to it in place: buffer.copy_(value).",
    )


def _check_is_whole(native: Compiled, buffers: _Buffers) -> None:
    """Raises where the graph isn't all that the call did."""
    stats = native.stats
    beyond = native._beyond_graph()
    entry = beyond[0] if beyond else []
    if len(beyond) > 1 or stats.breaks:
        # What is set once and for all is no change to the next call, unless that depends on it.
        for kind, what, place in itertools.chain.from_iterable(beyond):
            if kind == "set" and not stats.breaks:
                raise _outlives(what, place)
        why = stats.reason or "the second one depends on what the first one has changed"
        raise ExportError(
            f"The call isn't one graph that a second call repeats: {why}.",
            "Take out what cuts it: warnings and log records that the program may learn of do.",
        )
    replaced = [what for kind, what, _ in entry if kind == "write" and _OF_BUFFER.search(what)]
    are_known = len(replaced) == len(buffers.assigned())
    for kind, what, place in entry:
        is_known = _OF_PERSISTENCE.search(what) or (are_known and what in replaced)
        if kind == "write" and not is_known:
            raise _outlives(what, place)
        if kind == "drawn":
            raise ExportError(
                f"The function draws {what}.",
                "Draw with torch.rand and the like, or pass the number in as a tensor.",
                why="A program can't reach Python's random generators.",
            )


def _outlives(what: str, place: tuple[str, int, str] | None) -> ExportError:
    """The error of a write to an object outside."""
    # That of an attribute of a module is in PyTorch's code.
    is_shown = place is not None and not place[0].endswith("torch/nn/modules/module.py")
    return ExportError(
        f"The function writes {what}, which outlives the call.",
        "Return the value, or write it to a buffer in place: buffer.copy_(value).",
        [place] if place is not None and is_shown else [],
        "A program has nothing but its inputs, its buffers and what it returns.",
    )


def _inputs(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return list(graph.graph.find_nodes(op="placeholder"))


def frames_of(node: torch.fx.Node) -> list[tuple[str, int, str]]:
    """The user's frames at a node: file, line, function."""
    found = []
    for line in (node.stack_trace or "").splitlines():
        if line.startswith('  File "'):
            file, number, function = line[8:].rsplit(", ", 2)
            found.append((file[:-1], int(number.removeprefix("line ")), function[3:]))
    return found


def _version(value: Any) -> int | None:
    return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else None


def _check_writes(
    taken: Sequence[Value],
    inputs: Sequence[Any],
    versions: Sequence[int | None],
    arguments: Sequence[Any],
    module: torch.nn.Module | None,
) -> None:
    """Raises where the graph writes to what isn't an argument or a buffer of its own."""
    parameters = set() if module is None else {id(it) for it in module.parameters()}
    writes = False
    for kind, value, version in zip(taken, inputs, versions, strict=True):
        if _version(value) == version:
            continue
        writes = True
        if isinstance(kind, Constant) or id(value) in parameters:
            name = kind.source if isinstance(kind, Constant) else f"parameter {kind.name}"  # type: ignore[union-attr]
            raise ExportError(
                f"The function writes to {name} in place. What it wrote stays written.",
                "Export a module that has it as a buffer (register_buffer).",
                why="A program keeps no other tensors than buffers from call to call.",
            )
    tensors = [it for it in arguments if isinstance(it, torch.Tensor)]
    if writes and len({id(it) for it in tensors}) < len(tensors):
        raise ExportError(
            "The function writes to its arguments, and two of them are one tensor.",
            "Export it for tensors that share no memory.",
        )


class _Found:
    """Where tensors come from, by identity."""

    def __init__(self, arguments: Sequence[Any], module: torch.nn.Module | None) -> None:
        self._known: dict[int, Value] = {}
        if module is not None:
            for named in (module.named_parameters, module.named_buffers):
                for name, tensor in named(remove_duplicate=False):
                    self._known.setdefault(id(tensor), State(name))
        for index, value in enumerate(arguments):
            if isinstance(value, torch.Tensor):
                self._known.setdefault(id(value), Argument(index))

    def input(self, node: torch.fx.Node, value: Any) -> Value:
        """What a placeholder stands for. What varies among numbers is looked for later."""
        source = node._dynamo_source.text  # type: ignore[attr-defined]
        constant = Constant(value, source)
        if not isinstance(value, torch.Tensor):
            return constant
        return self._known.setdefault(id(value), constant)

    def leaf(self, value: Any, given: Mapping[int, int]) -> Value:
        """What a leaf of the result is."""
        if id(value) in given:
            return Output(given[id(value)])
        if not isinstance(value, torch.Tensor):
            if not isinstance(value, _CONSTANTS):
                raise ExportError(
                    f"The function returns a {type(value).__qualname__}, which a program can't.",
                    "Return tensors and numbers in containers, or register its class with "
                    "torch.export.register_dataclass or torch.utils._pytree.",
                )
            return Constant(value)
        if id(value) not in self._known:
            raise ExportError(
                "The function returns a tensor that it hasn't computed, and that is neither an "
                "argument nor a parameter nor a buffer.",
                "Register it as a buffer of the module (register_buffer), or return a clone.",
            )
        return self._known[id(value)]


_CONSTANTS = (int, float, bool, str, type(None), complex)


def _size(graph: torch.fx.GraphModule, index: int, value: Value) -> Value:
    """A number that the graph takes because it varies: which size it is."""
    nodes = _inputs(graph)
    symbols = nodes[index].meta.get("symbolic_sizes", ())
    if not isinstance(value, Constant) or isinstance(value.value, torch.Tensor) or not symbols:
        return value
    for other, node in enumerate(nodes):
        sizes = node.meta.get("symbolic_sizes", ())
        if other != index and symbols[0] in sizes and "tensor_dict" in node.meta:
            return Size(other, sizes.index(symbols[0]))
    if not nodes[index].users:
        return value
    raise ExportError(
        f"The number {value.source} varies, and is no size of an argument.",
        "Pass a tensor instead of the number.",
    )


def names_of(
    target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], module: Any
) -> dict[str, Any]:
    """What the names of facts mean in a call: the arguments of the function that was traced.

    `module` stands for the module that was exported.
    """
    while not isinstance(target, types.FunctionType):
        if isinstance(target, torch.nn.Module):
            args, target = (module, *args), type(target).__call__
        elif isinstance(target, types.MethodType):
            args, target = (target.__self__, *args), target.__func__
        elif isinstance(target, functools.partial):
            args, kwargs = (*target.args, *args), {**target.keywords, **kwargs}
            target = target.func
        elif isinstance(target, Compiled):
            target = target.__wrapped__
        else:
            args, target = (target, *args), type(target).__call__
    return dict(inspect.signature(target, follow_wrapped=False).bind(*args, **kwargs).arguments)
