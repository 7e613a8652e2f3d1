"""Graphs that are compiled beside the program.

What belongs to the thread of the call is taken at once, PyTorch's modes. A backend that Stator or
the program has registered is called in a thread. PyTorch's compilers aren't: while they trace they
change the process (`torch.nn.Module.__call__`, the state of random generators, warnings), and the
program would notice. Inductor has a process of its own, for graphs that it can compile ahead of
time.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from stator._fakes import fake_mode
from stator._fx.callables import is_pytorchs
from stator._fx.computed import Computed, is_of_numbers
from stator._fx.graphs import Code, Row, graph_module
from stator._fx.libraries import A_FLOAT, NothingToCompileError, all_sizes, look, seen_of
from stator._fx.modes import Modes
from stator._fx.process import AheadOfTimeError, compile_in_process
from stator._stator import Declined
from stator.errors import BackendError

Compile = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def begin(
    compile_module: Compile, description: Sequence[Row], inputs: list[Any]
) -> Callable[[], Callable[..., Any]]:
    """What has a backend compile the graph when it's called, on any thread."""
    modes = Modes.here()
    # Without a GPU, the first thread that enters this mode owns an object that PyTorch uses ever
    # after: it crashes behind that thread's end. That of a call lives longer than that of a job.
    with fake_mode():
        pass

    def compile() -> Callable[..., Any]:
        with modes.applied():
            return compile_module(graph_module(description, inputs), inputs)

    return compile


def begin_inductor(
    description: Sequence[Row], inputs: list[Any], settings: dict[str, Any], says_sizes: bool
) -> Callable[[], Callable[..., Any] | Code | Declined]:
    """What has Inductor compile the graph in a process. Only what the inputs are like is kept.

    says_sizes: no guard says what sizes the inputs have, so the code says what it is for.
    """
    modes = Modes.here()
    seen = [seen_of(value) for value in inputs]
    numbers = [value if isinstance(value, int | float) else None for value in inputs]
    sizes = [args for op, _, _, args, *_ in description if op == "placeholder"]
    trains = is_training(description, inputs)
    changed = changed_settings()

    def compile() -> Callable[..., Any] | Code | Declined:
        looks = list(map(look, seen))
        module = graph_module(description, looks)
        computed = _computed(module.graph, numbers)
        more = [] if computed is None else [A_FLOAT for _ in computed.values]
        _name_by_place(module)
        names = all_sizes(looks) if says_sizes else sizes
        given = (module, [*looks, *more], [*names, *(() for _ in more)])
        order = (*given, modes, settings, changed, trains)
        try:
            made = compile_in_process(*order, are_sizes_guarded=not says_sizes)
            return made if computed is None else _with_floats(made, computed, looks)
        except NothingToCompileError as error:
            return Declined(str(error), is_final=True)
        except AheadOfTimeError as error:
            if says_sizes:
                # A call that waits would take its sizes for those of all.
                raise BackendError(str(error)) from error
            raise

    return compile


def _computed(graph: torch.fx.Graph, numbers: Sequence[Any]) -> Computed | None:
    """The floats that a graph computes of its inputs; None: it has no floats among these. Raises
    AheadOfTimeError where more is done with floats than to give them to operations on tensors."""
    if not any(isinstance(value, float) for value in numbers):
        return None
    computed = Computed(graph, numbers, are_assumed=False)
    placeholders = graph.find_nodes(op="placeholder")
    values = dict(zip(placeholders, [*numbers, *computed.values], strict=True))
    integers = {node for node, value in values.items() if type(value) is int}
    floats = {node for node, value in values.items() if isinstance(value, float)}
    for node in graph.nodes:
        takes = node.all_input_nodes
        if floats.isdisjoint(takes) or node.op == "output":
            continue
        gives_number = node.op == "call_method" or is_of_numbers(node.target)
        if gives_number and floats.union(integers).issuperset(takes):
            raise AheadOfTimeError("it computes with floats what Inductor would round otherwise")
    return computed


def _with_floats(
    made: Callable[..., Any] | Code, computed: Computed, looks: Sequence[Any]
) -> Callable[..., Any] | Code:
    """The code of a graph, given what is computed of its inputs."""
    run = made.run if isinstance(made, Code) else made

    def call(*inputs: Any) -> Any:
        return run(*inputs, *computed.of(inputs))

    return dataclasses.replace(made, run=call, examples=looks) if isinstance(made, Code) else call


def _name_by_place(module: torch.fx.GraphModule) -> None:
    """Gives equal graphs equal names, so that the code of one serves the other: an optimizer does
    the same for each parameter."""
    for index, node in enumerate(module.graph.nodes):
        if node.op != "output":
            node._rename(f"value_{index}")
        if node.op == "placeholder":
            node.target = node.name
    module.recompile()


def unsuitable(
    name: str,
    description: Sequence[Row],
    inputs: Sequence[Any],
    may_write: bool,
    arguments: Mapping[str, Any],
) -> str | None:
    """Why a graph can't be compiled beside the program by a backend of PyTorch's; None: it can."""
    if name != "inductor":
        return "PyTorch's compilers change the process while they trace"
    if not (_is_plain(arguments) and _is_plain(changed_settings())):
        return "Inductor's settings hold code of the program's own"
    for value in inputs:
        if (type(value) is int and value >= 0) or isinstance(value, float):
            continue
        if isinstance(value, int):
            return "a number among its inputs is negative or a truth value"
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            return f"an input of it is a {type(value).__name__}"
        if value.device.type != "cpu" or value.layout != torch.strided:
            return "not all of its inputs are plain tensors of the CPU"
        if value.is_conj() or value.is_neg():
            return "not all of its inputs are plain tensors"
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if may_write and len({value.untyped_storage().data_ptr() for value in tensors}) < len(tensors):
        return "it writes to its inputs, and these share memory"
    for op, _, target, *_ in description:
        if op == "call_function" and not is_pytorchs(target):
            return "it calls code of the program's own"
    return None


def changed_settings() -> dict[str, Any]:
    """Of Inductor's settings those that aren't as they were at first."""
    # Where nobody has imported them, nobody has changed any.
    settings: Any = sys.modules.get("torch._inductor.config")
    found: dict[str, Any] = {} if settings is None else settings._get_dict(skip_default=True)
    return found


def _is_plain(value: object) -> bool:
    """Whether this is data that another process gets as it is."""
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | bytes)


def is_training(description: Sequence[Row], inputs: Sequence[Any]) -> bool:
    """Whether gradients are computed through a graph."""
    wants = any(isinstance(value, torch.Tensor) and value.requires_grad for value in inputs)
    return wants and _computes_gradients(description)


def _computes_gradients(description: Sequence[Row]) -> bool:
    """Whether an operation runs while gradients are on, which graphs switch too."""
    is_on = torch.is_grad_enabled()
    for op, _, target, args, *_ in description:
        if target is torch._C._set_grad_enabled:
            is_on = args[0] is not False
        elif is_on and op in ("call_function", "call_method"):
            return True
    return False
