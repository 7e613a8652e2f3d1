"""Attributes of tensors that a function reads or writes, and parameters that it makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from differential.support.describe import describe_all
from torch import Tensor, nn

X = torch.ones(3)


def _world(make: Callable[[], tuple[Callable[..., Any], dict[str, Any]]], wrap: Any) -> list[Any]:
    """What three calls leave behind, one after each change of the world."""
    api.reset()
    torch.manual_seed(0)
    fn, world = make()
    changes = world.pop("changes", [])
    fn = wrap(fn)
    seen = []
    for change in [lambda: None, lambda: None, lambda: None, *changes, lambda: None]:
        change()
        seen.append(describe_all({"result": fn(torch.ones(3)), **world}))
        for tensor in world.values():
            if isinstance(tensor, Tensor):
                seen.append([str(vars(tensor)), str(tensor.grad), str(tensor.requires_grad)])
    return seen


def check(
    make: Callable[[], tuple[Callable[..., Any], dict[str, Any]]], traced: bool = True
) -> None:
    compiled: list[Any] = []

    def wrap(fn: Any) -> Any:
        compiled.append(api.compile(fn))
        return compiled[0]

    plain = _world(make, lambda fn: fn)
    assert _world(make, wrap) == plain
    if traced and not api.PLAIN:
        assert (api.native(compiled[0]), api.breaks(compiled[0])) == (0, 0)


def test_own_attribute() -> None:
    def make() -> Any:
        def fn(x: Tensor) -> Any:
            y = x + 1
            y.scale = 3
            y.me = y
            y.parts = [x, y]
            return y * y.scale, y, y.parts[1] is y, y.me is y

        return fn, {}

    check(make)
    compiled = api.compile(make()[0])
    for _ in range(3):
        _, y, _, _ = compiled(X)
        assert (y.scale, y.me is y, y.parts[1] is y) == (3, True, True)


def test_attribute_of_an_input() -> None:
    def make() -> Any:
        t = torch.ones(3)

        def fn(x: Tensor) -> Any:
            t.count = getattr(t, "count", 0) + 1
            return x * t.count

        def change() -> None:
            t.count = 7

        return fn, {"t": t, "changes": [change]}

    check(make)


def test_deleted_attribute() -> None:
    def make() -> Any:
        t = torch.ones(3)
        t.tag = 1

        def fn(x: Tensor) -> Any:
            t.tag = 2
            del t.tag
            return x * hasattr(t, "tag")

        return fn, {"t": t}

    check(make)


@pytest.mark.parametrize("how", ["assigned", "called"])
def test_requires_grad(how: str) -> None:
    def make() -> Any:
        w = nn.Parameter(torch.ones(3))

        def fn(x: Tensor) -> Any:
            y = x.detach() + 1
            if how == "assigned":
                y.requires_grad = True
                w.requires_grad = not w.requires_grad
            else:
                y.requires_grad_()
                w.requires_grad_(not w.requires_grad)
            return y * 2, y.requires_grad, x * w, w.is_leaf or None

        def change() -> None:
            w.requires_grad = True

        return fn, {"w": w, "changes": [change]}

    # Whether a parameter that requires a gradient is a leaf isn't guarded.
    check(make, traced=False)


def test_requires_grad_is_traced() -> None:
    def make() -> Any:
        w = nn.Parameter(torch.ones(3))

        def fn(x: Tensor) -> Any:
            y = (x.detach() + 1).requires_grad_()
            w.requires_grad = False
            return y * 2, y.is_leaf, y.grad_fn, (x * w).requires_grad

        def change() -> None:
            w.requires_grad = True

        return fn, {"w": w, "changes": [change]}

    check(make)


def test_data() -> None:
    def make() -> Any:
        w = nn.Parameter(torch.ones(3))

        def fn(x: Tensor) -> Any:
            y = x + 1
            y.data = x * 3
            w.data = w.data * 2
            return y * w

        def change() -> None:
            w.data = torch.zeros(3)

        return fn, {"w": w, "changes": [change]}

    check(make)


def test_gradient() -> None:
    def make() -> Any:
        w = nn.Parameter(torch.ones(3))
        v = nn.Parameter(torch.ones(3))
        w.grad = torch.ones(3)

        def fn(x: Tensor) -> Any:
            w.grad = None
            v.grad = x * 2
            del w.grad
            return x * w

        def change() -> None:
            w.grad = torch.ones(3)
            v.grad = None

        return fn, {"w": w, "v": v, "changes": [change]}

    check(make)


def test_leaf_and_grad_fn() -> None:
    def make() -> Any:
        def fn(x: Tensor) -> Any:
            y = x * 2
            return y, x.is_leaf, x.grad_fn, y.is_leaf, y.grad_fn is None

        return fn, {}

    check(make)
    compiled = api.compile(make()[0])
    for grad in (False, False, True, True, False):
        x = torch.ones(3, requires_grad=grad)
        assert compiled(x)[1:] == make()[0](x)[1:]
        y = x * 2
        assert compiled(y)[1] == y.is_leaf


def test_new_parameter() -> None:
    def make() -> Any:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.w = nn.Parameter(torch.ones(3))

            def forward(self, x: Tensor) -> Tensor:
                self.w = nn.Parameter(self.w.detach() * 2, requires_grad=False)
                return x * self.w

        model = Model()

        def fn(x: Tensor) -> Any:
            return model(x), model.w

        def change() -> None:
            model.w = nn.Parameter(torch.zeros(3))

        return fn, {"changes": [change]}

    check(make)


def test_module_made_inside() -> None:
    def make() -> Any:
        def fn(x: Tensor) -> Any:
            layer = nn.Linear(3, 2)
            return layer(x), layer.weight

        return fn, {}

    check(make)


@pytest.mark.parametrize("backend", ["fx", "aot_eager"])
def test_other_backends(backend: str) -> None:
    """They get no such nodes: the calls break there."""
    w = nn.Parameter(torch.ones(3))

    def fn(x: Tensor) -> Any:
        y = x + 1
        w.data = w.data * 2
        w.grad = x * 2
        w.requires_grad = False
        return y * w, nn.Parameter(y.detach()), (x * 2).detach_()

    compiled = api.compile(fn, backend=backend)
    for step in range(4):
        w.data = torch.ones(3) * step
        w.requires_grad = True
        expected = fn(X)
        w.data = torch.ones(3) * step
        w.requires_grad = True
        w.grad = None
        found = compiled(X)
        assert all(map(torch.equal, found, expected))
        assert torch.equal(w.grad, X * 2) and not w.requires_grad


def test_raising_behind_such_writes() -> None:
    w = nn.Parameter(torch.ones(2))

    def fn(x: Tensor) -> Any:
        w.requires_grad = False
        try:
            return torch.linalg.cholesky(x)
        except RuntimeError:
            return w * 3

    compiled = api.compile(fn)
    for x in (torch.eye(2), torch.eye(2), -torch.eye(2), torch.eye(2)):
        w.requires_grad = True
        expected = fn(x)
        w.requires_grad = True
        assert torch.equal(compiled(x), expected)
        assert not w.requires_grad
