"""Containers that are more than their elements (`torch.Size`, named tuples, ordered dictionaries, subclasses of lists) stay
what they are where a replay hands them to code or makes a text of them."""

from __future__ import annotations

import json
import pickle
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import stator
from stator import stats

from .results import copied, same

Pair = namedtuple("Pair", "scale shift")


class Weighted(NamedTuple):
    tensor: Tensor
    count: int

    def product(self) -> Tensor:
        return self.tensor * self.count


OUTSIDE = Pair(2, 3)


@pytest.fixture(autouse=True)
def replayed() -> Iterator[None]:
    with stator.config.patch(skip_unprofitable=False):
        yield


class ByShape(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: torch.Size) -> Tensor:
        ctx.shape = shape
        return x.reshape(shape) * shape.numel()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad.reshape(-1) * len(repr(ctx.shape)), None


class ByPair(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, pair: Pair) -> Tensor:
        ctx.pair = pair
        return x * pair.scale + pair.shift

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad * ctx.pair.scale, None


class ByWeighted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, given: list[Weighted]) -> Tensor:
        return x + given[0].product()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None


@torch.compiler.allow_in_graph
def marked(x: Tensor, shape: torch.Size, pair: Any = OUTSIDE) -> Tensor:
    return x.reshape(shape) * shape.numel() + pair.shift


def shape_for_a_function(x: Tensor) -> Any:
    y = ByShape.apply(x.reshape(-1), x.shape)
    return y, torch.autograd.grad(y.sum(), x)


def pair_for_a_function(x: Tensor) -> Any:
    y = ByPair.apply(x, Pair(x.shape[0], 1.5))
    return y, torch.autograd.grad(y.sum(), x)


def outside_pair(x: Tensor) -> Any:
    return ByPair.apply(x, OUTSIDE)


def tensors_within(x: Tensor) -> Any:
    return ByWeighted.apply(x, [Weighted(x * 2, x.shape[0])])


def for_marked(x: Tensor) -> Any:
    return marked(x.reshape(-1), x.shape), marked(x, (x + 1).size(), Pair(1, x.shape[0]))


class Row(list):  # type: ignore[type-arg]
    def total(self) -> Any:
        return sum(self)


OF_CLASSES = Row([2, 3])


@torch.compiler.allow_in_graph
def asking(x: Tensor, given: Any, more: Any = None) -> Tensor:
    kinds = [type(part).__name__ for part in given]
    return x * len("".join(kinds)) + (more["k"].total() if more else 0)


def kinds_for_marked(x: Tensor) -> Any:
    n = x.shape[0]
    given = [
        OrderedDict(a=n),
        deque([n, 1]),
        defaultdict(int, a=n),
        Counter([n, n]),
        Row([n, 2]),
        (Pair(n, 1), x.shape),
    ]
    first = asking(x, given, more={"k": Row([n, 4])})
    return first, asking(x, [OF_CLASSES, x.shape], {"k": OF_CLASSES}), asking(x, (x.size(),))


def for_a_checkpoint(x: Tensor) -> Any:
    def part(t: Tensor, shape: torch.Size, pair: Pair) -> Tensor:
        return t.sin() * shape.numel() + pair.shift

    y = checkpoint(part, x, x.shape, Pair(x.shape[0], 2), use_reentrant=False)
    return y, torch.autograd.grad(y.sum(), x)


def for_a_hook(x: Tensor) -> Any:
    y = x * 2
    shape, pair = y.shape, Pair(y.shape[0], 0.5)
    y.register_hook(lambda grad: grad * shape.numel() + pair.shift)
    return torch.autograd.grad((y * y).sum(), x)


def texts(x: Tensor) -> Any:
    total = x.sum().item()
    return (
        f"{x.shape} {x.size()!r:>30} {x.shape[:1]} {tuple(x.shape)}",
        "{} of {:.2f}".format(x.shape, total),
        "%s, %r" % (x.shape, x.shape),
        str([x.shape, {"shape": x.shape, "total": total}]),
        repr({x.ndim: (x.shape, [total])}),
        x + 1,
    )


def dumps(x: Tensor) -> Any:
    total = x.sum().item()
    data = pickle.dumps({"shape": x.shape, "total": total, "row": [total, 1]})
    return pickle.loads(data), json.dumps({"shape": x.shape, "total": total}), x + 1


PROGRAMS = [
    shape_for_a_function,
    pair_for_a_function,
    outside_pair,
    tensors_within,
    for_marked,
    kinds_for_marked,
    for_a_checkpoint,
    for_a_hook,
    texts,
    dumps,
]


def calls(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made = []
    for number, size in enumerate((3, 4, 5, 6, 7, 3, 9, 5)):
        monkeypatch.setitem(globals(), "OUTSIDE", Pair(7, 1) if number == 5 else Pair(2, 3))
        x = (torch.arange(2.0 * size).reshape(size, 2) - number).requires_grad_()
        made.append(copied(function(x)))
    return made


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_they_are_what_they_are_in_plain_python(
    program: Callable[..., Any], dynamic: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = calls(program, monkeypatch)
    compiled = stator.compile(program, dynamic=dynamic)
    assert all(map(same, calls(compiled, monkeypatch), expected))
    assert all(map(same, calls(compiled, monkeypatch), expected))
    assert stats(compiled).hits > 0


def test_texts_of_shapes_are_one_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = stator.compile(texts, dynamic=True)
    calls(compiled, monkeypatch)
    assert stats(compiled).traces == 1
    assert not stats(compiled).breaks
