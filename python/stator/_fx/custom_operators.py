"""What is known of operators that PyTorch's own table doesn't hold, as those of `torch.library`.

A custom operator may be one node of a trace if its results' metadata follows from its inputs'. Its
schema and tags can rule that out, and only its own fake kernel can say so: it is run once for each
metadata that is met, on inputs without data. What it foretells has to be what the operator gives.
Sizes that it says data decides, as that of `torchvision.ops.nms` does, are left open.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._higher_order_ops import effects
from torch._library.custom_ops import CustomOpDef
from torch._library.simple_registry import singleton
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from stator._fakes import fake_mode

# PyTorch's own operators have rows; the others speak to other processes.
_EXCLUDED = {"aten", "prim", "c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem"}
_RESULTS = {"Tensor", "List[Tensor]"}
_TAGS = {torch.Tag.data_dependent_output}
_DATA_DECIDES = "its tags say that its results depend on data"
_KEPT = 4096
# In the place of a size that data decides.
OPEN = "open"

# By operator: why it can't be in a trace, or an empty text.
_refusals: dict[OpOverload[Any, Any], str] = {}
# By operator and inputs' metadata: the results', or why nobody can tell.
_foretold: dict[Any, Any] = {}


class UnknownError(Exception):
    """The results can't be told; the message says why."""


def plan(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The overload that a call runs, with its results' metadata; or `None`, and why not."""
    try:
        overload = _overload(operator, args, kwargs)
        if overload not in _refusals:
            _refusals[overload] = _refusal(overload)
        if refusal := _refusals[overload]:
            raise UnknownError(refusal)
        _check_arguments(overload, args, kwargs)
        key = (overload, _metadata(args), _metadata(kwargs))
        if key not in _foretold:
            if len(_foretold) >= _KEPT:
                _foretold.clear()
            _foretold[key] = _foretell(overload, args, kwargs)
        foretold = _foretold[key]
        if torch.Tag.dynamic_output_shape in overload.tags and not is_open(foretold):
            raise UnknownError(_DATA_DECIDES)
        return overload, foretold
    except UnknownError as why:
        return None, f"{operator}: {why}"


def agrees(overload: OpOverload[Any, Any], foretold: Any, result: Any) -> bool:
    """Whether the results are what was foretold. If not, the operator is in no trace any more."""
    if _fits(result, foretold):
        return True
    _refusals[overload] = "its fake kernel foretells other results"
    return False


def is_open(foretold: Any) -> bool:
    """Whether data decides sizes of the results."""
    return any(part is OPEN or (isinstance(part, tuple) and is_open(part)) for part in foretold)


def _fits(result: Any, foretold: Any) -> bool:
    """Whether results are what was foretold, sizes aside that are open."""
    if isinstance(result, (list, tuple)):
        kind, *parts = foretold
        return kind is list and len(parts) == len(result) and all(map(_fits, result, parts))
    _, sizes, _, dtype, device = foretold
    if OPEN not in sizes:
        return bool(_metadata(result) == foretold)
    return (
        len(sizes) == result.dim()
        and all(said in (size, OPEN) for said, size in zip(sizes, result.shape, strict=True))
        and result.is_contiguous()
        and (result.dtype, result.device) == (dtype, device)
        and result.layout == torch.strided
    )


def _overload(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpOverload[Any, Any]:
    if isinstance(operator, CustomOpDef):
        operator = operator._opoverload
    if isinstance(operator, OpOverloadPacket):
        names = operator.overloads()  # type: ignore[no-untyped-call]
        if len(names) != 1:
            names = [_resolved(operator, args, kwargs)]
        operator = getattr(operator, names[0] or "default")
    if type(operator) is not OpOverload:
        raise UnknownError("it is no operator over tensors")
    return operator


def _resolved(packet: OpOverloadPacket[Any, Any], args: Any, kwargs: Any) -> str:
    try:
        return torch._C._jit_resolve_packet(packet._qualified_op_name, *args, **kwargs)
    except Exception:
        raise UnknownError("no overload of it takes these arguments") from None


def _refusal(overload: OpOverload[Any, Any]) -> str:
    schema = overload._schema
    if overload.namespace in _EXCLUDED:
        return "it isn't in the table of operations"
    if _TAGS & set(overload.tags):
        return _DATA_DECIDES
    if any(str(result.type) not in _RESULTS for result in schema.returns):
        return "it gives something else than tensors"
    if any(isinstance(argument.type, torch.ClassType) for argument in schema.arguments):
        return "it takes objects"
    if _has_effects(overload):
        return "it has effects"
    # Of a write that isn't counted, nobody knows what a replay has to undo.
    qualname = overload.name()  # type: ignore[no-untyped-call]
    counts = torch._C._dispatch_has_kernel_for_dispatch_key(qualname, "ADInplaceOrView")
    if schema.is_mutable and not counts:
        return "it writes to arguments without counting the write in their versions"
    return ""


def _has_effects(overload: OpOverload[Any, Any]) -> bool:
    entry = singleton.find(overload._schema.name)
    if hasattr(entry, "effect"):
        return entry.effect.effect is not None
    # Before PyTorch 2.10.
    registered: Any = effects
    return overload in registered.SIDE_EFFECTS


def _check_arguments(
    overload: OpOverload[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Refuses a tensor in the place of a number: its data is read."""
    named = {argument.name: argument for argument in overload._schema.arguments}
    given = [*zip(named.values(), args, strict=False)]
    given += [(named[name], value) for name, value in kwargs.items() if name in named]
    for argument, value in given:
        if "Tensor" not in str(argument.type) and _holds_tensor(value):
            raise UnknownError(f"a tensor is given as {argument.name}, whose data is read")


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_holds_tensor, value))
    return isinstance(value, torch.Tensor)


def _metadata(value: Any) -> Any:
    """All that a fake kernel can see of a value."""
    if isinstance(value, torch.Tensor):
        facts = (tuple(value.shape), value.stride(), value.dtype, value.device)
        if value.layout != torch.strided or value.is_conj() or value.is_neg():
            raise UnknownError("it works with tensors of an unusual kind")
        return (torch.Tensor, *facts)
    if isinstance(value, (list, tuple)):
        return (list, *map(_metadata, value))
    if isinstance(value, dict):
        return (dict, *((name, _metadata(item)) for name, item in sorted(value.items())))
    try:
        hash(value)
    except TypeError:
        raise UnknownError(f"it is given a {type(value).__name__}") from None
    return type(value), value


def _foretell(overload: OpOverload[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return _metadata(_without_data(overload, args, kwargs, None))
    except UnknownError:
        raise
    except DynamicOutputShapeException as error:
        closed = error
    except Exception as error:
        raise _untold(error) from None
    try:
        # With a shape environment a fake kernel can make sizes that depend on data.
        return _opened(_without_data(overload, args, kwargs, ShapeEnv()))
    except UnknownError:
        raise
    except Exception:
        raise _untold(closed) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """What a fake kernel warns of in this thread isn't the program's.

    Filters stay as they are: setting one lets warnings be given again that are given once."""
    warn, thread = warnings.warn, threading.get_ident()

    def given(*args: Any, **kwargs: Any) -> None:
        if threading.get_ident() != thread:
            warn(*args, **kwargs)

    warnings.warn = given
    try:
        yield
    finally:
        warnings.warn = warn


def _untold(error: Exception) -> UnknownError:
    said = str(error).strip().split("\n")[0]
    kind = type(error).__name__
    return UnknownError(f"it has no fake kernel that tells its results ({kind}: {said})")


def _without_data(
    overload: OpOverload[Any, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    shapes: ShapeEnv | None,
) -> Any:
    mode = fake_mode(allow_fallback_kernels=False, shape_env=shapes)

    def without_data(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            sizes, strides = value.shape, value.stride()
            return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
        if isinstance(value, (list, tuple)):
            return [without_data(item) for item in value]
        return value

    with torch.no_grad(), mode, _quiet():
        named = {name: without_data(value) for name, value in kwargs.items()}
        return overload(*without_data(args), **named)


def _opened(value: Any) -> Any:
    """As `_metadata`, of results some of whose sizes data decides."""
    if isinstance(value, (list, tuple)):
        return (list, *map(_opened, value))
    if not isinstance(value, torch.Tensor):
        raise UnknownError("it gives something else than tensors")
    if not any(isinstance(size, torch.SymInt) for size in value.shape):
        return _metadata(value)
    if not value.is_contiguous():
        raise UnknownError("it gives a tensor of an open size that isn't contiguous")
    sizes = tuple(OPEN if isinstance(size, torch.SymInt) else size for size in value.shape)
    return (torch.Tensor, sizes, None, value.dtype, value.device)
