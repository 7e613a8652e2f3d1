"""Gradients through captured runs: to the bit, whatever is asked of them, and when."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator
from stator import stats

from .stand_in import StandIn
from .test_captures import CALLS, compiled, fresh, kept

Wrap = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def _nothing_kept() -> Any:
    yield
    kept.clear()


def same(train: Callable[[Wrap], list[Any]], captured: bool = True, is_exact: bool = True) -> Any:
    """Two runs of a program, plain and compiled; what each gives."""
    ours: list[Any] = []

    def wrap(fn: Any) -> Any:
        ours.append(compiled(fn))
        return ours[-1]

    def run(wrap: Wrap) -> list[Any]:
        torch.manual_seed(0)
        return train(wrap)

    plain, mine = run(lambda fn: fn), run(wrap)
    for at, (own, other) in enumerate(zip(mine, plain, strict=True)):
        if not isinstance(own, Tensor) or not isinstance(other, Tensor):
            assert own == other, at
            continue
        if is_exact:
            assert torch.equal(own, other), at
        torch.testing.assert_close(own, other)
        assert own.stride() == other.stride() and own.requires_grad == other.requires_grad, at
    if captured:
        assert "compiled" in stats(ours[0]).tiers, stats(ours[0]).why
    return ours[0]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2), nn.Sigmoid())


def grads(module: nn.Module) -> list[Any]:
    return [None if it.grad is None else it.grad.clone() for it in module.parameters()]


def test_a_model(device: StandIn) -> None:
    def train(wrap: Wrap) -> list[Any]:
        net = model()
        fn, optimizer, found = wrap(net), torch.optim.SGD(net.parameters(), 0.1), []
        for _ in range(CALLS):
            x = fresh(5, 3).requires_grad_()
            loss = fn(x).square().mean()
            loss.backward()
            found += [loss.detach(), x.grad, *grads(net)]
            optimizer.step()
            optimizer.zero_grad()
        return found

    same(train)
    # Recorded, watched; then results and gradients in each call.
    assert device.captures == 2 and device.launches == 2 * (CALLS - 2)


def test_a_whole_step(device: StandIn) -> None:
    def train(wrap: Wrap) -> list[Any]:
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

        def step(x: Tensor) -> Tensor:
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            return loss.detach()

        fn = wrap(step)
        losses = [fn(fresh(5, 3)) for _ in range(12)]
        return [*losses, *(it.detach() for it in net.parameters())]

    same(train)
    assert device.captures >= 3


def test_gradients_are_gathered(device: StandIn) -> None:
    """Two calls, and then their gradients: the second one is replayed, as the memory holds the first one's."""

    def train(wrap: Wrap) -> list[Any]:
        net = model()
        fn, found = wrap(net), []
        for at in range(12):
            losses = [fn(fresh(5, 3)).sum() for _ in range(1 + at % 3)]
            for loss in losses[:: -1 if at % 2 else 1]:
                loss.backward()
            found += [*losses, *grads(net)]
        return found

    same(train, captured=False)
    assert device.captures == 2


def test_nobody_asks_for_gradients(device: StandIn) -> None:
    def train(wrap: Wrap) -> list[Any]:
        net = model()
        fn = wrap(net)
        return [fn(fresh(5, 3)).detach() for _ in range(CALLS)]

    same(train)
    assert device.launches == CALLS - 2


def test_results_are_kept(device: StandIn) -> None:
    net = model()
    fn = compiled(net)
    found = [fn(fresh(5, 3)) for _ in range(CALLS)]
    assert stats(fn).why == ["gradients of an earlier call of it may still be asked for"]
    assert device.launches == 1
    torch.stack(found).sum().backward()
    for _ in range(3):
        x = fresh(5, 3)
        assert torch.equal(fn(x), net(x))
    assert device.launches == 1 + 1 + 3


def test_a_second_time(device: StandIn) -> None:
    def train(wrap: Wrap) -> list[Any]:
        net = model()
        fn, found = wrap(net), []
        for _ in range(CALLS):
            loss = fn(fresh(5, 3)).sum()
            loss.backward(retain_graph=True)
            fn(fresh(5, 3)).sum().backward()
            loss.backward()
            with pytest.raises(RuntimeError, match="a second time"):
                loss.backward()
            found += grads(net)
        return found

    same(train)


def test_gradients_of_gradients(device: StandIn) -> None:
    def train(wrap: Wrap) -> list[Any]:
        net = model()
        fn, found = wrap(net), []
        for _ in range(CALLS):
            x = fresh(5, 3).requires_grad_()
            (first,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
            first.square().sum().backward()
            found += [first.detach(), x.grad, *grads(net)]
        return found

    same(train)


def test_some_of_the_results(device: StandIn) -> None:
    """Of what isn't gone back from come no gradients, not even zeros."""
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)

    def both(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = a(x).sin().exp()
        z = b(x).cos().exp() * 2
        return y, z, (x * 2).argmax()

    def train(wrap: Wrap) -> list[Any]:
        fn, found = wrap(both), []
        for at in range(3 * CALLS):
            for module in (a, b):
                module.zero_grad()
            y, z, place = fn(fresh(5, 3))
            assert not place.requires_grad
            (y.sum() + z.sum() if at % 3 == 0 else (y, z)[at % 3 - 1].sum()).backward()
            found += [place, *grads(a), *grads(b)]
        return found

    same(train)


def test_inputs_without_gradients(device: StandIn) -> None:
    unused = nn.Linear(3, 3)

    def train(wrap: Wrap) -> list[Any]:
        net, found = model(), []

        def runs(x: Tensor) -> Tensor:
            unused(x).sin()
            return net(x).exp() * 2

        fn = wrap(runs)
        for _ in range(CALLS):
            fn(fresh(5, 3)).sum().backward()
            found += [*grads(net), *grads(unused)]
        return found

    same(train)


def test_random_numbers(device: StandIn) -> None:
    def train(wrap: Wrap) -> list[Any]:
        net = nn.Sequential(model(), nn.Dropout(0.5), nn.Linear(2, 2))
        fn, found = wrap(net), []
        for at in range(2 * CALLS):
            x = fresh(5, 3).requires_grad_()
            loss = fn(x).square().sum()
            (first,) = torch.autograd.grad(loss, x, create_graph=at % 2 == 1)
            if at % 2:
                first.square().sum().backward()
            found += [loss.detach(), first.detach(), torch.rand(2), *grads(net)]
        return found

    same(train, is_exact=False)  # Sums of gradients of gradients have another order.


def test_autocast(device: StandIn) -> None:
    def train(wrap: Wrap) -> list[Any]:
        net = model()
        fn, found = wrap(net), []
        for at in range(2 * CALLS):
            x = fresh(5, 3).requires_grad_()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = fn(x)
            y.float().sum().backward(create_graph=at % 3 == 2)
            found += [y.detach(), x.grad.detach(), *grads(net)]
            net.zero_grad()
        return [it.detach() if isinstance(it, Tensor) else it for it in found]

    same(train)


def test_other_layouts_of_gradients(device: StandIn) -> None:
    def train(wrap: Wrap) -> list[Any]:
        net = model()
        fn, found = wrap(net), []
        for at in range(2 * CALLS):
            y = fn(fresh(5, 3))
            y.backward(
                (torch.ones(()).expand(5, 2), torch.ones(2, 5).t(), torch.ones(5, 2))[at % 3]
            )
            found += grads(net)
        return found

    same(train)


@pytest.mark.parametrize("what", ["weight", "input", "result"])
def test_writes_before_the_gradients(device: StandIn, what: str) -> None:
    def train(wrap: Wrap) -> list[Any]:
        net = model()
        fn, found = wrap(net), []
        for _ in range(CALLS):
            x = fresh(5, 3)
            y = fn(x)
            with torch.no_grad():
                {"weight": net[2].weight, "input": x, "result": y}[what].add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()
            del y
            net.zero_grad()  # Operations behind that which has raised may have given some.
            loss = fn(fresh(5, 3)).sum()
            loss.backward()
            found += [loss.detach(), *grads(net)]
        return found

    same(train)


def test_data_that_is_set_before_the_gradients(device: StandIn) -> None:
    """Eager uses what it has saved, or what is set: that can't be told here."""
    net = model()
    fn = compiled(net)
    for _ in range(CALLS):
        fn(fresh(5, 3)).sum().backward()
    y = fn(fresh(5, 3))
    net[2].weight.data = fresh(2, 4)
    with pytest.raises(RuntimeError, match="^the data of a tensor was set"):
        y.sum().backward()
    net.zero_grad()
    for _ in range(CALLS):
        x = fresh(5, 3)
        fn(x).sum().backward()
        found = grads(net)
        net.zero_grad()
        net(x).sum().backward()
        assert all(map(torch.equal, found, grads(net)))
        net.zero_grad()


def test_captured_results_without_gradients_are_let_go(device: StandIn) -> None:
    def tensors() -> int:
        gc.collect()
        return sum(type(it) is Tensor for it in gc.get_objects())

    net = model()
    fn = compiled(net)
    fn(torch.ones(5, 3))
    stator.reset()
    before = tensors()
    for _ in range(CALLS):
        fn(torch.ones(5, 3))
    assert stats(fn).tiers == ["compiled"]
    stator.reset()
    assert tensors() == before


def test_what_is_written_is_replayed(device: StandIn) -> None:
    def train(wrap: Wrap) -> list[Any]:
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh())
        fn, found = wrap(net), []
        for _ in range(CALLS):
            fn(fresh(5, 3)).sum().backward()
            found += [*grads(net), *(it.clone() for it in net.buffers())]
        return found

    ours = same(train, captured=False)
    assert device.captures == 0
    assert stats(ours).why == ["gradients are asked of it, and it writes to an input"]


def test_views_are_replayed(device: StandIn) -> None:
    def train(wrap: Wrap) -> list[Any]:
        net, found = model(), []

        def runs(x: Tensor) -> tuple[Tensor, Tensor]:
            y = net(x).sin()
            return y, y[0]

        fn = wrap(runs)
        for _ in range(CALLS):
            y, row = fn(fresh(5, 3))
            (y.sum() + row.sum()).backward()
            found += grads(net)
        return found

    same(train, captured=False)
    assert device.launches == 0


def test_a_capture_of_gradients_that_fails(device: StandIn) -> None:
    net = model()
    fn = compiled(net)
    for _ in range(3):
        y = fn(fresh(5, 3))
    device.error = RuntimeError("no")
    with pytest.warns(stator.BackendFailedWarning, match="couldn't be captured") as given:
        for _ in range(3):
            x = fresh(5, 3)
            y.sum().backward()
            found = grads(net)
            net.zero_grad()
            net(x).sum()
            y = fn(x)
    assert len(given) == 1 and all(it is not None for it in found)


def test_whoever_packs_what_is_saved(device: StandIn) -> None:
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor

    def train(wrap: Wrap) -> list[Any]:
        net = model()
        fn, found = wrap(net), []
        for at in range(2 * CALLS):
            packed.clear()
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda it: it):
                y = fn(fresh(5, 3))
            found.append(len(packed) if at % 2 else 0)
            y.sum().backward()
            found += grads(net)
        return found

    same(train, captured=False)
