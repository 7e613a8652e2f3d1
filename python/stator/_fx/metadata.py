"""What PyTorch's compilers read of a graph besides its nodes, said as TorchDynamo says it.

AOTAutograd takes from it which inputs stay where they are from call to call (CUDA graphs copy all
others), Inductor and `tlparse` which compilation a graph belongs to. It is made when a backend is
asked, out of the graph's description: recording doesn't pay for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx
from torch._guards import (
    CompileContext,
    CompileId,
    GuardSource,
    Source,
    TracingContext,
    compile_context,
    tracing,
)
from torch._logging._internal import trace_structured

from stator._fakes import fake_mode
from stator._fx.graphs import Row

__all__ = ["InputSource", "add_metadata", "compilation", "next_compile_id"]


@dataclasses.dataclass(frozen=True)
class InputSource(Source):
    """Where a graph's input comes from, as guards print it."""

    text: str
    is_of_module: bool = False
    """Whether it is a tensor of a module's."""

    @property
    def _name_template(self) -> str:
        return self.text

    @property
    def name(self) -> str:
        return self.text

    @property
    def guard_source(self) -> GuardSource:
        if self.text.startswith("L["):
            if self.is_of_module:
                return GuardSource.LOCAL_UNSPECIALIZED_NN_MODULE
            return GuardSource.LOCAL
        return (
            GuardSource.GLOBAL_UNSPECIALIZED_NN_MODULE if self.is_of_module else GuardSource.GLOBAL
        )


_STATIC = "_dynamo_static_input_type"
"""Where `torch._dynamo.mark_static_address` notes what it was told of a tensor."""

_TENSORS_OF_MODULES = re.compile(r"\._(?:parameters|buffers)\[")


def add_metadata(
    module: torch.fx.GraphModule,
    description: Sequence[Row],
    inputs: Sequence[Any],
    compile_id: CompileId,
) -> None:
    """Adds to a graph's module what TorchDynamo would have said of it.

    inputs: the tensors that the placeholders stand for, in their order.
    """
    if _is_told_of_overlaps(inputs):
        return
    modules = {path for row in description for path, _, _ in row[6]}
    placeholders = module.graph.find_nodes(op="placeholder")
    sources = [row[2] for row in description if row[0] == "placeholder"]
    # Floats that are computed from others (`stator._fx.computed`) come behind them.
    sources += [node.name for node in placeholders[len(sources) :]]
    for node, text, value in zip(placeholders, sources, inputs, strict=True):
        source = InputSource(text, _is_of_module(text, modules))
        # `torch.fx` keeps attributes of nodes when it copies graphs, as TorchDynamo relies on.
        node._dynamo_source = source
        if isinstance(value, torch.Tensor):
            node.meta["tensor_dict"] = _tensor_dict(value, source)
    # Objects that code can't name are attributes of the module; parameters are among them.
    names = itertools.chain(
        module.named_parameters(remove_duplicate=False),
        module.named_buffers(remove_duplicate=False),
    )
    module._param_name_to_source = {name: InputSource(name) for name, _ in names}  # type: ignore[assignment]
    module.meta["dynamo_compile_id"] = compile_id
    module.meta["dynamo_flat_name_to_original_fqn"] = {}
    trace_structured(
        "dynamo_output_graph",
        payload_fn=lambda: module.print_readable(print_output=False),
    )


def _is_told_of_overlaps(inputs: Sequence[Any]) -> bool:
    """Whether AOTAutograd would leave it to a guard of TorchDynamo's that memory is shared as here:
    for symbolic sizes and known sources it does. Without sources it says so in its guards on sizes.
    """
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    sizes = [size for value in tensors for size in value.shape]
    if not any(isinstance(size, torch.SymInt) for size in sizes):
        return False
    strided = [value for value in tensors if value.layout == torch.strided]
    return len({value.untyped_storage()._cdata for value in strided}) < len(strided)


def _is_of_module(source: str, modules: set[str]) -> bool:
    """Whether a tensor is read from a module, whose parameters, buffers and other tensors stay."""
    if _TENSORS_OF_MODULES.search(source):
        return True
    return any(source.startswith((f"{module}.", f"{module}[")) for module in modules)


def _tensor_dict(value: torch.Tensor, source: InputSource) -> dict[str, Any]:
    """What is known of a tensor. It itself isn't marked, as it is by TorchDynamo."""
    own = getattr(value, "__dict__", {})
    known = {key: own[key] for key in (_STATIC, "tag") if key in own}
    if isinstance(value, torch.nn.Parameter) or source.is_of_module:
        known.setdefault(_STATIC, "unguarded")
    return known


@contextlib.contextmanager
def compilation(compile_id: CompileId, *, takes_constants: bool) -> Iterator[None]:
    """A backend is asked within it. AOTAutograd leaves there what compilers ask it for, and has its
    fake tensors from there.

    takes_constants: whether a graph may hold tensors that aren't its inputs.
    """
    mode = fake_mode(allow_non_fake_inputs=takes_constants)
    context = TracingContext.try_get() or TracingContext(mode)
    with compile_context(CompileContext(compile_id)), tracing(context):
        yield


_frames = itertools.count()


def next_compile_id(function: dict[str, Any]) -> CompileId:
    """The id of another compilation for a compiled function, which `function` is the state of.

    Where TorchDynamo is loaded it counts, so that no id is given twice.
    """
    counting = sys.modules.get("torch._dynamo.convert_frame")
    if counting is not None:
        found: CompileId = counting.get_compile_id(function)
        return found
    frame = function.setdefault("_own_id", next(_frames))
    number = function["_own_count"] = function.get("_own_count", -1) + 1
    return CompileId(frame_id=frame, frame_compile_id=number)
