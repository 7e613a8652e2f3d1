"""`stator.export`: a traced function as a `torch.export.ExportedProgram`.

The work is in `stator._exporting`, which needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stator._blame import blames_caller

if TYPE_CHECKING:
    import torch.export

__all__ = ["export"]


@blames_caller
def export(
    fn_or_module: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
) -> torch.export.ExportedProgram:
    """Traces a call and gives it as a program that `torch.export` saves, loads and compiles.

    The function is executed twice on copies of these arguments: once to record it, once to see what
    it returns. Buffers of the module are put back.

        program = stator.export(model, (torch.ones(2, 8),), dynamic_shapes=({0: Dim("batch")},))
        torch.export.save(program, "model.pt2")

    fn_or_module: an `nn.Module`, whose parameters and buffers become the program's state; a
        function, whose parameters and buffers from outside do, and whose other tensors from outside
        become constants; what `stator.compile` takes besides.
    args, kwargs: an example of what it is called with. What isn't a tensor is a constant, and the
        program takes no other.
    dynamic_shapes: which sizes vary, as `torch.export.export` takes it.

    Raises `stator.errors.ExportError` with the line of the program where something can't be part of
    one graph that stands for the whole function: a graph break, a decision that depends on data, a
    write to an object outside, a condition on a size that varies. Exceptions of the function's own
    come as they are.
    """
    from stator._exporting.programs import exported

    return exported(fn_or_module, args, dict(kwargs or {}), dynamic_shapes)
