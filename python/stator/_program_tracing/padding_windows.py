"""Rules for padded rows (`padding.py`): windows along rows, as convolutions and pooling have them.

A client's own windows come first. What is beyond its own rows stands for the padding that PyTorch
has beyond the last one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from stator._program_tracing.padding import Padding, least, rule_for, without_rows
from stator._program_tracing.padding_numbers import NotPaddedError, Number

__all__ = ["Padding"]

_MIXED = "clients of different sizes: rows are mixed"


def _single(value: Any) -> int:
    return int(value[0]) if isinstance(value, (tuple, list)) else int(value)


def _at(value: Any, which: int) -> int:
    """What is said of one of two dimensions."""
    return int(value[which % len(value)]) if isinstance(value, (tuple, list)) else int(value)


class _Windows(NamedTuple):
    """Windows along rows. `both`: how much is put before and behind rows; `reach`: how far the last
    row of a window is from its first."""

    both: int
    reach: int
    step: int


def _windows(padding: Padding, found: Any, number: Any, both: int, reach: int, step: int) -> Any:
    """What was made of all windows along the last dimension, marked."""
    found, many = _own(padding, found, found.dim() - 1, number, _Windows(both, reach, step))
    return padding.mark(found, found.dim() - 1, many)


def _own(padding: Padding, found: Any, dim: int, number: Any, of: _Windows) -> tuple[Any, Number]:
    """What was made of all windows along a dimension, and how many of them are a client's own."""
    both, reach, step = of
    many = number + (both - reach) if step == 1 else (number + (both - reach - 1)) // step + 1
    if not isinstance(many, Number):
        raise NotPaddedError(_MIXED)
    # PyTorch refuses what has no rows.
    padding.holds((many.own > 0) & (number.own > 0))
    rows = padding.rows_of(many)
    lacks = rows - found.shape[dim]
    if lacks < 0:
        raise NotPaddedError(_MIXED)
    # What is beyond is as finite as the client's own, and has no gradient.
    first = found.narrow(dim, 0, 1).detach()
    if lacks:
        found = torch.cat([found, first.repeat_interleave(lacks, dim)], dim)
    mask = (torch.arange(rows) < many.own).reshape([-1, *[1] * (found.dim() - dim - 1)])
    return torch.where(mask, found, first), many


def _windows_of_two(padding: Padding, found: Any, input: Any, of: Sequence[_Windows]) -> Any:
    """What was made of windows along the last two dimensions, of which rows are one or both."""
    dims, numbers = [], []
    for dim, number in zip(padding.dims(input), padding.numbers(input), strict=True):
        which = dim - input.dim() + 2
        if which < 0:
            raise NotPaddedError(_MIXED)
        found, many = _own(padding, found, found.dim() - 2 + which, number, of[which])
        dims.append(found.dim() - 2 + which)
        numbers.append(many)
    if len(dims) > 1:
        padding.expect_room(found)
    return padding.mark(found, dims, numbers)


def _is_apart(padding: Padding, input: Any) -> bool:
    """Whether each row has windows of its own."""
    dim = padding.dim(input)
    if dim == 0 and input.dim() == 3:
        return True
    if dim is None or dim != input.dim() - 1:
        raise NotPaddedError(_MIXED)
    return False


@rule_for("conv1d")
def _convolved(
    padding: Padding,
    call: Any,
    /,
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    pad: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    **how: Any,
) -> Any:
    pad = how.pop("padding", pad)
    without_rows(padding, weight, bias, how)
    if _is_apart(padding, input):
        return padding.mark(call(input, weight, bias, stride, pad, dilation, groups), 0)
    reach = _single(dilation) * (weight.shape[-1] - 1)
    both = {"valid": 0, "same": reach}[pad] if isinstance(pad, str) else 2 * _single(pad)
    found = call(padding.only(input, 0), weight, bias, stride, pad, dilation, groups)
    return _windows(padding, found, padding.number(input), both, reach, _single(stride))


@rule_for("conv2d", is_of_several=True)
def _convolved_both(
    padding: Padding,
    call: Any,
    /,
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    pad: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    **how: Any,
) -> Any:
    pad = how.pop("padding", pad)
    without_rows(padding, weight, bias, how)
    if padding.dims(input) == (0,) and input.dim() == 4:
        return padding.mark(call(input, weight, bias, stride, pad, dilation, groups), 0)
    found = call(padding.only(input, 0), weight, bias, stride, pad, dilation, groups)
    of = []
    for which in (0, 1):
        reach = _at(dilation, which) * (weight.shape[which - 2] - 1)
        both = {"valid": 0, "same": reach}[pad] if isinstance(pad, str) else 2 * _at(pad, which)
        of.append(_Windows(both, reach, _at(stride, which)))
    return _windows_of_two(padding, found, input, of)


@rule_for("max_pool2d", "avg_pool2d", is_of_several=True)
def _pooled_both(
    padding: Padding,
    call: Any,
    /,
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    pad: Any = 0,
    *args: Any,
    **how: Any,
) -> Any:
    pad = how.pop("padding", pad)
    without_rows(padding, kernel_size, stride, pad, args, how)
    if padding.dims(input) == (0,) and input.dim() == 4:
        return padding.mark(call(input, kernel_size, stride, pad, *args, **how), 0)
    is_max = call.name == "max_pool2d"
    names = ("dilation", "ceil_mode", "return_indices")
    names = names if is_max else ("ceil_mode", "count_include_pad", "divisor_override")
    given = {**dict(zip(names, args, strict=False)), **how}
    is_other = given.get("ceil_mode") or given.get("return_indices")
    is_other = is_other or given.get("divisor_override") is not None
    has_pad = any(_at(pad, which) for which in (0, 1))
    if is_other or (has_pad and not given.get("count_include_pad", True)):
        raise NotPaddedError(_MIXED)
    known = padding.only(input, least(input.dtype) if is_max else 0)
    found = call(known, kernel_size, stride, pad, *args, **how)
    steps = kernel_size if stride is None or stride == [] else stride
    of = []
    for which in (0, 1):
        reach = _at(given.get("dilation", 1), which) * (_at(kernel_size, which) - 1)
        of.append(_Windows(2 * _at(pad, which), reach, _at(steps, which)))
    return _windows_of_two(padding, found, input, of)


@rule_for("max_pool1d", "avg_pool1d")
def _pooled(
    padding: Padding,
    call: Any,
    /,
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    pad: Any = 0,
    *args: Any,
    **how: Any,
) -> Any:
    pad = how.pop("padding", pad)
    without_rows(padding, kernel_size, stride, pad, args, how)
    if _is_apart(padding, input):
        return padding.mark(call(input, kernel_size, stride, pad, *args, **how), 0)
    is_max = call.name == "max_pool1d"
    names = ("dilation", "ceil_mode") if is_max else ("ceil_mode", "count_include_pad")
    given = {**dict(zip(names, args, strict=False)), **how}
    is_other = given.get("ceil_mode") or given.get("return_indices")
    if is_other or (_single(pad) and not given.get("count_include_pad", True)):
        raise NotPaddedError(_MIXED)
    step = _single(kernel_size if stride is None or stride == [] else stride)
    reach = _single(given.get("dilation", 1)) * (_single(kernel_size) - 1)
    known = padding.only(input, least(input.dtype) if is_max else 0)
    found = call(known, kernel_size, stride, pad, *args, **how)
    return _windows(padding, found, padding.number(input), 2 * _single(pad), reach, step)


@rule_for("adaptive_avg_pool1d", "adaptive_max_pool1d")
def _divided(padding: Padding, call: Any, /, input: Any, output_size: Any, **how: Any) -> Any:
    """Rows are divided into so many windows, which may have some in common."""
    without_rows(padding, output_size)
    if _is_apart(padding, input):
        return padding.mark(call(input, output_size, **how), 0)
    parts, own = _single(output_size), padding.number(input).own
    if how.get("return_indices"):
        raise NotPaddedError(_MIXED)
    part = torch.arange(parts)
    begins, ends = part * own // parts, -(-(part + 1) * own // parts)
    places = begins.unsqueeze(1) + torch.arange(math.ceil(padding.rows / parts) + 1)
    is_within = places < ends.unsqueeze(1)
    taken = input.movedim(-1, 0)[places.clamp(max=padding.rows - 1)].movedim((0, 1), (-2, -1))
    is_max = call.name == "adaptive_max_pool1d"
    other = torch.full((), least(input.dtype) if is_max else 0, dtype=input.dtype)
    known = torch.where(is_within, taken, other)
    return known.max(-1).values if is_max else known.sum(-1) / (ends - begins).to(input.dtype)
