"""Gradients of parameters and inputs: read, guarded, fetched by replays, set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn

import stator

Step = Callable[[], tuple[Any, ...]]
X = torch.arange(6.0).reshape(2, 3)


def play(make: Callable[[], Iterator[Any]], wrap: Callable[[Any], Any]) -> tuple[list[str], Any]:
    """What the calls of a program return and leave behind: it yields its function first, then the
    arguments of each call together with what is to be looked at afterwards."""
    torch.manual_seed(0)
    steps = make()
    fn = wrap(next(steps))
    seen = []
    for args, *watched in steps:
        seen.append(str(fn(*args)))
        for tensor in watched:
            seen.append(f"{tensor} {tensor.grad}")
    return seen, fn


def check(make: Callable[[], Iterator[Any]], breaks: int | None = 0, **options: Any) -> Any:
    """As in plain Python, with so many breaks and no native call."""
    expected, _ = play(make, lambda fn: fn)
    found, compiled = play(make, lambda fn: api.compile(fn, **options))
    assert found == expected
    if not api.PLAIN:
        assert api.native(compiled) == 0, api.reason(compiled)
        assert breaks is None or api.breaks(compiled) == breaks, api.reason(compiled)
        assert api.hits(compiled) >= 1  # type: ignore[operator]
    return compiled


def leaf(value: float = 1.0) -> Tensor:
    return torch.full((3,), float(value), requires_grad=True)


def test_clipping() -> None:
    def make() -> Iterator[Any]:
        params = [leaf(), leaf(2), leaf(3)]

        def fn(factor: float) -> Tensor:
            with torch.no_grad():
                for p in params:
                    p.grad.mul_(factor)
            return params[0].grad + 1

        yield fn
        for step in range(5):
            for p in params:
                p.grad = torch.full((3,), step + 1.0)
            yield (0.5,), *params
        # The same tensors again, as a snapshot knows them.
        for _ in range(4):
            yield (0.5,), *params

    check(make)


def test_none_or_tensor() -> None:
    def make() -> Iterator[Any]:
        p = leaf()

        def fn(x: Tensor) -> Tensor:
            return x + 1 if p.grad is None else x + p.grad

        yield fn
        for _ in range(3):
            yield (X,), p
        p.grad = torch.ones(3)
        for _ in range(3):
            yield (X,), p
        p.grad = torch.full((3,), 5.0)
        yield (X,), p
        p.grad = None
        yield (X,), p

    compiled = check(make)
    if not api.PLAIN:
        assert api.traces(compiled) == 2


def test_metadata() -> None:
    def make() -> Iterator[Any]:
        p = torch.ones(3, 1, requires_grad=True)

        def fn() -> tuple[Any, ...]:
            return p.grad.stride(), p.grad.dtype, p.grad.requires_grad, p.grad * 2

        yield fn
        for gradient in (torch.ones(3, 1), torch.zeros(3, 1), torch.ones(3, 4)[:, 1:2]):
            p.grad = gradient
            yield (), p
            yield (), p
        p.grad = torch.ones(3, 1, requires_grad=True)
        yield (), p

    check(make)


def test_of_an_argument() -> None:
    def make() -> Iterator[Any]:
        def fn(x: Tensor, k: int) -> Tensor:
            return x.grad * k

        yield fn
        for step in range(4):
            x = leaf()
            (x * step).sum().backward()
            yield (x, 2), x
        x = leaf()
        x.grad = torch.ones(3)
        yield (x, 2), x
        yield (x, 2), x

    check(make)


def test_a_tensor_that_is_no_leaf() -> None:
    """Its gradient gives a warning."""

    def fn(x: Tensor) -> Tensor:
        return x * 2 if x.grad is None else x

    compiled = api.compile(fn)
    for _ in range(3):
        assert torch.equal(compiled(leaf()), leaf() * 2)
    with pytest.warns(UserWarning, match="leaf"):
        compiled(leaf() * 1)


def test_two_that_share_one() -> None:
    def make() -> Iterator[Any]:
        p, q = leaf(), leaf()

        def fn() -> Tensor:
            p.grad.add_(1)
            q.grad.mul_(3)
            return p.grad + q.grad

        yield fn
        for _ in range(3):
            p.grad, q.grad = torch.ones(3), torch.ones(3)
            yield (), p, q
        for _ in range(3):
            p.grad = q.grad = torch.ones(3)
            yield (), p, q
        p.grad, q.grad = torch.ones(3), torch.ones(3)
        yield (), p, q

    check(make)


def test_the_gradient_is_an_argument_too() -> None:
    def make() -> Iterator[Any]:
        p = leaf()

        def fn(x: Tensor) -> Tensor:
            x.add_(1)
            return p.grad * 2

        yield fn
        for _ in range(3):
            p.grad = torch.ones(3)
            yield (torch.ones(3),), p
        for _ in range(3):
            p.grad = torch.ones(3)
            yield (p.grad,), p

    check(make)


def test_of_two_arguments_that_may_be_one() -> None:
    def make() -> Iterator[Any]:
        def fn(x: Tensor, y: Tensor) -> Tensor:
            x.grad = torch.ones(3)
            return y * 2 if y.grad is None else y + y.grad

        yield fn
        for _ in range(3):
            yield leaf(), leaf()
        x = leaf()
        yield (x, x), x
        x = leaf()
        yield (x, x), x

    def paired() -> Iterator[Any]:
        steps = make()
        yield next(steps)
        for step in steps:
            yield step if isinstance(step[0], tuple) else (step, *step)

    check(paired)


def test_set_and_read_again() -> None:
    def make() -> Iterator[Any]:
        p, q = leaf(), leaf(2)

        def fn(x: Tensor) -> Any:
            before = p.grad
            p.grad = x * 2
            middle = p.grad
            p.grad = None
            return before, middle, p.grad is None, q.grad

        yield fn
        for _ in range(3):
            p.grad, q.grad = torch.ones(3), torch.full((3,), 7.0)
            yield (torch.ones(3),), p, q
        yield (torch.ones(3),), p, q

    check(make)


def test_training_by_hand() -> None:
    def make() -> Iterator[Any]:
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

        def fn(x: Tensor) -> Tensor:
            loss = model(x).pow(2).sum()
            loss.backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
                    p.grad = None
            return loss.detach()

        yield fn
        for step in range(5):
            yield (X + step,), *model.parameters()

    check(make, breaks=None)


@pytest.mark.parametrize("to_none", [True, False])
def test_zero_grad(to_none: bool) -> None:
    def make() -> Iterator[Any]:
        model = nn.Linear(3, 2)

        def fn() -> Tensor:
            model.zero_grad(set_to_none=to_none)
            return model.weight * 2

        yield fn
        for _ in range(4):
            model(X).sum().backward()
            yield (), *model.parameters()
        yield (), *model.parameters()

    check(make, breaks=None)


@pytest.mark.parametrize("foreach", [False, None])
def test_clip_grad_norm(foreach: bool | None) -> None:
    def make() -> Iterator[Any]:
        model = nn.Linear(3, 2)

        def fn() -> Tensor:
            return nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=foreach)

        yield fn
        for _ in range(4):
            model.zero_grad()
            model(X).pow(2).sum().backward()
            yield (), *model.parameters()

    check(make, breaks=None)


@pytest.mark.parametrize(
    "options", [{}, {"momentum": 0.9}, {"weight_decay": 0.1, "foreach": False}]
)
def test_optimizer(options: dict[str, Any]) -> None:
    def make() -> Iterator[Any]:
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **options)

        def fn(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = model(x).pow(2).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        yield fn
        for step in range(6):
            yield (X / (step + 1),), *model.parameters()

    check(make, breaks=None)


def test_behind_a_function_that_is_one_node() -> None:
    def make() -> Iterator[Any]:
        p = leaf()

        def train(x: Tensor) -> Tensor:
            (p * x).sum().backward()
            return x * 2

        stator.allow_in_graph(train)

        def fn(x: Tensor) -> Tensor:
            before = 0 if p.grad is None else p.grad.clone()
            y = train(x)
            return y + p.grad + before

        yield fn
        for step in range(5):
            yield (torch.full((3,), float(step)),), p

    check(make, breaks=None)


@pytest.mark.parametrize("backend", ["fx", "aot_eager"])
def test_other_backends(backend: str) -> None:
    def make() -> Iterator[Any]:
        p = leaf()

        def fn(x: Tensor) -> Tensor:
            return x if p.grad is None else x + p.grad * 2

        yield fn
        for step in range(5):
            p.grad = None if step == 0 else torch.full((3,), float(step))
            yield (X,), p

    check(make, backend=backend)


def test_guards_are_printed() -> None:
    p = leaf()
    p.grad = torch.ones(3)

    def fn(x: Tensor) -> Tensor:
        return x + p.grad

    compiled = api.compile(fn)
    compiled(X)
    if not api.PLAIN:
        assert any(".grad" in line for entry in compiled.guards() for line in entry)
