"""Autocast: in the program, around the call, one in another, with and without its cache, and gradients under it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from .compare import SEED, World, differs, same

DTYPES = [torch.bfloat16, torch.float16]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first(x).relu())
        # Norms and losses are taken in full precision.
        return nn.functional.layer_norm(y, (4,)) + y.softmax(-1) + y.exp().sum()


Program = Callable[[nn.Module, Tensor, str, torch.dtype], Any]


def block(model: nn.Module, x: Tensor, device: str, dtype: torch.dtype) -> Any:
    with torch.autocast(device, dtype=dtype):
        y = model(x)
    return y, y.dtype, model(x).dtype


def nested(model: nn.Module, x: Tensor, device: str, dtype: torch.dtype) -> Any:
    with torch.autocast(device, dtype=dtype):
        inner = model(x)
        with torch.autocast(device, enabled=False):
            plain = model(x.float())
        with torch.autocast(device, dtype=torch.bfloat16):
            other = x @ x.t()
        after = x @ x.t()
    return inner, plain, other, after, [tensor.dtype for tensor in (inner, plain, other, after)]


def cached(model: nn.Module, x: Tensor, device: str, dtype: torch.dtype) -> Any:
    """Weights are cast once in a block, and written between two."""
    with torch.autocast(device, dtype=dtype, cache_enabled=True):
        first, second = model(x), model(x + 1)
    with torch.autocast(device, dtype=dtype, cache_enabled=False):
        third = model(x)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    with torch.autocast(device, dtype=dtype):
        fourth = model(x)
    return first, second, third, fourth


def gradients(model: nn.Module, x: Tensor, device: str, dtype: torch.dtype) -> Any:
    with torch.autocast(device, dtype=dtype):
        loss = model(x).float().pow(2).mean()
    loss.backward()
    return loss.detach()


def asks(model: nn.Module, x: Tensor, device: str, dtype: torch.dtype) -> Any:
    with torch.autocast(device, dtype=dtype):
        is_on, kind = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        y = x * 2 if is_on else x * 3
    return y, is_on, kind, torch.is_autocast_enabled(device), torch.is_autocast_cache_enabled()


def decorated(model: nn.Module, x: Tensor, device: str, dtype: torch.dtype) -> Any:
    @torch.autocast(device, dtype=dtype)
    def inner(x: Tensor) -> Tensor:
        return model(x)

    return inner(x), inner(x).dtype


def raises(model: nn.Module, x: Tensor, device: str, dtype: torch.dtype) -> Any:
    """The block ends by an exception: autocast is off behind it."""
    try:
        with torch.autocast(device, dtype=dtype):
            y = model(x)
            y @ torch.ones(9, 9, device=x.device)
    except RuntimeError:
        y = x @ x.t()
    return y, torch.is_autocast_enabled(device)


def make_of(program: Program, device: str, dtype: torch.dtype) -> Callable[[], World]:
    def make() -> World:
        torch.manual_seed(SEED)
        model = Net().to(device)
        x = (torch.arange(12.0).reshape(3, 4) / 9).to(device)
        return {"fn": program, "args": [model, x, device, dtype], "model": model}

    return make


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("program", [block, nested, cached, gradients, asks, decorated, raises])
def test_in_the_program(program: Program, device: str, dtype: torch.dtype) -> None:
    def other(world: World) -> None:
        world["args"][3] = next(it for it in DTYPES if it is not world["args"][3])

    make = make_of(program, device, dtype)
    if program not in (gradients, raises):
        differs(make, other)
    same(make, other, other)


def forward(model: nn.Module, x: Tensor, device: str, dtype: torch.dtype) -> Any:
    y = model(x)
    return y, y.dtype, torch.is_autocast_enabled(device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_around_the_call(device: str, dtype: torch.dtype) -> None:
    make = make_of(forward, device, dtype)
    on, other = DTYPES if dtype is DTYPES[0] else DTYPES[::-1]
    differs(make, lambda world: torch.autocast(device, dtype=on))
    same(
        make,
        lambda world: torch.autocast(device, dtype=on),
        lambda world: torch.autocast(device, dtype=other),
        lambda world: torch.autocast(device, enabled=False),
        lambda world: torch.autocast(device, dtype=on, cache_enabled=False),
        lambda world: None,
    )


def test_default_dtype(device: str) -> None:
    """`torch.set_autocast_dtype` changes what a block without a dtype means."""

    def fn(model: nn.Module, x: Tensor, device: str, dtype: torch.dtype) -> Any:
        with torch.autocast(device):
            return model(x).dtype, x @ x.t()

    before = torch.get_autocast_dtype(device)
    make = make_of(fn, device, torch.float16)
    try:
        torch.set_autocast_dtype(device, torch.bfloat16)
        same(
            make,
            lambda world: torch.set_autocast_dtype(device, torch.float16),
            lambda world: torch.set_autocast_dtype(device, torch.bfloat16),
        )
    finally:
        torch.set_autocast_dtype(device, before)


def test_of_another_device(device: str) -> None:
    """Autocast of a device that no tensor of the program is on changes nothing."""
    other = "cpu" if device == "cuda" else "xpu"
    make = make_of(forward, device, torch.bfloat16)

    def switch(world: World) -> Any:
        torch.set_autocast_enabled(other, True)

    def back(world: World) -> Any:
        torch.set_autocast_enabled(other, False)

    try:
        same(make, switch, back)
    finally:
        torch.set_autocast_enabled(other, False)


def test_of_two_devices(cuda: str) -> None:
    def fn(model: nn.Module, x: Tensor, device: str, dtype: torch.dtype) -> Any:
        here = x.cpu()
        with torch.autocast("cuda", dtype=dtype), torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x), here @ here.t()

    def other(world: World) -> None:
        world["args"][3] = torch.bfloat16

    make = make_of(fn, cuda, torch.float16)
    differs(make, other)
    same(make, other)


def test_functions_that_cast(device: str) -> None:
    """`custom_fwd` and `custom_bwd` of an autograd function."""

    class Scale(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=device, cast_inputs=torch.float32)
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @torch.amp.custom_bwd(device_type=device)
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return 2 * x * gradient

    def fn(x: Tensor) -> Any:
        with torch.autocast(device, dtype=torch.bfloat16):
            y = Scale.apply(x @ x.t())
            z = y.sum()
        z.backward()
        return y.detach(), y.dtype

    def make() -> World:
        return {"fn": fn, "args": [torch.ones(3, 3, device=device, requires_grad=True)]}

    same(make, replays=None)
