"""`copy.deepcopy` in tensor programs: of modules, tensors, and containers of such.

A client often begins with a copy of a module that it loads weights into and trains. What
`copy.deepcopy` asks of objects is C code that knows nothing of a trace; here it is Python, which
writes to what the program has made.
"""

from __future__ import annotations

import collections
import copy
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

__all__ = ["SUBSTITUTES"]


class _Memo:
    """What has been copied."""

    def __init__(self) -> None:
        self.by_id: dict[int, Any] = {}
        """Copies of parameters and modules, whose identity a trace may ask for."""
        self.others: list[tuple[Any, Any]] = []


def _deepcopy(x: Any, memo: Any = None) -> Any:
    return _copied(x, _Memo()) if memo is None else _ORIGINAL(x, memo)


def _copied(x: Any, memo: _Memo) -> Any:
    kind = type(x)
    if x is None or kind in _SHARED:
        return x
    if isinstance(x, nn.Parameter):
        if id(x) not in memo.by_id:
            memo.by_id[id(x)] = _tensor(x)
        return memo.by_id[id(x)]
    if isinstance(x, nn.Module) and _is_usual(kind):
        if id(x) not in memo.by_id:
            memo.by_id[id(x)] = made = object.__new__(kind)
            _fill(made, x, memo)
        return memo.by_id[id(x)]
    is_tensor = isinstance(x, torch.Tensor)
    if is_tensor or kind in (dict, collections.OrderedDict, list):
        for known, copied in memo.others:
            if known is x:
                return copied
        made = _tensor(x) if is_tensor else kind()
        memo.others.append((x, made))
        if is_tensor:
            return made
        if kind is list:
            for item in x:
                made.append(_copied(item, memo))
        else:
            _fill_dict(made, x, memo)
        return made
    if kind is tuple:
        return tuple([_copied(item, memo) for item in x])
    if kind is set and not x:
        return set()
    return _ORIGINAL(x)


def _fill_dict(made: Any, x: Any, memo: _Memo) -> None:
    for key, item in x.items():
        made[_copied(key, memo)] = _copied(item, memo)


def _fill(made: Any, module: Any, memo: _Memo) -> None:
    """Gives a module what another one has."""
    for name, item in module.__dict__.items():
        if name == "_flat_weight_refs":
            # A recurrent module's, of its own weights. In programs nobody asks for them.
            made.__dict__[name] = []
        elif name in _OWN and type(item) in (dict, collections.OrderedDict):
            # These are no other module's.
            made.__dict__[name] = members = type(item)()
            _fill_dict(members, item, memo)
        elif name != "_compiled_call_impl":
            made.__dict__[name] = _copied(item, memo)


def _tensor(x: Any) -> Any:
    if not x.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment."
        )
    made = x.detach().clone()
    if isinstance(x, nn.Parameter):
        return nn.Parameter(made, x.requires_grad)
    return made.requires_grad_() if x.requires_grad else made


def _is_usual(kind: type) -> bool:
    """Whether a class says nothing of how its objects are copied, beside PyTorch's own."""
    for name in _ASKED:
        found = getattr(kind, name, None)
        if found is not None and found not in _USUAL and not _is_tag(name, found):
            return False
    return True


def _is_tag(name: str, found: Any) -> bool:
    """Whether it's what TorchDynamo, once it has compiled anything, puts in the place of
    `nn.Module.__setstate__`: it does as that does, and notes when a module was loaded."""
    return (
        name == "__setstate__"
        and found is nn.Module.__setstate__
        and found.__module__ == "torch._dynamo.mutation_guard"
    )


_ASKED = (
    *("__deepcopy__", "__copy__", "__reduce_ex__", "__reduce__", "__getstate__", "__setstate__"),
    *("__new__", "__getnewargs__", "__getnewargs_ex__"),
)

_OWN = frozenset(nn.Module().__dict__)

# What PyTorch's own modules have here puts in what their older versions lacked.
_USUAL: list[Any] = [
    found
    for name in _ASKED
    for kind in (object, *vars(nn).values())
    if isinstance(kind, type)
    if (found := getattr(kind, name, None)) is not None
]

_SHARED: tuple[Any, ...] = (
    *(bool, int, float, complex, str, bytes, type, torch.dtype, torch.device, torch.Size),
    *(types.FunctionType, types.BuiltinFunctionType, type(Ellipsis), range),
)

# A function of its own, which isn't substituted.
_ORIGINAL = types.FunctionType(
    copy.deepcopy.__code__, copy.deepcopy.__globals__, "deepcopy", copy.deepcopy.__defaults__
)

# Functions, and what is traced in their place.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [(copy.deepcopy, _deepcopy)]
