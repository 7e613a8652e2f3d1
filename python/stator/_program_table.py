"""What the names in a tensor program's text mean: the only objects that a program can reach.

A program may come from a stranger, so this is a list of what is allowed, made from what PyTorch
calls its overridable functions: those that take tensors and give tensors. Left out are private
ones, those that reach files, memory, Python objects or other processes, and those that read tensors
into Python. No function here is given a callable: arguments are tensors, plain values, and the
objects that programs name as arguments.
"""

from __future__ import annotations

import builtins
import functools
import math
import re
import sys
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["is_method", "name_of", "resolve"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FORBIDDEN = _words("""
    from_file set_ set_data set_source_Tensor resize resize_ resize_as resize_as_
    share_memory_ is_shared apply_ map_ map2_ numpy tolist item data_ptr const_data_ptr
    storage untyped_storage typed_storage storage_type storage_offset register_hook
    register_post_accumulate_grad_hook backward retain_grad pin_memory is_pinned record_stream
    as_subclass module_load to_dlpack from_dlpack frombuffer from_numpy save load compile vmap
    seed manual_seed initial_seed get_rng_state set_rng_state set_default_device
    set_default_dtype set_default_tensor_type set_flush_denormal set_num_threads
    set_num_interop_threads set_deterministic_debug_mode set_float32_matmul_precision
    set_warn_always set_printoptions get_device is_set_to has_torch_function
    handle_torch_function boolean_dispatch gradcheck new dim_order sparse_resize_
    sparse_resize_and_clear_ sym_constrain_range sym_constrain_range_for_size rename rename_
    refine_names align_to align_as names as_strided as_strided_ as_strided_copy
    as_strided_scatter
""")

_FORBIDDEN_BEGINNINGS = ("unsafe_", "fbgemm_", "mkldnn_", "cudnn_", "miopen_", "quantized_", "sym_")

# Special methods: operators, as tensors have them.
_OPERATORS = _words("""
    __abs__ __add__ __and__ __div__ __eq__ __floordiv__ __ge__ __getitem__ __gt__ __iadd__
    __iand__ __idiv__ __ifloordiv__ __ilshift__ __imod__ __imul__ __invert__ __ior__ __ipow__
    __irshift__ __isub__ __itruediv__ __ixor__ __le__ __lshift__ __lt__ __matmul__ __mod__
    __mul__ __ne__ __neg__ __or__ __pos__ __pow__ __radd__ __rand__ __rdiv__ __rfloordiv__
    __rlshift__ __rmatmul__ __rmod__ __rmul__ __ror__ __rpow__ __rrshift__ __rshift__ __rsub__
    __rtruediv__ __rxor__ __setitem__ __sub__ __truediv__ __xor__ __imatmul__
""")


# Functions beyond those that PyTorch lists as overridable: they make tensors.
_FACTORIES = _words("""
    arange zeros ones full empty rand randn randint randperm eye linspace logspace tensor
    as_tensor asarray zeros_like ones_like full_like empty_like rand_like randn_like
    randint_like tril_indices triu_indices scalar_tensor normal complex polar hann_window
    hamming_window bartlett_window blackman_window kaiser_window vander
    empty_strided meshgrid broadcast_tensors einsum
""")


# Where else operations live, and how their names begin in a text.
_NAMESPACES = ("torch._C._nn", "torch._C._linalg", "torch._C._fft", "torch._C._special")

_NUMBERS = {
    "builtins": ("abs", "float", "int", "max", "min", "round"),
    "math": ("ceil", "floor", "sqrt", "trunc"),
}

_ATEN = re.compile(r"torch\.ops\.aten\.([a-z][A-Za-z0-9_]*)(?:\.([A-Za-z][A-Za-z0-9_]*))?")
_DEVICE = re.compile(r"torch\.device\('([a-z]+(?::[0-9]+)?)'\)")


def _is_allowed(name: str) -> bool:
    if name.startswith("_"):
        return name in _OPERATORS
    return name not in _FORBIDDEN and not name.startswith(_FORBIDDEN_BEGINNINGS)


def _operations() -> Iterator[tuple[str, Any]]:
    """Names and operations. Where an operation has several names, the first is the one printed."""
    overridable = {
        id(function)
        for functions in torch.overrides.get_overridable_functions().values()
        for function in functions
    }
    for prefix, owner in (
        ("torch.nn.functional", torch.nn.functional),
        ("torch", torch),
        ("torch.Tensor", torch.Tensor),
        ("torch.linalg", torch.linalg),
        ("torch.fft", torch.fft),
        ("torch.special", torch.special),
        ("torch.nn.init", torch.nn.init),
        ("torch.functional", torch.functional),
    ):
        for name in dir(owner):
            found = getattr(owner, name, None)
            is_method = owner is torch.Tensor and callable(found) and not isinstance(found, type)
            if _is_allowed(name) and (id(found) in overridable or is_method):
                yield f"{prefix}.{name}", found
    for name in sorted(_FACTORIES):
        yield f"torch.{name}", getattr(torch, name)
    for prefix in _NAMESPACES:
        module = sys.modules.get(prefix) or getattr(torch._C, prefix.rpartition(".")[2])
        for name in dir(module):
            found = getattr(module, name)
            if _is_allowed(name) and callable(found):
                yield f"{prefix}.{name}", found
    variables: Any = torch._C._VariableFunctions
    for name in dir(variables):
        if _is_allowed(name) and callable(getattr(variables, name)):
            yield f"torch.{name}", getattr(variables, name)
    yield "torch.autograd.grad", torch.autograd.grad
    yield "torch.nn.Parameter", torch.nn.Parameter
    yield "torch._C._set_grad_enabled", torch._C._set_grad_enabled
    for attribute in ("data", "requires_grad"):
        setter = getattr(torch.Tensor, attribute).__set__
        yield f"torch.Tensor.{attribute}.__set__", setter
    for prefix, names in _NUMBERS.items():
        for name in names:
            yield f"{prefix}.{name}", getattr(builtins if prefix == "builtins" else math, name)


def _plain_objects() -> Iterator[tuple[str, Any]]:
    kinds = (torch.dtype, torch.layout, torch.memory_format)
    for name in dir(torch):
        found = getattr(torch, name)
        if isinstance(found, kinds):
            # `torch.float` is `torch.float32`: the object's own text is its name.
            yield str(found), found


@functools.cache
def _table() -> tuple[dict[str, Any], dict[Any, str]]:
    by_name: dict[str, Any] = {}
    by_object: dict[Any, str] = {}
    for name, found in (*_operations(), *_plain_objects()):
        if by_name.setdefault(name, found) == found:
            by_object.setdefault(found, name)
    return by_name, by_object


def resolve(name: str) -> Any:
    """What a name in a text stands for. A name that isn't known is a `ValueError`."""
    by_name, _ = _table()
    if name in by_name:
        return by_name[name]
    if device := _DEVICE.fullmatch(name):
        try:
            return torch.device(device[1])
        except RuntimeError as error:
            raise ValueError(f"a tensor program names an unknown device: {name}") from error
    if aten := _ATEN.fullmatch(name):
        packet = getattr(torch.ops.aten, aten[1], None) if _is_allowed(aten[1]) else None
        found = packet if aten[2] is None or packet is None else getattr(packet, aten[2], None)
        if isinstance(found, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            return found
    raise ValueError(f"a tensor program names something that programs may not use: {name}")


def name_of(value: Any) -> str | None:
    """The name in a text that stands for an object; `None` where it has none."""
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        name = f"torch.ops.{value}"
        try:
            return name if resolve(name) is value else None
        except ValueError:
            return None
    _, by_object = _table()
    try:
        return by_object.get(value)
    except TypeError:  # not hashable
        return None


def is_method(name: str, found: Any) -> bool:
    """Whether programs may call a method of this name; `found` is what a class has there."""
    by_name, _ = _table()
    known = by_name.get(f"torch.Tensor.{name}")
    return known is not None and (found is None or bool(known == found))
