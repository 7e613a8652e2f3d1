"""`torch.nn.attention.sdpa_kernel`: which kernels attention may use, for the process, within a `with` block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import stator

KERNELS = ("math", "flash", "mem_efficient", "cudnn")
Q = torch.randn(1, 2, 4, 8, generator=torch.Generator().manual_seed(0))


ORDER = torch._C._get_sdp_priority_order()


def flags() -> list[Any]:
    enabled = [getattr(torch._C, f"_get_{kernel}_sdp_enabled")() for kernel in KERNELS]
    return [*enabled, torch._C._get_sdp_priority_order()]


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = flags()
    yield
    torch._C._set_sdp_priority_order(ORDER)
    for kernel, on in zip(KERNELS, before, strict=False):
        getattr(torch._C, f"_set_sdp_use_{kernel}")(on)


def one(q: Tensor, k: Tensor, seen: list[Any]) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        seen.append(flags())
        y = scaled_dot_product_attention(q, k, k)
    return y + 1


def several(q: Tensor, k: Tensor, seen: list[Any]) -> Tensor:
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        with sdpa_kernel(SDPBackend.MATH):
            y = scaled_dot_product_attention(q, k, k)
        seen.append(flags())
        return y + scaled_dot_product_attention(q, q, q)


def handled(q: Tensor, k: Tensor, seen: list[Any]) -> Tensor:
    try:
        with sdpa_kernel(SDPBackend.MATH):
            q.add_(1)
            return scaled_dot_product_attention(q, k, k)
    except RuntimeError:
        seen.append(flags())
        return q * 2


def by_priority(q: Tensor, k: Tensor, seen: list[Any]) -> Tensor:
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        seen.append(flags())
        y = scaled_dot_product_attention(q, k, k)
    seen.append(flags())
    return y + 1


def order_left(q: Tensor, k: Tensor, seen: list[Any]) -> Tensor:
    torch._C._set_sdp_priority_order(
        [*torch._C._get_sdp_priority_order()[1:], int(SDPBackend.MATH)]
    )
    try:
        q.add_(1)
        return scaled_dot_product_attention(q, k, k)
    except RuntimeError:
        torch._C._set_sdp_priority_order(ORDER)
        return q


def left_on(q: Tensor, k: Tensor, seen: list[Any]) -> Tensor:
    seen.append(flags())
    torch._C._set_sdp_use_flash(not flags()[1])
    return scaled_dot_product_attention(q, k, k)


def decided(q: Tensor, k: Tensor, seen: list[Any]) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        if q.sum() > 0:
            q = q * 2
        seen.append(flags())
    return q


def play(call: Callable[..., Tensor]) -> list[Any]:
    played: list[Any] = []
    for number in range(9):
        seen: list[Any] = []
        # The third of three has keys that don't fit, after which the kernels are what they were.
        q, k = Q * (-1) ** number, Q if number % 3 < 2 else Q[..., :4]
        if number == 6:
            torch._C._set_sdp_use_mem_efficient(False)
        try:
            result = call(q.clone(), k, seen).tolist()
        except RuntimeError as error:
            result = str(error)
        played.append((result, seen, flags()))
    torch._C._set_sdp_priority_order(ORDER)
    for kernel in KERNELS:
        getattr(torch._C, f"_set_sdp_use_{kernel}")(True)
    return played


@pytest.mark.parametrize(
    "function", [one, several, handled, left_on, decided, by_priority, order_left]
)
@pytest.mark.parametrize("backend", ["eager", "fx"])
def test_kernels_are_those_of_plain_python(function: Callable[..., Any], backend: str) -> None:
    compiled = stator.compile(function, backend=backend, recompile_limit=99)
    expected = play(function)
    assert play(compiled) == expected
    assert play(compiled) == expected


@pytest.mark.parametrize("function", [several, by_priority])
def test_a_block_is_part_of_the_trace(function: Callable[..., Any]) -> None:
    compiled = stator.compile(function)
    for _ in range(4):
        compiled(Q, Q, [])
    stats = stator.stats(compiled)
    assert (stats.traces, stats.hits, stats.breaks) == (1, 3, 0), stats.reason
