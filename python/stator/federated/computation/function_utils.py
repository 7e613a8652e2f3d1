"""Packing the arguments of functions, and unpacking them."""

from __future__ import annotations

from stator._stator.federated import (
    pack_args,
    pack_args_into_struct,
    unpack_arg,
    unpack_args_from_struct,
    wrap_as_zero_or_one_arg_callable,
)

__all__ = [
    "pack_args",
    "pack_args_into_struct",
    "unpack_arg",
    "unpack_args_from_struct",
    "wrap_as_zero_or_one_arg_callable",
]
