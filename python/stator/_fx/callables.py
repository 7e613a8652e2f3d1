"""Which callables of a graph are known by name: another process finds under it what is called here.

A program's function may carry the name of one of PyTorch's (`functools.wraps`), and may stand in
its place. A name alone says nothing.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import torch

__all__ = ["is_pytorchs"]

_PACKAGES = ("torch", "_operator", "math", "builtins")
_NAMESPACES = ("aten", "prims")
_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType)

FOLDER = Path(torch.__file__).parent


def is_pytorchs(target: Any) -> bool:
    """Whether a callable's name says what it does, given the versions of PyTorch and CPython."""
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace in _NAMESPACES
    if isinstance(target, torch._ops.OpOverloadPacket):
        return target._qualified_op_name.split("::")[0] in _NAMESPACES
    if isinstance(target, _DESCRIPTORS):
        return _is_in(target.__objclass__.__module__)
    if isinstance(target, types.BuiltinFunctionType):
        return _is_in(target.__module__ or _module_of(target.__self__))
    if not isinstance(target, types.FunctionType):
        return False
    # What PyTorch makes within a function and puts into a module has the name of its place there.
    is_found = any(
        _found(target, name) is target for name in (target.__qualname__, target.__name__)
    )
    return is_found and _is_written_there(target)


def _is_written_there(function: Any) -> bool:
    """Whether PyTorch has written a function: its decorators carry those of programs, too."""
    while isinstance(function, types.FunctionType):
        file = Path(function.__code__.co_filename)
        if not _is_in(function.__module__ or "") or not file.is_relative_to(FOLDER):
            return False
        function = getattr(function, "__wrapped__", None)
    return function is None or is_pytorchs(function)


def _is_in(module: str) -> bool:
    return module.split(".")[0] in _PACKAGES


def _module_of(owner: object) -> str:
    """Where a function of C is that doesn't say it: those of `torch._C` needn't. A method of an
    object is nowhere."""
    return owner.__module__ if isinstance(owner, type) else ""


def _found(function: types.FunctionType, path: str) -> Any:
    found: Any = sys.modules.get(function.__module__)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found
