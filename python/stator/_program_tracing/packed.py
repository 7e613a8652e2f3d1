"""Packed sequences in tensor programs.

How much a packed sequence holds depends on the lengths, which are data. A program has tensors of
known sizes: in the place of a packed sequence stands the padded one, with zeros beyond the lengths,
and recurrent modules take its steps so that nobody sees what is beyond. What PyTorch refuses of
lengths is an index that isn't there.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.nn.utils import rnn

from stator.errors import ProgramError

__all__ = ["SILENT", "SUBSTITUTES", "Packed", "run"]


def _refuse(explanation: str, hint: str) -> NoReturn:
    why = "how much a packed sequence holds is known only when the program runs"
    raise ProgramError("SB003", explanation, hint, [], why)


_BEFORE = "do it to the padded sequence, before `pack_padded_sequence`"


class Packed:
    """What stands for a packed sequence: steps first, clients' sequences in their own order."""

    def __init__(self, rows: Any, lengths: Any, longest: int | None) -> None:
        self.padded_rows = rows
        self.own_lengths = lengths
        self.longest = longest
        """The greatest length, where the program itself says it."""

    def __getattr__(self, name: str) -> Any:
        _refuse(f"`{name}` of a packed sequence", _BEFORE)

    def __getitem__(self, at: Any) -> Any:
        _refuse("a part of a packed sequence", _BEFORE)

    def __iter__(self) -> Any:
        _refuse("the parts of a packed sequence", _BEFORE)


def _places(rows: Any) -> Any:
    """The number of the step, for each step of each sequence."""
    first = rows.flatten(2)[:, :, 0] if rows.dim() > 2 else rows
    return torch.ones_like(first, dtype=torch.int64).cumsum(0) - 1


def _required(holds: Any, of: Any) -> Any:
    """`of`, if a condition holds; otherwise an index that isn't there is an error."""
    zero = torch.zeros_like(of[:1])
    return of + zero.gather(0, torch.logical_not(holds).to(torch.int64).reshape(1))


def _until(lengths: Any, rows: Any, beyond: float = 0.0) -> Any:
    """The rows, and a number where a sequence has ended."""
    lasts = _places(rows) < lengths
    lasts = lasts.reshape(*lasts.shape, *[1] * (rows.dim() - 2))
    return torch.where(lasts, rows, torch.full_like(rows, beyond))


def _pack_padded_sequence(
    input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> Any:
    rows = input.transpose(0, 1) if batch_first else input
    longest = None
    if isinstance(lengths, torch.Tensor):
        lengths = lengths.to(torch.int64)
    else:
        if all(isinstance(length, int) for length in lengths):
            longest = max(lengths)
        lengths = torch.as_tensor(lengths, dtype=torch.int64)
    places = _places(rows)
    # What is stacked is as long: there is a length for each sequence.
    lengths = torch.stack([places[0], lengths.to(places)])[1]
    lengths = places.gather(0, (lengths - 1).unsqueeze(0))[0] + 1
    if enforce_sorted:
        lengths = _required((lengths[1:] <= lengths[:-1]).all(), lengths)
    return Packed(_until(lengths, rows), lengths, longest)


def _pad_packed_sequence(
    sequence: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> Any:
    if not isinstance(sequence, Packed):
        return _ORIGINAL(sequence, batch_first, padding_value, total_length)
    rows, lengths = sequence.padded_rows, sequence.own_lengths
    if total_length is None:
        if sequence.longest is None:
            _refuse(
                "`pad_packed_sequence` without `total_length`: it gives as many steps as the "
                "longest sequence has",
                "give it `total_length=`, such as the number of steps that were packed",
            )
        total_length = sequence.longest
    else:
        lengths = _required((lengths <= total_length).all(), lengths)
    further = torch.zeros_like(rows[:1]).expand(total_length, *rows.shape[1:])
    rows = _until(lengths, torch.cat([rows, further])[:total_length], padding_value)
    return (rows.transpose(0, 1) if batch_first else rows), lengths


def run(module: Any, packed: Packed, hx: Any = None) -> Any:
    """What a recurrent module makes of it: a layer in one direction after the other."""
    if module.dropout and module.training and module.num_layers > 1:
        _refuse(
            "a recurrent module with dropout between its layers, on a packed sequence",
            "set `dropout=0`, or drop the padded sequence's numbers by `nn.Dropout`",
        )
    rows, lengths = packed.padded_rows, packed.own_lengths
    directions = 2 if module.bidirectional else 1
    size = module.proj_size or module.hidden_size
    if hx is None:
        zeros = rows.new_zeros(module.num_layers * directions, rows.shape[1], size)
        hx = zeros
        if module.mode == "LSTM":
            cells = (module.num_layers * directions, rows.shape[1], module.hidden_size)
            hx = (zeros, rows.new_zeros(*cells))
    first = list(hx) if module.mode == "LSTM" else [hx]
    weights = module._flat_weights
    each = len(weights) // (module.num_layers * directions)
    places = _places(rows)
    backwards = torch.where(places < lengths, lengths - 1 - places, places)
    ends: list[list[Any]] = [[] for _ in first]
    for layer in range(module.num_layers):
        made = []
        for direction in range(directions):
            at = layer * directions + direction
            given = _picked(rows, backwards) if direction else rows
            state = [tensor[at : at + 1] for tensor in first]
            output, *cell = _steps(
                module, given, state, weights[each * at : each * (at + 1)], lengths
            )
            ends[0].append(_picked(output, (lengths - 1).unsqueeze(0))[0])
            for kept, end in zip(ends[1:], cell, strict=True):
                kept.append(end[0])
            made.append(_picked(output, backwards) if direction else output)
        rows = _until(lengths, torch.cat(made, -1) if module.bidirectional else made[0])
    last = [torch.stack(of) for of in ends]
    output = Packed(rows, lengths, packed.longest)
    return output, tuple(last) if module.mode == "LSTM" else last[0]


def _picked(rows: Any, places: Any) -> Any:
    """Of each sequence the rows at these places."""
    return rows.gather(0, places.unsqueeze(-1).expand(*places.shape, rows.shape[-1]))


def _steps(module: Any, rows: Any, state: Any, weights: Any, lengths: Any) -> Any:
    """All steps of one layer in one direction: its outputs, and an LSTM's last cells.

    Where a sequence has ended, an LSTM's cells stay: its input has one number more, which closes
    the gate for what is new and opens the one for what is kept.
    """
    weights = list(weights)
    if module.mode == "LSTM":
        into, kept, new, out = torch.zeros_like(weights[0][:, :1]).chunk(4)
        # No number that it is added to counts beside it.
        closed = torch.finfo(weights[0].dtype).max / 4
        stopping = torch.cat([into - closed, kept + closed, new, out])
        weights[0] = torch.cat([weights[0], stopping], 1)
        ended = (_places(rows) >= lengths).unsqueeze(-1).to(rows.dtype)
        rows = torch.cat([rows, ended], -1)
        output, _, cells = torch.lstm(
            rows, state, weights, module.bias, 1, 0.0, module.training, False, False
        )
        return output, cells
    operation = _OPERATIONS[module.mode]
    output, _ = operation(
        rows, state[0], weights, module.bias, 1, 0.0, module.training, False, False
    )
    return (output,)


_OPERATIONS: dict[str, Any] = {
    "GRU": torch.gru,
    "RNN_TANH": torch.rnn_tanh,
    "RNN_RELU": torch.rnn_relu,
}

# A function of its own, which isn't substituted.
_ORIGINAL = types.FunctionType(
    rnn.pad_packed_sequence.__code__,
    rnn.pad_packed_sequence.__globals__,
    "pad_packed_sequence",
    rnn.pad_packed_sequence.__defaults__,
)

SILENT: list[Callable[..., Any]] = [_refuse]

# Functions, and what is traced in their place.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (rnn.pack_padded_sequence, _pack_padded_sequence),
    (rnn.pad_packed_sequence, _pad_packed_sequence),
]
