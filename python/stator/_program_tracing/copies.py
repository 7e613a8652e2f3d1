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

__all__ = ["SILENT", "SUBSTITUTES"]


class _Memo:
    """What has been copied."""

    def __init__(self) -> None:
        self.copies: dict[int, tuple[Any, Any]] = {}
        """Parameters and modules with their copies."""
        self.others: list[tuple[Any, Any]] = []


def find_copy(memo: _Memo, x: Any) -> list[Any]:
    """The copy of a parameter or module, if there is one. No part of a program, which can't ask for
    the identity of what it has made."""
    found = memo.copies.get(id(x))
    return [] if found is None else [found[1]]


def keep_copy(memo: _Memo, x: Any, made: Any) -> None:
    memo.copies[id(x)] = x, made


def _deepcopy(x: Any, memo: Any = None) -> Any:
    return _copied(x, _Memo()) if memo is None else _ORIGINAL(x, memo)


def _copied(x: Any, memo: _Memo) -> Any:
    kind = type(x)
    if x is None or kind in _SHARED:
        return x
    is_module = isinstance(x, nn.Module) and _is_usual(kind)
    if is_module or isinstance(x, nn.Parameter):
        for copied in find_copy(memo, x):
            return copied
        made = object.__new__(kind) if is_module else _tensor(x)
        keep_copy(memo, x, made)
        if is_module:
            _fill(made, x, memo)
        return made
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
        if found is None or found in _USUAL or _is_tag(name, found):
            continue
        if not _is_of_parametrized(name, found):
            return False
    return True


def _is_of_parametrized(name: str, found: Any) -> bool:
    """Whether it's of a class that PyTorch has made for a module whose parameters are computed:
    that copies as if it said nothing, and can't be pickled."""
    of_these = getattr(found, "__module__", None) == "torch.nn.utils.parametrize"
    return of_these and name in ("__deepcopy__", "__getstate__")


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

# Called while a program is traced, and no part of it.
SILENT: list[Callable[..., Any]] = [find_copy, keep_copy]

# Functions, and what is traced in their place.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [(copy.deepcopy, _deepcopy)]
