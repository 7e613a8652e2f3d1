"""`copy.deepcopy` of containers, modules and objects with tensors in them: one node copies the tensors."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn

import stator


class Kept:
    """Has tensors, one of them twice."""

    def __init__(self) -> None:
        self.mean = self.again = torch.zeros(3)
        self.counts = {"a": [torch.ones(2)]}


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def best_state(made: list[Any]) -> Callable[[Tensor], Any]:
    model, kept = net(), {"best": None, "loss": float("inf")}
    made += [model, kept]

    def fn(x: Tensor) -> Any:
        loss = model(x).square().mean()
        model[0].weight.data.sub_(0.05)
        if loss.item() < kept["loss"]:
            kept["best"] = copy.deepcopy(model.state_dict())
            kept["loss"] = loss.item()
        return loss.detach()

    return fn


def best_model(made: list[Any]) -> Callable[[Tensor], Any]:
    model, kept = net(), [None]
    made += [model, kept]

    def fn(x: Tensor) -> Any:
        kept[0] = copy.deepcopy(model)
        model[0].bias.data.add_(1)
        return kept[0](x) - model(x), kept[0].training

    return fn


def instance(made: list[Any]) -> Callable[[Tensor], Any]:
    it = Kept()
    made.append(it.__dict__)

    def fn(x: Tensor) -> Any:
        mine = copy.deepcopy(it)
        mine.mean.add_(x[0])
        it.mean.sub_(1)
        return mine.again, mine.again is mine.mean, mine.counts["a"][0] + 1

    return fn


def views(made: list[Any]) -> Callable[[Tensor], Any]:
    """Copies share memory where what was copied does."""
    base = torch.zeros(4)
    them = [base, base[1:], {"part": base.view(2, 2)}]
    made.append(them)

    def fn(x: Tensor) -> Any:
        mine = copy.deepcopy(them)
        mine[0].add_(x[0, 0])
        base.add_(1)
        return mine, mine[1] + 1

    return fn


def own(made: list[Any]) -> Callable[[Tensor], Any]:
    def fn(x: Tensor) -> Any:
        y = x * 2
        mine = copy.deepcopy({"x": x, "y": (y, y), "z": [y[0]]})
        y.add_(1)
        return mine, mine["y"][0] is mine["y"][1], y

    return fn


def with_gradient(made: list[Any]) -> Callable[[Tensor], Any]:
    w = nn.Parameter(torch.ones(3))
    t = torch.ones(3)
    t.grad = torch.full((3,), 2.0)
    made += [w, t]

    def fn(x: Tensor) -> Any:
        (w * x[0]).sum().backward()
        mine = copy.deepcopy([w, t])
        return mine, [it.grad for it in mine]

    return fn


def optimizer_state(made: list[Any]) -> Callable[[Tensor], Any]:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    made += [model, optimizer]

    def fn(x: Tensor) -> Any:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 3}
        return copy.deepcopy(saved)["optimizer"]["state"][0]["exp_avg"]

    return fn


def history(made: list[Any]) -> Callable[[Tensor], Any]:
    """It can't be copied: the error is plain Python's."""

    def fn(x: Tensor) -> Any:
        y = x.clone().requires_grad_() * 2
        try:
            return copy.deepcopy({"y": y})
        except RuntimeError as error:
            return str(error)[:40]

    return fn


PROGRAMS = (
    *(best_state, best_model, instance, views, own, with_gradient, optimizer_state, history),
)
# Optimizers number their parameters by addresses; modules have a `__getstate__` of their own.
BROKEN = {with_gradient, history, optimizer_state, best_model}


def told(it: Any) -> Any:
    if isinstance(it, Tensor):
        gradient = it.grad if it.is_leaf else None
        return (
            type(it),
            it.tolist(),
            it.requires_grad,
            gradient if gradient is None else told(gradient),
        )
    if isinstance(it, nn.Module):
        return [type(it), it.training, [told(part) for part in it.state_dict().values()]]
    if isinstance(it, torch.optim.Optimizer):
        return told(list(it.state_dict()["state"].items()))
    if isinstance(it, dict):
        return [(key, told(value)) for key, value in it.items()]
    if isinstance(it, (list, tuple)):
        return [told(part) for part in it]
    return it


def play(program: Callable[..., Any], wrap: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    torch.manual_seed(0)
    made: list[Any] = []
    fn = wrap(program(made))
    seen = []
    for call in range(6):
        x = torch.full((2, 3), 1.0 + call) + torch.tensor([[0.0], [1.0]])
        seen.append([told(fn(x)), told(made)])
    return seen, fn


@pytest.mark.parametrize("program", PROGRAMS)
def test_copies_are_plain_ones(program: Callable[..., Any]) -> None:
    expected, _ = play(program, lambda fn: fn)
    with stator.config.patch(skip_unprofitable=False):
        found, fn = play(program, lambda fn: api.compile(fn, backend="eager"))
    assert expected == found
    if not api.PLAIN and program not in BROKEN:
        stats = stator.stats(fn)
        assert stats.breaks == 0 and stats.hits > 0 and stats.native == 0


def test_the_attributes_of_a_dictionary_are_copied() -> None:
    it = OrderedDict(a=torch.ones(2))
    it.note = [1]  # type: ignore[attr-defined]

    def fn(x: Tensor) -> Any:
        mine = copy.deepcopy(it)
        mine["a"].add_(x)
        return mine, mine.note, x * len(mine.note)  # type: ignore[attr-defined]

    with stator.config.patch(skip_unprofitable=False):
        compiled = api.compile(fn, backend="eager")
        for note in ([1], [1], [1, 2], [], [5]):
            it.note = note  # type: ignore[attr-defined]
            assert told(fn(torch.ones(2))) == told(compiled(torch.ones(2)))


def test_two_that_become_one() -> None:
    them = [torch.zeros(2), torch.zeros(2)]

    def fn(x: Tensor) -> Any:
        mine = copy.deepcopy(them)
        mine[0].add_(x)
        return mine

    with stator.config.patch(skip_unprofitable=False):
        compiled = api.compile(fn, backend="eager")
        for _ in range(2):
            assert told(fn(torch.ones(2))) == told(compiled(torch.ones(2)))
        them[1] = them[0]
        for _ in range(2):
            assert told(fn(torch.ones(2))) == told(compiled(torch.ones(2)))


def test_a_copy_with_the_same_memory() -> None:
    def fn(x: Tensor, by: int) -> Any:
        mine, again = copy.copy(x), copy.copy(x[1:])
        mine.add_(by)
        return mine, again, mine is x, mine.is_leaf, mine._version, x * 2

    compiled = api.compile(fn, backend="eager")
    with stator.config.patch(skip_unprofitable=False):
        for by in (1, 1, 2, 2):
            plain, given = torch.ones(3), torch.ones(3)
            assert told(fn(plain, by)) == told(compiled(given, by))
            assert told(plain) == told(given) and plain._version == given._version
        learnt = torch.ones(3, requires_grad=True)
        expected, found = copy.copy(learnt), api.compile(copy.copy, backend="eager")(learnt)
    assert stator.stats(compiled).breaks == 0, stator.stats(compiled).reason
    assert found.requires_grad and found.is_leaf and expected.data_ptr() == found.data_ptr()


def test_a_copier_that_is_registered_later(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = api.compile(lambda x: copy.copy(x) + 1, backend="eager")
    x = torch.ones(2)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(2):
            assert compiled(x).tolist() == [2.0, 2.0]
        monkeypatch.setitem(copy._copy_dispatch, Tensor, lambda it: it * 10)  # type: ignore[attr-defined]
        for _ in range(2):
            assert compiled(x).tolist() == [11.0, 11.0]
