"""What an operator gives and another one takes has no Python object in a replay, unless somebody asks for it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import stator


def same(left: Any, right: Any) -> bool:
    """Equal to the bit, with history."""
    if isinstance(left, tuple | list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, Tensor):
        noted = [None if one.grad_fn is None else one.grad_fn.name() for one in (left, right)]
        return (
            type(left) is type(right)
            and left.dtype is right.dtype
            and torch.equal(left, right)
            and noted[0] == noted[1]
        )
    return bool(left == right)


def one_after_the_other(x: Tensor) -> Tensor:
    y = x * 2.0
    z = y + 1
    return (z - y) / 3


def the_same_tensor_twice(x: Tensor) -> tuple[Tensor, Tensor, bool]:
    y = x + 1
    z = y.mul_(2)
    w = z.add_(1)
    return y, w, y is w


def without_change(x: Tensor) -> tuple[Tensor, bool]:
    y = x * 2
    return y, y.contiguous() is y


def viewed(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    row = y[0]
    row.add_(1)
    return y, row


def in_a_list(x: Tensor) -> Tensor:
    y, z = x * 2, x + 1
    return torch.cat([y, z, y.mul(z)])


def in_an_attribute(x: Tensor) -> Tensor:
    y = (x * 2).sin()
    y.note = "kept"  # type: ignore[attr-defined]
    z = y + 1
    assert y.note == "kept"  # type: ignore[attr-defined]
    return z * y


def read(x: Tensor) -> tuple[float, Tensor]:
    y = (x * 2).sum()
    return y.item(), y + 1


def decided(x: Tensor) -> Tensor:
    y = x * 2 - 1
    if y.sum() > 0:
        return y * 3
    return y / 2


def raised(x: Tensor, index: int = 5) -> Tensor:
    y = (x * 2).add_(1)
    try:
        return y.index_select(0, (x[0].long() * index).clamp(0)) + y.index_fill_(0, x[1].long(), 3)
    except IndexError as error:
        return y - len(str(error))


def hooked(x: Tensor) -> tuple[Tensor, list[Tensor]]:
    leaf, seen = x.detach().requires_grad_(), []
    y = leaf * 2
    y.register_hook(lambda gradient: seen.append(gradient * 1))
    z = (y * y + 1).sum()
    (gradient,) = torch.autograd.grad(z, leaf)
    return gradient, seen


def trained(x: Tensor) -> Tensor:
    leaf = x.detach().requires_grad_()
    loss = ((leaf * 0.5 - 1).tanh() / 3).square().mean()
    loss.backward()
    assert leaf.grad is not None
    return leaf.grad


def twice_differentiated(x: Tensor) -> Tensor:
    leaf = x.detach().requires_grad_()
    (first,) = torch.autograd.grad((leaf * 3 * leaf / 7).sum(), leaf, create_graph=True)
    (second,) = torch.autograd.grad((first * leaf).sum(), leaf)
    return second


def transformed(x: Tensor) -> Tensor:
    return torch.func.vmap(torch.func.grad(lambda row: (row * 2 + 1).sin().sum() / 3))(x)


def transformed_beside_others(x: Tensor) -> Tensor:
    """The numbers are met first where a transform is on, beside a tensor that isn't transformed."""
    with torch.no_grad():
        factor, other = x.sum().item(), x[0] * 1
    make = torch.func.grad(lambda row: (row * (other * 2.25 + 0.75) / (other - factor)).sum())
    return torch.func.vmap(make)(x) + (other * 2.25) * (other / factor)


def without_gradients(x: Tensor) -> Tensor:
    with torch.inference_mode():
        y = x * 2 + 1
        return (y / 3).neg()


@pytest.mark.parametrize(
    "fn",
    [
        *(one_after_the_other, the_same_tensor_twice, without_change, viewed, in_a_list),
        *(in_an_attribute, read, decided, raised, hooked, trained, twice_differentiated),
        *(transformed, transformed_beside_others, without_gradients),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_values_between_operators(fn: Callable[[Tensor], Any], dtype: torch.dtype) -> None:
    compiled = api.compile(fn)
    with stator.config.patch(skip_unprofitable=False):
        for factor in (1, 1, -1, 2, 1):
            x = (torch.arange(6.0).view(2, 3)[:, 1:] * factor).to(dtype)
            for requires_grad in (False, True):
                given = [x.clone().requires_grad_(requires_grad) for _ in range(2)]
                assert same(compiled(given[1]), fn(given[0])), (factor, requires_grad)
                assert same(given[0], given[1])


def with_numbers(x: Tensor) -> tuple[Tensor, ...]:
    """Numbers that are others in each call."""
    with torch.no_grad():
        factor, count = x.sum().item(), int(x.abs().max())
        half = factor * 0.5 - 1e-3
        z = x.double().clone().mul_(half).div_(count + 3)
        y = ((x * factor + half) / (count + 2) - count).add(factor, alpha=2)
    w = 2 * x - (1 - x) + (0.5 + x * half) - half * x
    return y, z, w, (x.sum() * factor).view(1) / half, x.mul(factor), half - x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_numbers_that_are_others_each_time(dtype: torch.dtype) -> None:
    compiled = api.compile(with_numbers)
    with stator.config.patch(skip_unprofitable=False):
        for factor in (1, 1, -2, 3, 1.5, 0.1, 1e10, 7):
            x = ((torch.arange(4.0) + 1) * factor).to(dtype)
            assert same(compiled(x), with_numbers(x)), factor
            if dtype.is_floating_point:
                given = [x.clone().requires_grad_() for _ in range(2)]
                assert same(compiled(given[1]), with_numbers(given[0])), factor


def test_numbers_that_are_kept_for_gradients() -> None:
    """What autograd keeps of a number is that number, whatever others come later."""

    def fn(x: Tensor, rates: Tensor) -> Tensor:
        for rate in rates.tolist():
            x = (x * rate / (rate + 1)).sin()
        return x

    compiled, found = api.compile(fn), []
    with stator.config.patch(skip_unprofitable=False):
        for way in (fn, compiled):
            leaf = torch.ones(3, requires_grad=True)
            made = [way(leaf, torch.tensor([0.5, 2.0, 3.0]) * n) for n in range(1, 9)]
            gradients = [torch.autograd.grad(one.sum(), leaf)[0] for one in made]
            found.append((made, gradients))
    assert same(found[0], found[1])


def test_numbers_and_threads() -> None:
    def fn(x: Tensor, start: float) -> Tensor:
        for step in range(20):
            x = x * (start + step) / (start + 1)
        return x

    compiled, failed = stator.compile(fn, dynamic=True), []

    def run(number: int) -> None:
        for turn in range(60):
            x, start = torch.ones(4), 1.0 + number + 0.25 * turn
            if not torch.equal(compiled(x, start), fn(x, start)):
                failed.append((number, turn))

    with stator.config.patch(skip_unprofitable=False):
        threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


class Named(Tensor):
    """A class of the program's, with an operator of its own."""

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = super().__torch_function__(function, types, args, kwargs or {})
        return made * 2 if function is Tensor.exp and type(made) is Tensor else made


class Substitute(TorchDispatchMode):
    """Gives something of a class of the program's."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        is_it = function is torch.ops.aten.sin.default
        return made.as_subclass(Named) if is_it else made


def test_what_a_mode_gives() -> None:
    def fn(x: Tensor) -> Tensor:
        return (x * 2).sin().exp().cos() + 1

    compiled, x = api.compile(fn), torch.ones(3)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            assert same(compiled(x), fn(x))
        with Substitute():
            assert same(compiled(x), fn(x))
        assert same(compiled(x), fn(x))


class Counting(TorchFunctionMode):
    """Counts what is called."""

    count = 0

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.count += 1
        return function(*args, **(kwargs or {}))


def test_a_mode_sees_all_calls() -> None:
    compiled, x = api.compile(one_after_the_other), torch.ones(3)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            compiled(x)
        with Counting() as plain:
            expected = one_after_the_other(x)
        with Counting() as replayed:
            found = compiled(x)
        assert same(found, expected) and plain.count == replayed.count


class Dtypes(TorchDispatchMode):
    """What tensors stand for numbers, and which keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.seen.append([one.dtype for one in args if isinstance(one, Tensor)])
        return function(*args, **(kwargs or {}))


def test_numbers_are_what_modes_know() -> None:
    compiled, x = api.compile(one_after_the_other), torch.ones(3)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            compiled(x)
        with Dtypes() as plain:
            one_after_the_other(x)
        with Dtypes() as replayed:
            compiled(x)
    assert plain.seen == replayed.seen


def test_numbers_are_saved_without_hooks() -> None:
    """PyTorch shows tensors that stand for numbers to no hook of the program's."""

    def fn(x: Tensor) -> Tensor:
        return (x * 2.5 / 3).sin()

    compiled, x = api.compile(fn), torch.ones(3, requires_grad=True)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            compiled(x)
        packed: list[list[Any]] = []
        for way in (fn, compiled):
            packed.append([])

            def pack(tensor: Tensor) -> Tensor:
                packed[-1].append((tensor.shape, tensor.dtype))
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                way(x).sum().backward()
    assert packed[0] == packed[1]


def test_nothing_is_left() -> None:
    """Neither objects nor memory: as many tensors live behind many replays as before."""

    def fn(x: Tensor) -> Tensor:
        y = x * 2
        for _ in range(5):
            y = y.add_(1) * y
        return y.sum()

    def tensors() -> int:
        gc.collect()
        return sum(type(one) is Tensor for one in gc.get_objects())

    compiled, x = api.compile(fn), torch.ones(1000, requires_grad=True)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            compiled(x)
        before, reference = tensors(), None
        for _ in range(50):
            reference = compiled(x)
        del reference
        assert tensors() == before
