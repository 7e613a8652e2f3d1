"""Packed sequences in tensor programs, beside PyTorch's own."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from programs.common import spec
from torch import nn
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
)

from stator.errors import ProgramError, ProgramInputError
from stator.programs import TensorProgram

STEPS, ROWS = 6, 4
LENGTHS = ([3, 6, 1, 4], [6, 6, 6, 6], [1, 1, 2, 1], [2, 5, 5, 3])
NETWORKS = {
    "lstm": nn.LSTM(3, 5),
    "gru": nn.GRU(3, 5),
    "rnn": nn.RNN(3, 5),
    "relu": nn.RNN(3, 5, nonlinearity="relu"),
    "layers": nn.LSTM(3, 5, num_layers=2),
    "both ways": nn.GRU(3, 5, num_layers=2, bidirectional=True),
    "both ways, lstm": nn.LSTM(3, 5, num_layers=2, bidirectional=True),
    "projected": nn.LSTM(3, 5, proj_size=2, num_layers=2, bidirectional=True),
    "without biases": nn.LSTM(3, 5, bias=False),
}


def alike(program: TensorProgram, function: Any, *given: Any) -> None:
    """Twice the same as plain Python, within rounding."""
    expected = function(*given)
    for _ in range(2):
        for found, wanted in zip(program(*given), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def step(network: Any, batch_first: bool = False, **how: Any) -> Any:
    """A step of gradient descent on all that a network gives for packed sequences."""

    def run(rows: Any, lengths: Any) -> Any:
        weights = {
            name: of.detach().clone().requires_grad_() for name, of in network.named_parameters()
        }
        rows = rows.detach().requires_grad_()
        packed = pack_padded_sequence(rows, lengths, batch_first, enforce_sorted=False)
        output, ends = torch.func.functional_call(network, weights, (packed,))
        padded, own = pad_packed_sequence(output, batch_first, **{"total_length": STEPS, **how})
        ends = ends if isinstance(ends, tuple) else (ends,)
        loss = padded.pow(2).sum() + sum((end * end.cos()).sum() for end in ends)
        gradients = torch.autograd.grad(loss, [rows, *weights.values()])
        return (padded, own, *ends, *gradients)

    return run


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str) -> None:
    function = step(NETWORKS[name])
    sizes = (spec(STEPS, ROWS, 3), spec(ROWS, dtype=torch.int64))
    program = TensorProgram.trace(function, sizes)
    program = TensorProgram.from_bytes(program.to_bytes())
    for lengths in LENGTHS:
        rows = torch.randn(STEPS, ROWS, 3)
        alike(program, function, rows, torch.tensor(lengths))
        # Nobody sees what is beyond.
        rows[max(lengths) :] = torch.nan
        rows[lengths[0] :, 0] = torch.inf
        alike(program, function, rows, torch.tensor(lengths))


def test_weights_that_are_large() -> None:
    network = nn.LSTM(3, 5)
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(1e5)

    def function(rows: Any, lengths: Any) -> Any:
        _, ends = network(pack_padded_sequence(rows, lengths, enforce_sorted=False))
        return ends

    sizes = (spec(STEPS, ROWS, 3), spec(ROWS, dtype=torch.int64))
    program = TensorProgram.trace(function, sizes)
    alike(program, function, torch.randn(STEPS, ROWS, 3), torch.tensor([3, 6, 1, 4]))


def test_any_number_of_sequences() -> None:
    network = nn.LSTM(3, 5, batch_first=True)
    function = step(network, batch_first=True, padding_value=-1.0)
    program = TensorProgram.trace(function, (spec(None, STEPS, 3), spec(None, dtype=torch.int64)))
    for count in (1, 5):
        alike(program, function, torch.randn(count, STEPS, 3), torch.arange(1, 6)[-count:])
    with pytest.raises(ProgramInputError, match=r"lengths\.size\(0\) is 1"):
        program(torch.randn(3, STEPS, 3), torch.tensor([2]))


@pytest.mark.parametrize("total", [4, STEPS, 9])
def test_lengths_that_the_program_says(total: int) -> None:
    network = nn.GRU(3, 5)

    def function(rows: Any) -> Any:
        packed = pack_padded_sequence(rows, [4, 2, 2, 1])
        output, end = network(packed, rows.new_ones(1, ROWS, 5))
        shorter, _ = pad_packed_sequence(output)
        longer, lengths = pad_packed_sequence(output, total_length=total)
        return shorter, longer, lengths, end

    program = TensorProgram.trace(function, (spec(STEPS, ROWS, 3),))
    alike(program, function, torch.randn(STEPS, ROWS, 3))


def test_sequences_of_numbers() -> None:
    def function(words: Any, lengths: Any) -> Any:
        packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(packed, batch_first=True, padding_value=7, total_length=STEPS)

    sizes = (spec(ROWS, STEPS, dtype=torch.int64), spec(ROWS, dtype=torch.int64))
    program = TensorProgram.trace(function, sizes)
    words = torch.randint(0, 5, (ROWS, STEPS))
    alike(program, function, words, torch.tensor([2, 6, 1, 3]))


def test_a_list_of_sequences() -> None:
    network = nn.LSTM(3, 5)

    def function(one: Any, two: Any) -> Any:
        _, (end, cells) = network(pack_sequence([one, two]))
        return end, cells

    program = TensorProgram.trace(function, (spec(4, 3), spec(2, 3)))
    alike(program, function, torch.randn(4, 3), torch.randn(2, 3))


def is_sorted(rows: Any, lengths: Any) -> Any:
    return NETWORKS["gru"](pack_padded_sequence(rows, lengths))[1]


def not_sorted(rows: Any, lengths: Any) -> Any:
    return NETWORKS["gru"](pack_padded_sequence(rows, lengths, enforce_sorted=False))[1]


def too_short(rows: Any, lengths: Any) -> Any:
    packed = pack_padded_sequence(rows, lengths, enforce_sorted=False)
    return pad_packed_sequence(packed, total_length=3)[0]


@pytest.mark.parametrize(
    ("function", "lengths", "fails"),
    [
        (is_sorted, [4, 3, 3, 1], False),
        (is_sorted, [4, 3, 1, 3], True),
        (not_sorted, [4, 0, 1, 3], True),
        (not_sorted, [4, -1, 1, 3], True),
        (not_sorted, [4, 7, 1, 3], True),
        (too_short, [3, 1, 2, 3], False),
        (too_short, [3, 1, 4, 3], True),
    ],
)
def test_what_pytorch_refuses_fails(function: Any, lengths: list[int], fails: bool) -> None:
    program = TensorProgram.trace(function, (spec(STEPS, ROWS, 3), spec(ROWS, dtype=torch.int64)))
    given = (torch.randn(STEPS, ROWS, 3), torch.tensor(lengths))
    if not fails:
        torch.testing.assert_close(program(*given)[0], function(*given), rtol=1e-5, atol=1e-6)
        return
    with pytest.raises((RuntimeError, ValueError)):
        function(*given)
    with pytest.raises(RuntimeError):
        program(*given)


def held_data(rows: Any, lengths: Any) -> Any:
    packed = pack_padded_sequence(rows, lengths, enforce_sorted=False)
    return PackedSequence(packed.data.relu(), packed.batch_sizes)


def held_parts(rows: Any, lengths: Any) -> Any:
    data, *_ = pack_padded_sequence(rows, lengths, enforce_sorted=False)
    return data


def held_first(rows: Any, lengths: Any) -> Any:
    return pack_padded_sequence(rows, lengths, enforce_sorted=False)[0]


def as_long_as_the_longest(rows: Any, lengths: Any) -> Any:
    return pad_packed_sequence(pack_padded_sequence(rows, lengths))[0]


DROPPING = nn.GRU(3, 5, num_layers=2, dropout=0.5)


def dropped(rows: Any, lengths: Any) -> Any:
    return DROPPING(pack_padded_sequence(rows, lengths))[1]


@pytest.mark.parametrize(
    ("function", "explanation", "hint"),
    [
        (held_data, "`data` of a packed sequence", "before `pack_padded_sequence`"),
        (held_parts, "the parts of a packed sequence", "before `pack_padded_sequence`"),
        (held_first, "a part of a packed sequence", "before `pack_padded_sequence`"),
        (as_long_as_the_longest, "`pad_packed_sequence` without `total_length`", "`total_length=`"),
        (dropped, "dropout between its layers", "`dropout=0`"),
    ],
)
def test_what_depends_on_lengths_is_refused(function: Any, explanation: str, hint: str) -> None:
    with pytest.raises(ProgramError) as caught:
        TensorProgram.trace(function, (spec(STEPS, ROWS, 3), spec(ROWS, dtype=torch.int64)))
    assert caught.value.id == "SB003"
    assert explanation in str(caught.value)
    assert hint in str(caught.value)
