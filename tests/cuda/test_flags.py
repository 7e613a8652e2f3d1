"""Settings of PyTorch's backends: TF32, cuDNN, attention. Guards see each change, and contexts are put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.backends import cuda as backend
from torch.backends import cudnn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from .compare import World, differs, same


def read_all() -> list[Any]:
    found = [backend.matmul.allow_tf32, cudnn.allow_tf32, cudnn.enabled, cudnn.benchmark]
    found += [cudnn.deterministic, torch.get_float32_matmul_precision()]
    found += [backend.matmul.allow_fp16_reduced_precision_reduction]
    found += [backend.matmul.allow_bf16_reduced_precision_reduction]
    found += [backend.flash_sdp_enabled(), backend.math_sdp_enabled()]
    return [*found, backend.mem_efficient_sdp_enabled(), backend.cudnn_sdp_enabled()]


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    before = read_all()
    tf32, cudnn_tf32, enabled, benchmark, deterministic, precision, *reductions = before
    yield
    torch.set_float32_matmul_precision(precision)
    backend.matmul.allow_tf32, cudnn.allow_tf32 = tf32, cudnn_tf32
    cudnn.enabled, cudnn.benchmark, cudnn.deterministic = enabled, benchmark, deterministic
    backend.matmul.allow_fp16_reduced_precision_reduction = reductions[0]
    backend.matmul.allow_bf16_reduced_precision_reduction = reductions[1]
    backend.enable_flash_sdp(reductions[2])
    backend.enable_math_sdp(reductions[3])
    backend.enable_mem_efficient_sdp(reductions[4])
    backend.enable_cudnn_sdp(reductions[5])
    assert read_all() == before


def matmul(x: Tensor) -> Any:
    return x @ x.t(), read_all()


def convolution(x: Tensor) -> Any:
    return F.conv2d(x[None, None], x[None, None, :3, :3]), read_all()


def attention(x: Tensor) -> Any:
    return F.scaled_dot_product_attention(*[x[None, None]] * 3), read_all()


def flip(owner: Any, name: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        setattr(owner, name, not getattr(owner, name))

    return change


def flip_by(read: Callable[[], bool], write: Callable[[bool], None]) -> Callable[[World], None]:
    def change(world: World) -> None:
        write(not read())

    return change


def precision(name: str) -> Callable[[World], None]:
    return lambda world: torch.set_float32_matmul_precision(name)


FLAGS = {
    "matmul_tf32": (matmul, flip(backend.matmul, "allow_tf32")),
    "matmul_precision": (matmul, precision("high")),
    "fp16_reduction": (matmul, flip(backend.matmul, "allow_fp16_reduced_precision_reduction")),
    "bf16_reduction": (matmul, flip(backend.matmul, "allow_bf16_reduced_precision_reduction")),
    "cudnn_tf32": (convolution, flip(cudnn, "allow_tf32")),
    "cudnn_enabled": (convolution, flip(cudnn, "enabled")),
    "cudnn_benchmark": (convolution, flip(cudnn, "benchmark")),
    "cudnn_deterministic": (convolution, flip(cudnn, "deterministic")),
    "flash": (attention, flip_by(backend.flash_sdp_enabled, backend.enable_flash_sdp)),
    "math": (attention, flip_by(backend.math_sdp_enabled, backend.enable_math_sdp)),
    "efficient": (
        attention,
        flip_by(backend.mem_efficient_sdp_enabled, backend.enable_mem_efficient_sdp),
    ),
    "cudnn_sdp": (attention, flip_by(backend.cudnn_sdp_enabled, backend.enable_cudnn_sdp)),
}


def x_of(device: str) -> Tensor:
    return (torch.arange(256.0).reshape(16, 16) / 77).to(device)


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag(name: str, device: str) -> None:
    fn, change = FLAGS[name]

    def make() -> World:
        return {"fn": fn, "args": [x_of(device)]}

    differs(make, change)
    change({})
    same(make, change, change, lambda world: None)
    if name not in ("matmul_precision",):
        change({})


def test_tf32_shows(cuda: str) -> None:
    """Where the GPU has TF32, the product itself differs: a replay computes it as the flag says."""
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("a GPU without TF32")

    def fn(x: Tensor) -> Any:
        return x @ x.t()

    def make() -> World:
        backend.matmul.allow_tf32 = False
        torch.manual_seed(0)
        return {"fn": fn, "args": [torch.randn(256, 256).to(cuda)]}

    differs(make, flip(backend.matmul, "allow_tf32"))
    same(make, flip(backend.matmul, "allow_tf32"))


def in_a_kernel_block(x: Tensor) -> Any:
    with sdpa_kernel([SDPBackend.MATH]):
        inside = attention(x)
    return inside, attention(x)


def in_two_blocks(x: Tensor) -> Any:
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION]):
        with sdpa_kernel(SDPBackend.MATH):
            inner = attention(x)
        outer = read_all()
    return inner, outer, read_all()


def in_a_flags_block(x: Tensor) -> Any:
    with cudnn.flags(enabled=False, allow_tf32=False):
        inside = convolution(x)
    return inside, convolution(x)


def in_a_block_that_raises(x: Tensor) -> Any:
    try:
        with sdpa_kernel([SDPBackend.MATH]):
            x @ torch.ones(3, 3, device=x.device)
    except RuntimeError:
        pass
    return attention(x)


@pytest.mark.parametrize(
    "fn", [in_a_kernel_block, in_two_blocks, in_a_flags_block, in_a_block_that_raises]
)
def test_a_block(fn: Callable[..., Any], device: str) -> None:
    def make() -> World:
        return {"fn": fn, "args": [x_of(device)]}

    flip_flash = flip_by(backend.flash_sdp_enabled, backend.enable_flash_sdp)
    same(make, flip_flash, flip_flash, replays=None)


@pytest.mark.parametrize("fn", [attention, in_two_blocks])
def test_a_block_around_the_call(fn: Callable[..., Any], device: str) -> None:
    def make() -> World:
        return {"fn": fn, "args": [x_of(device)]}

    differs(make, lambda world: sdpa_kernel(SDPBackend.MATH))
    same(
        make,
        lambda world: sdpa_kernel(SDPBackend.MATH),
        lambda world: old_block(),
        lambda world: None,
        replays=None,
    )


@contextmanager
def old_block() -> Iterator[None]:
    """What `torch.backends.cuda.sdp_kernel` does, without its warning."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with backend.sdp_kernel(enable_flash=False, enable_mem_efficient=False):
            yield


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        found, _ = self.attention(x, x, x, need_weights=False)
        return found


def test_a_module(device: str) -> None:
    def make() -> World:
        torch.manual_seed(0)
        model = Attention().to(device).eval()
        return {"fn": lambda x: model(x), "args": [x_of(device)[None]], "model": model}

    same(make, lambda world: world["model"].train(), lambda world: sdpa_kernel(SDPBackend.MATH))
