"""Operations that raise for what is in their inputs, behind writes: which graphs stay whole, and what runs how often."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn
from torch.nn import functional as F

I = torch.tensor
EYE = torch.eye(2)

# What raises, arguments with which it doesn't, and with which it does.
RAISES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "index": (lambda x, i: x[i], (EYE, I([0, 1])), (EYE, I([0, 5]))),
    "index in a slice": (lambda x, i: x[:, i] + 1, (EYE, I([0, 1])), (EYE, I([0, 5]))),
    "gather": (lambda x, i: x.gather(0, i), (EYE, I([[0, 1]])), (EYE, I([[0, 5]]))),
    "take": (torch.take, (EYE, I([0, 1])), (EYE, I([0, 9]))),
    "index_select": (lambda x, i: x.index_select(0, i), (EYE, I([0, 1])), (EYE, I([0, 5]))),
    "scatter": (lambda x, i: x.scatter(0, i, 1.0), (EYE, I([[0, 1]])), (EYE, I([[0, 5]]))),
    "index_add": (lambda x, i: x.index_add(0, i, x), (EYE, I([0, 1])), (EYE, I([0, 5]))),
    "put": (lambda x, i: x.put(i, x[0]), (EYE, I([0, 1])), (EYE, I([0, 9]))),
    "embedding": (F.embedding, (I([0, 1]), EYE), (I([0, 5]), EYE)),
    "cross_entropy": (F.cross_entropy, (EYE, I([0, 1])), (EYE, I([0, 5]))),
    "nll_loss": (F.nll_loss, (EYE, I([0, 1])), (EYE, I([0, 5]))),
    "multi_margin_loss": (F.multi_margin_loss, (EYE, I([0, 1])), (EYE, I([0, 5]))),
    "binary_cross_entropy": (F.binary_cross_entropy, (EYE, EYE), (EYE * 2, EYE)),
    "cholesky": (torch.linalg.cholesky, (EYE,), (-EYE,)),
    "inv": (torch.linalg.inv, (EYE,), (EYE * 0,)),
    "solve": (torch.linalg.solve, (EYE, EYE), (EYE * 0, EYE)),
    "norm": (lambda x: torch.linalg.norm(x, "nuc"), (EYE,), (EYE * torch.nan,)),
    "floor_divide": (lambda x, y: x // y, (I([4]), I([2])), (I([4]), I([0]))),
    "remainder": (lambda x, y: x % y, (I([4]), I([2])), (I([4]), I([0]))),
    "div": (
        lambda x, y: torch.div(x, y, rounding_mode="floor"),
        (I([4]), I([2])),
        (I([4]), I([0])),
    ),
    "multinomial": (lambda p: p.multinomial(1), (EYE[0],), (-EYE[0],)),
    "bernoulli": (torch.bernoulli, (EYE,), (EYE * 2,)),
    "normal": (lambda std: torch.normal(0.0, std), (EYE,), (-EYE,)),
    "poisson": (torch.poisson, (EYE,), (-EYE,)),
    "max_unpool1d": (
        lambda x, i: F.max_unpool1d(x, i, 2),
        (EYE, I([[0, 2], [1, 2]])),
        (EYE, I([[0, 9], [1, 2]])),
    ),
    "masked_scatter": (lambda x, m: x.masked_scatter(m, x[0]), (EYE, EYE > 0), (EYE, EYE >= 0)),
    "mask set": (lambda x, m: x.clone().__setitem__(m, x[0]), (EYE, EYE > 0), (EYE, EYE >= 0)),
    "quantised": (
        lambda x, z: torch.fake_quantize_per_channel_affine(x, torch.ones(2), z, 0, 0, 9),
        (EYE, I([0, 1], dtype=torch.int32)),
        (EYE, I([0, 99], dtype=torch.int32)),
    ),
    "istft": (
        lambda w: torch.istft(torch.ones(5, 4) + 0j, 8, window=w),
        (torch.ones(8),),
        (torch.zeros(8),),
    ),
}


def _outcome(fn: Callable[..., Any], count: Tensor, args: tuple[Any, ...]) -> Any:
    torch.manual_seed(0)
    try:
        result: Any = [value.tolist() for value in _tensors(fn(count, *args))]
    except Exception as error:
        frames = [(frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        result = type(error), error.args, getattr(error, "__notes__", None), frames[1:]
    return result, count.tolist(), torch.get_rng_state().sum()


def _tensors(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else [] if value is None else list(value)


@pytest.mark.parametrize("name", RAISES)
def test_behind_a_write(name: str) -> None:
    """Replayed, or cut before it: the write is there once, the frames and the error are plain Python's."""
    operation, good, bad = RAISES[name]

    def fn(count: Tensor, *args: Any) -> Any:
        count.add_(1)
        return operation(*args)

    def handled(count: Tensor, *args: Any) -> Any:
        count.add_(1)
        try:
            return operation(*args)
        except (RuntimeError, IndexError, ValueError):
            return count * 2

    for function in (fn, handled):
        compiled, plain_count, count = api.compile(function), torch.zeros(()), torch.zeros(())
        for args in (good, good, bad, bad, good):
            assert _outcome(compiled, count, args) == _outcome(function, plain_count, args)
    with pytest.raises((RuntimeError, IndexError, ValueError)):
        operation(*bad)


PARTIAL: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "index_add_": lambda y, i: y.index_add_(0, i, torch.ones(3)),
    "scatter_add_": lambda y, i: y.scatter_add_(0, i, torch.ones(3)),
    "index_put_": lambda y, i: y.index_put_((i,), torch.ones(3), accumulate=True),
    "index_reduce_": lambda y, i: y.index_reduce_(0, i, torch.ones(3), "prod"),
    "index_copy_": lambda y, i: y.index_copy_(0, i, torch.ones(3)),
    "setitem": lambda y, i: y.__setitem__(i, 4.0),
    "put_": lambda y, i: y.put_(i, torch.ones(3), accumulate=True),
    "integer division": lambda y, i: i.floor_divide_(i - 9),
}


@pytest.mark.parametrize("name", PARTIAL)
def test_a_write_that_raises_itself(name: str) -> None:
    """What it has written before it raised is written once."""

    def fn(y: Tensor, i: Tensor) -> Any:
        try:
            PARTIAL[name](y, i)
        except (IndexError, RuntimeError):
            return y + 1
        return y * 2

    compiled = api.compile(fn)
    for last in (2, 1, 9, 9, 0):
        y, z, i, j = torch.full((3,), 2.0), torch.full((3,), 2.0), I([0, 1, last]), I([0, 1, last])
        assert torch.equal(compiled(y, i), fn(z, j))
        assert torch.equal(y, z) and torch.equal(i, j)


def test_an_index_that_is_made_and_then_written() -> None:
    """What the trace makes itself is known, until it is written."""

    def fn(count: Tensor, x: Tensor) -> Tensor:
        count.add_(1)
        index = torch.zeros(2)
        index.add_(x)
        return EYE[index.long()].sum()

    compiled, count, plain_count = api.compile(fn), torch.zeros(()), torch.zeros(())
    for number in (0.0, 1.0, 9.0, 0.0):
        args = (torch.full((2,), number),)
        assert _outcome(compiled, count, args) == _outcome(fn, plain_count, args)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.linear = nn.Embedding(4, 2), nn.BatchNorm1d(2), nn.Linear(2, 4)

    def forward(self, i: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.linear(self.norm(self.table(i)).relu()), y)


def test_running_statistics_stay_in_one_graph() -> None:
    """A loss may raise behind them: then a replay leaves by the loss's exit, and the graph is whole."""

    def run(wrap: Callable[[nn.Module], Any]) -> list[Any]:
        torch.manual_seed(0)
        net = Net()
        compiled, seen = wrap(net), []
        for target in (1, 2, 9, 3):
            try:
                seen.append(compiled(I([0, 1]), I([0, target])).item())
            except IndexError as error:
                frames = traceback.extract_tb(error.__traceback__)
                seen.append((str(error), [frame.name for frame in frames]))
            seen.append([buffer.tolist() for buffer in net.buffers()])
        if not api.PLAIN and compiled is not net:
            assert (api.breaks(compiled), api.hits(compiled)) == (0, 3)
        return seen

    assert run(api.compile) == run(lambda net: net)


def test_a_cache_is_not_copied() -> None:
    """One index that is in range for the first is for all: nothing is saved, and nothing is cut."""
    caches = [torch.zeros(1200, 1000) for _ in range(4)]

    def fn(i: Tensor, x: Tensor) -> Tensor:
        for cache in caches:
            cache.index_copy_(0, i, x)
            x = x + cache[:4].sum()
        return x

    compiled = api.compile(fn)
    for row in (0, 1, 2):
        found = compiled(I([row]), torch.ones(1, 1000))
        for cache in caches:
            cache[row] = 0
        assert torch.equal(found, fn(I([row]), torch.ones(1, 1000)))
    assert api.PLAIN or (api.breaks(compiled), api.hits(compiled)) == (0, 2)


@pytest.mark.parametrize("raises", [False, True])
def test_large_writes_are_not_copied(raises: bool) -> None:
    """What may raise behind them has an exit."""
    state, twin = torch.zeros(1200, 1000), torch.zeros(1200, 1000)
    table = torch.ones(4)

    def fn(state: Tensor, i: Tensor) -> Tensor:
        state.add_(1)
        try:
            return table[i].sum()
        except IndexError:
            return state[0, 0] * 2

    compiled = api.compile(fn)
    for number in (0, 1, 9, 2) if raises else (0, 1, 2, 3):
        assert torch.equal(compiled(state, I([number])), fn(twin, I([number])))
        assert torch.equal(state, twin)
    assert api.PLAIN or api.breaks(compiled) == 0


calls: list[str] = []


def _checked(x: Tensor) -> Tensor:
    calls.append("called")
    if x.sum() < 0:
        raise ValueError("negative")
    return x * 2


if not api.PLAIN:
    import stator

    _checked = stator.allow_in_graph(_checked)


@torch.library.custom_op("stator_test_raising::checked", mutates_args=())
def checked_operator(x: Tensor) -> Tensor:
    calls.append("called")
    if x.sum() < 0:
        raise ValueError("negative")
    return x * 2


@checked_operator.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        calls.append("called")
        if x.sum() < 0:
            raise ValueError("negative")
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


CALLED: dict[str, Callable[[Tensor], Tensor]] = {
    "allowed in graphs": lambda x: _checked(x),
    "custom operator": lambda x: checked_operator(x),
    "overload": lambda x: torch.ops.stator_test_raising.checked.default(x),
    "Function": lambda x: Squared.apply(x),  # type: ignore[no-untyped-call]
}


@pytest.mark.parametrize("handled", [False, True])
@pytest.mark.parametrize("name", CALLED)
def test_user_code_that_raises_is_called_once(name: str, handled: bool) -> None:
    operation = CALLED[name]

    def plain(x: Tensor) -> Tensor:
        return operation(x + 1) + 1

    def handles(x: Tensor) -> Tensor:
        try:
            return operation(x + 1) + 1
        except ValueError:
            return x * 5

    fn = handles if handled else plain
    compiled = api.compile(fn)
    for x in (EYE, EYE, -3 * EYE, -3 * EYE, EYE):
        seen = []
        for function in (fn, compiled):
            calls.clear()
            try:
                result: Any = function(x).tolist()
            except ValueError as error:
                result = str(error)
            seen.append((result, list(calls)))
        assert seen[0] == seen[1]
