"""Memory: what a device has none left for reaches the user as plain Python's error, and nothing is held on to.

On the CPU the allocator's error stands in, and tensors that are alive for the bytes that are taken.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn

import stator

from .compare import CALLS, World, same

HUGE = 2**50


def want_of_memory(device: str) -> type[RuntimeError]:
    return torch.OutOfMemoryError if device == "cuda" else RuntimeError


def grows(model: nn.Module, x: Tensor, size: int) -> Any:
    y = model(x)
    return y, y.new_empty(size).sum()[None].shape


def handles(model: nn.Module, x: Tensor, size: int) -> Any:
    y = model(x)
    try:
        z = y.sum() + torch.ones(size, device=x.device)
    except RuntimeError as error:
        return y * 2, type(error).__name__, issubclass(type(error), torch.OutOfMemoryError)
    return y, z.shape


def writes_before(model: nn.Module, x: Tensor, size: int) -> Any:
    x.add_(1)
    y = model(x)
    model.weight.data.mul_(0.5)
    return y, torch.ones(size, device=x.device)[:2]


def writes_and_handles(model: nn.Module, x: Tensor, size: int) -> Any:
    try:
        return writes_before(model, x, size)
    except RuntimeError:
        x.mul_(2)
        return model(x)


def draws_before(model: nn.Module, x: Tensor, size: int) -> Any:
    y = model(x) + torch.rand(2, device=x.device)
    return y, torch.ones(size, device=x.device)[:2]


PROGRAMS = [grows, handles, writes_before, writes_and_handles, draws_before]


@pytest.mark.parametrize("fn", PROGRAMS)
def test_no_memory(fn: Callable[..., Any], device: str) -> None:
    def make() -> World:
        torch.manual_seed(0)
        model = nn.Linear(4, 2).to(device)
        x = torch.arange(12.0).reshape(3, 4).to(device)
        return {"fn": fn, "args": [model, x, 8], "model": model}

    def huge(world: World) -> None:
        world["args"][2] = HUGE

    def small(world: World) -> None:
        world["args"][2] = 8

    same(make, huge, small, huge)


def test_no_memory_for_what_was_recorded(cuda: str) -> None:
    """The same sizes as recorded, and other memory left: a replay raises what plain Python raises."""

    def fn(x: Tensor) -> Any:
        y = x + 1
        x.mul_(2)
        return y, torch.cat([y] * 64).sum()

    def make() -> World:
        return {"fn": fn, "args": [torch.ones(1 << 20, device=cuda)], "rest": None}

    def fill(world: World) -> None:
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info()
        used = torch.cuda.memory_reserved()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, (used + (16 << 20)) / total))

    def let_go(world: World) -> None:
        torch.cuda.set_per_process_memory_fraction(1.0)

    try:
        same(make, fill, let_go)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()


@pytest.fixture(autouse=True)
def nothing_of_others() -> Iterator[None]:
    """Hide what earlier tests left from `taken`: their caches may grow and shrink meanwhile."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def taken(device: str) -> int:
    """Bytes of the device, or of the tensors that have been made in this test and are alive."""
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()
    tensors = [it for it in gc.get_objects() if issubclass(type(it), Tensor)]
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


def forgets(model: nn.Module, x: Tensor, size: int) -> Any:
    y = model(x)
    z = torch.cat([y] * 8) * 2
    print(end="")  # a break: `z` and `y` are alive in the frame behind it
    return (z.sum() + y.sum()).reshape(1)


@pytest.mark.parametrize("fn", [forgets, handles, draws_before, grows])
def test_nothing_is_held(fn: Callable[..., Any], device: str) -> None:
    model = nn.Linear(4, 2).to(device)
    compiled = api.compile(fn)
    x = torch.arange(12.0).reshape(3, 4).to(device)
    fn(model, x, 8)
    before = taken(device)
    for size in (8, 8, 8, HUGE, HUGE, 8, 8):
        try:
            compiled(model, x, size)
        except RuntimeError as error:
            assert type(error) is want_of_memory(device)
        assert taken(device) == before, f"with {size}"
    assert api.PLAIN or api.hits(compiled) > 0


def test_models_and_their_gradients_die(device: str) -> None:
    """An entry outlives neither the model it was recorded with nor its gradients."""
    compiled = api.compile(lambda model, x: model(x).sum())

    def use() -> None:
        model = nn.Linear(4, 2).to(device)
        for _ in range(CALLS):
            compiled(model, torch.ones(3, 4, device=device)).backward()

    use()
    before = taken(device)
    for _ in range(3):
        use()
    assert taken(device) == before


def test_the_most_that_is_taken(cuda: str) -> None:
    """A replay takes no more at once than plain Python does."""

    def fn(x: Tensor) -> Any:
        for _ in range(8):
            x = torch.cat([x, x])[: x.shape[0]] * 1.01
        return x.sum()

    x = torch.ones(1 << 18, device=cuda)
    compiled = api.compile(fn)

    def peak(call: Callable[[Tensor], Any]) -> int:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        call(x)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()

    plain = peak(fn)
    for _ in range(CALLS):
        assert peak(compiled) <= plain


ROWS = 4099
"""No other tensor has so many."""


def alive() -> int:
    tensors = [it for it in gc.get_objects() if issubclass(type(it), Tensor)]
    return sum(tensor.shape[:1] == (ROWS,) for tensor in tensors)


def test_locals_live_as_long(device: str) -> None:
    """What another stream may still read isn't freed sooner than plain Python frees it: a local is there at each
    break, and in the traces behind it, though nothing reads it any more."""
    seen: list[int] = []

    @torch.library.custom_op(f"stator_cuda_{device}::look", mutates_args=())
    def look(x: Tensor) -> Tensor:
        seen.append(alive())
        return x.new_zeros(())

    look.register_fake(lambda x: x.new_empty(()))

    def switch() -> None:
        seen.append(alive())

    api_switch = switch if api.PLAIN else stator.disable(switch)

    def fn(x: Tensor) -> Any:
        y = x * 2
        api_switch()
        z = y + 1
        api_switch()
        others = [x * factor for factor in (3, 4)]
        looked = look(others[0])
        api_switch()
        return z + others[1], looked

    x = torch.ones(ROWS, device=device)
    fn(x)
    expected, compiled = list(seen), api.compile(fn)
    for _ in range(CALLS + 1):
        seen.clear()
        compiled(x)
        # Within a replay what one operator gives to others has no object that could be counted.
        assert seen[:2] + seen[3:] == expected[:2] + expected[3:]
        assert seen[2] in (expected[2], expected[2] - 1)
    assert api.PLAIN or api.hits(compiled) > 0
