"""What is known of operators that PyTorch's own table doesn't hold, as those of `torch.library`.

A custom operator may be one node of a trace if its results' metadata follows from its inputs'. Its
schema and tags can rule that out, and only its own fake kernel can say so: it is run once for each
metadata that is met, on inputs without data. What it foretells has to be what the operator gives.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops import effects
from torch._library.custom_ops import CustomOpDef
from torch._library.simple_registry import singleton
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses import FakeTensorMode

# PyTorch's own operators have rows; the others speak to other processes.
_EXCLUDED = {"aten", "prim", "c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem"}
_RESULTS = {"Tensor", "List[Tensor]"}
_TAGS = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
_KEPT = 4096

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
        return overload, _foretold[key]
    except UnknownError as why:
        return None, f"{operator}: {why}"


def agrees(overload: OpOverload[Any, Any], foretold: Any, result: Any) -> bool:
    """Whether the results are what was foretold. If not, the operator is in no trace any more."""
    if _metadata(result) == foretold:
        return True
    _refusals[overload] = "its fake kernel foretells other results"
    return False


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
        return "its tags say that its results depend on data"
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
    # Without a shape environment a fake kernel can't make sizes that depend on data.
    mode = FakeTensorMode(allow_fallback_kernels=False)

    def without_data(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            sizes, strides = value.shape, value.stride()
            return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
        if isinstance(value, (list, tuple)):
            return [without_data(item) for item in value]
        return value

    try:
        with torch.no_grad(), mode:
            named = {name: without_data(value) for name, value in kwargs.items()}
            return _metadata(overload(*without_data(args), **named))
    except UnknownError:
        raise
    except Exception as error:
        said = str(error).strip().split("\n")[0]
        raise UnknownError(
            f"it has no fake kernel that tells its results ({type(error).__name__}: {said})"
        ) from None
