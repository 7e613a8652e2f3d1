"""Recurrent modules in tensor programs.

They keep a list of their parameters, and write to themselves where a parameter is another one by
the time of a call, as in `torch.func.functional_call`. A program may not: its recurrent modules
look their parameters up at each call, and keep nothing.

Without data PyTorch would do each step of a network by itself, which takes seconds for a thousand
of them. While a program is traced one step is done, and tells all there is to know.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator._program_tracing import packed

__all__ = ["NODES", "SUBSTITUTES"]


def _in_one_step(network: Any) -> Callable[..., tuple[Any, ...]]:
    """A network of tensors without data, with the types that all its steps would give."""

    def run(input: Any, hx: Any, *args: Any) -> tuple[Any, ...]:
        dim = 1 if args[-1] is True else 0  # whether batches come first
        steps = input.shape[dim] if len(args) == _TAKEN and isinstance(input, FakeTensor) else 0
        if steps < 2:
            found: tuple[Any, ...] = network(input, hx, *args)
            return found
        output, *last = network(input.narrow(dim, 0, 1), hx, *args)
        sizes = [*output.shape]
        sizes[dim] = steps
        return output.expand(sizes).clone(), *last

    return run


_TAKEN = 7
"""How many arguments PyTorch's functions take behind the state, for what isn't packed."""

_NETWORKS = {
    name: _in_one_step(getattr(torch, name)) for name in ("rnn_tanh", "rnn_relu", "lstm", "gru")
}

NODES = {f"torch.{name}": network for name, network in _NETWORKS.items()}
"""Taken as one operation each."""


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
    names = {**forward.__globals__, "_VF": types.SimpleNamespace(**_NETWORKS)}
    original = types.FunctionType(forward.__code__, names, forward.__name__, forward.__defaults__)

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
