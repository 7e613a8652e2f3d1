"""Recurrent modules in tensor programs.

They keep a list of their parameters, and write to themselves where a parameter is another one by
the time of a call, as in `torch.func.functional_call`. A program may not: its recurrent modules
look their parameters up at each call, and keep nothing.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from stator._program_tracing import packed

__all__ = ["SUBSTITUTES"]


class _View:
    """A recurrent module, but for what it keeps."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    @property
    def _flat_weights(self) -> list[Any]:
        module = self._module
        return [getattr(module, name, None) for name in module._flat_weights_names]

    def _update_flat_weights(self) -> None:
        pass


def _viewing(forward: Any) -> Callable[..., Any]:
    # A function of its own, so that this isn't substituted again.
    original = types.FunctionType(
        forward.__code__, forward.__globals__, forward.__name__, forward.__defaults__
    )

    def viewed(self: Any, input: Any, hx: Any = None) -> Any:
        view = _View(self)
        if isinstance(input, packed.Packed):
            return packed.run(view, input, hx)
        return original(view, input, hx)

    return viewed


# Functions, and what is traced in their place.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (kind.forward, _viewing(kind.forward)) for kind in (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU)
]
