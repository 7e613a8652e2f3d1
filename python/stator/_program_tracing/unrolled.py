"""Recurrent networks as operations that `torch.vmap` has rules for: it has none for PyTorch's own,
which do all steps of all layers at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["RECURRENT", "NotUnrolledError"]

_STEPS = 32
"""How many steps, of all layers and directions, are written out for few rows: more would make
programs longer than one row after the other does."""

_Cell = Callable[[Any, list[Any], Callable[[Any], Any]], list[Any]]


class NotUnrolledError(Exception):
    """The network stays as it is; the text says why."""


def _tanh(given: Any, state: list[Any], hidden: Callable[[Any], Any]) -> list[Any]:
    return [torch.tanh(given + hidden(state[0]))]


def _relu(given: Any, state: list[Any], hidden: Callable[[Any], Any]) -> list[Any]:
    return [torch.relu(given + hidden(state[0]))]


def _lstm(given: Any, state: list[Any], hidden: Callable[[Any], Any]) -> list[Any]:
    into, kept, new, out = (given + hidden(state[0])).chunk(4, -1)
    cell = torch.sigmoid(kept) * state[1] + torch.sigmoid(into) * torch.tanh(new)
    return [torch.sigmoid(out) * torch.tanh(cell), cell]


def _gru(given: Any, state: list[Any], hidden: Callable[[Any], Any]) -> list[Any]:
    reset, kept, new = given.chunk(3, -1)
    own_reset, own_kept, own_new = hidden(state[0]).chunk(3, -1)
    new = torch.tanh(new + torch.sigmoid(reset + own_reset) * own_new)
    return [new + torch.sigmoid(kept + own_kept) * (state[0] - new)]


def _unrolled(cell: _Cell) -> Callable[..., tuple[Any, ...]]:
    """The network of a cell, called as PyTorch's function is."""

    def run(
        input: Any,
        hx: Any,
        params: Sequence[Any],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool = False,
        *,
        count: int,
        active: Any = None,
    ) -> tuple[Any, ...]:
        if isinstance(has_biases, (list, tuple)):
            raise NotUnrolledError("it has a recurrent network on packed sequences")
        if dropout and train and num_layers > 1:
            raise NotUnrolledError("it has a recurrent network with dropout between its layers")
        first = [hx] if isinstance(hx, torch.Tensor) else list(hx)
        directions, each = 2 if bidirectional else 1, 4 if has_biases else 2
        rows = input.transpose(0, 1) if batch_first else input
        if len(params) != each * directions * num_layers:
            raise NotUnrolledError("it has a recurrent network with projections")
        steps = rows.shape[0] * directions * num_layers
        if steps > max(_STEPS, count):
            raise NotUnrolledError(f"it has a recurrent network of {steps} steps")
        last: list[list[Any]] = [[] for _ in first]
        for layer in range(num_layers):
            made = []
            for direction in range(directions):
                at = layer * directions + direction
                weight, own, *biases = params[each * at : each * (at + 1)]
                given = _affine(rows, weight, biases[:1])
                hidden = functools.partial(_affine, weight=own, biases=biases[1:])
                state = [tensor[at] for tensor in first]
                outputs: list[Any] = [None] * rows.shape[0]
                order = range(rows.shape[0])
                for step in reversed(order) if direction else order:
                    following = cell(given[step], state, hidden)
                    if active is not None:
                        # Steps of padding change nothing, from wherever they come.
                        pairs = zip(following, state, strict=True)
                        following = [torch.where(active[step], *pair) for pair in pairs]
                    state = following
                    outputs[step] = state[0]
                for ends, end in zip(last, state, strict=True):
                    ends.append(end)
                made.append(torch.stack(outputs))
            rows = torch.cat(made, -1) if bidirectional else made[0]
        output = rows.transpose(0, 1) if batch_first else rows
        return output, *(torch.stack(ends) for ends in last)

    return run


def _affine(of: Any, weight: Any, biases: Sequence[Any]) -> Any:
    found = of @ weight.t()
    return found + biases[0] if biases else found


RECURRENT: dict[Any, Callable[..., tuple[Any, ...]]] = {
    torch.rnn_tanh: _unrolled(_tanh),
    torch.rnn_relu: _unrolled(_relu),
    torch.lstm: _unrolled(_lstm),
    torch.gru: _unrolled(_gru),
}
"""What does the same for `count` rows at once, by PyTorch's functions."""
