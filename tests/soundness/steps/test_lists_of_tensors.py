"""Operations on lists of tensors, and rows of tables that bags are made of: numbers and sizes that vary are symbols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from differential.support import api
from torch import Tensor, nn, optim
from torch.optim.lr_scheduler import LambdaLR

import stator

from .results import copied, same

RATES = [0.1, 0.2, 0.3, 1.0, -0.5, 0.0, 2.0]

EACH: dict[str, Callable[[list[Tensor], list[Tensor], float], Any]] = {
    "scaled": lambda a, b, rate: torch._foreach_mul_(a, rate),
    "computed": lambda a, b, rate: torch._foreach_mul_(a, 1 - rate * 0.1),
    "added": lambda a, b, rate: torch._foreach_add_(a, b, alpha=-rate),
    "divided": lambda a, b, rate: torch._foreach_addcdiv_(a, b, b, rate),
    "between": lambda a, b, rate: torch._foreach_lerp(a, b, rate),
    "many": lambda a, b, rate: torch._foreach_add(a, [rate, 2 * rate]),
    "bounded": lambda a, b, rate: torch._foreach_clamp_max(a, rate),
    "power": lambda a, b, rate: torch._foreach_pow(b, rate),
    "lengths": lambda a, b, rate: torch._foreach_norm(torch._foreach_mul(a, rate)),
    "broadcast": lambda a, b, rate: torch._foreach_add(a, [b[0][:1], b[1]], alpha=rate),
}


@pytest.mark.parametrize("name", EACH)
def test_numbers_given_to_each(name: str) -> None:
    operation = EACH[name]

    def fn(x: Tensor, rate: float) -> Any:
        a, b = [x * 2, x - 1], [x + 3, x.abs() + 1]
        return operation(a, b, rate), a

    compiled = api.compile(fn)
    with stator.config.patch(skip_unprofitable=False, strict=True):
        for size in (3, 5):
            for rate in RATES:
                x = torch.arange(1.0, size + 1)
                assert same(copied(compiled(x, rate)), copied(fn(x, rate)))
    if not api.PLAIN:
        stats = stator.stats(compiled)
        assert (stats.breaks, stats.native) == (0, 0) and stats.traces <= 4


def test_sizes_of_each_vary() -> None:
    def fn(x: Tensor, y: Tensor, z: Tensor) -> Any:
        return torch._foreach_add([x, y], [y, z])

    compiled = api.compile(fn)
    with stator.config.patch(skip_unprofitable=False, strict=True):
        for sizes in ((3, 3, 3), (4, 4, 4), (5, 5, 5), (4, 1, 4), (1, 5, 5), (2, 2, 1), (7, 7, 7)):
            given = [torch.arange(float(size)) for size in sizes]
            assert same(compiled(*given), fn(*given))
        for wrapped in (fn, compiled):
            with pytest.raises(RuntimeError, match="must match the size"):
                wrapped(torch.zeros(3), torch.zeros(4), torch.zeros(4))


STEPPED: dict[str, Callable[[Any], optim.Optimizer]] = {
    "AdamW-foreach": lambda them: optim.AdamW(them, lr=0.1, foreach=True),
    "AdamW-fused": lambda them: optim.AdamW(them, lr=0.1, fused=True),
    "Adam-foreach": lambda them: optim.Adam(them, lr=0.1, foreach=True, amsgrad=True),
    "SGD-foreach": lambda them: optim.SGD(them, lr=0.1, foreach=True, momentum=0.9, nesterov=True),
    "SGD-fused": lambda them: optim.SGD(them, lr=0.1, fused=True, weight_decay=0.1),
    "Adagrad-fused": lambda them: optim.Adagrad(them, lr=0.1, fused=True),
    "RMSprop-foreach": lambda them: optim.RMSprop(them, lr=0.01, foreach=True, centered=True),
    "NAdam-foreach": lambda them: optim.NAdam(them, lr=0.01, foreach=True),
    "Adadelta-foreach": lambda them: optim.Adadelta(them, foreach=True),
    "Adamax-foreach": lambda them: optim.Adamax(them, foreach=True),
}


@pytest.mark.parametrize("name", STEPPED)
def test_rates_that_a_schedule_changes(name: str) -> None:
    def made() -> tuple[nn.Module, Callable[[Tensor], Tensor], optim.Optimizer]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        optimizer = STEPPED[name](net.parameters())
        schedule = LambdaLR(optimizer, lambda count: (count + 1) / 4 if count < 4 else 1 / count)

        def step(x: Tensor) -> Tensor:
            loss: Tensor = net(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss.detach()

        return net, step, optimizer

    (left, plain, first), (right, step, second) = made(), made()
    compiled = api.compile(step)
    with stator.config.patch(skip_unprofitable=False, strict=True):
        for call in range(12):
            if call == 9:
                for group in first.param_groups + second.param_groups:
                    group["lr"] = 0.03
                    group["weight_decay"] = 0.2
            x = torch.full((2, 3), 0.1 * call)
            assert same(compiled(x), plain(x))
            assert same(list(right.parameters()), list(left.parameters()))
    if not api.PLAIN:
        stats = stator.stats(compiled)
        assert (stats.breaks, stats.native) == (0, 0) and stats.traces <= 4


BAGS: dict[str, dict[str, Any]] = {
    "mean": {"mode": "mean"},
    "sum": {"mode": "sum", "padding_idx": 2},
    "max": {"mode": "max"},
    "renormalized": {"mode": "sum", "max_norm": 1.0},
    "closed": {"mode": "mean", "include_last_offset": True},
}


@pytest.mark.parametrize("name", BAGS)
def test_bags_of_rows(name: str) -> None:
    def fn(bags: nn.EmbeddingBag, rows: Tensor, offsets: Tensor) -> Any:
        bags.weight.grad = None
        loss = bags(rows, offsets).square().sum()
        loss.backward()
        return loss.detach(), bags.weight.grad

    def made() -> nn.EmbeddingBag:
        torch.manual_seed(0)
        return nn.EmbeddingBag(20, 4, **BAGS[name])

    left, right, compiled = made(), made(), api.compile(fn)
    with stator.config.patch(skip_unprofitable=False, strict=True):
        for call in range(8):
            rows = torch.arange(6 + call) * 3 % 20
            starts = [0, 2, 2 + call % 3, *([5] if call > 4 else [])]
            offsets = torch.tensor([*starts, 6 + call] if name == "closed" else starts)
            assert same(copied(compiled(right, rows, offsets)), copied(fn(left, rows, offsets)))
            assert same(right.weight.detach(), left.weight.detach())
        for offsets in (torch.tensor([0, 2, 99]), torch.tensor([1, 2, 3])):
            told = []
            for wrapped, bags in ((fn, left), (compiled, right)):
                with pytest.raises(RuntimeError) as raised:
                    wrapped(bags, torch.arange(6), offsets)
                told.append(str(raised.value))
            assert told[0] == told[1]
    if not api.PLAIN:
        assert stator.stats(compiled).breaks == 0


def test_bags_with_weights() -> None:
    def fn(rows: Tensor, table: Tensor, weights: Tensor) -> Tensor:
        return F.embedding_bag(rows, table, mode="sum", per_sample_weights=weights)

    compiled = api.compile(fn)
    with stator.config.patch(skip_unprofitable=False, strict=True):
        for count in (2, 3, 4, 5):
            rows, weights = torch.arange(2 * count).view(2, count), torch.rand(2, count)
            table = torch.rand(10, 3 + count)
            assert same(compiled(rows, table, weights), fn(rows, table, weights))
        for wrapped in (fn, compiled):
            with pytest.raises(ValueError, match="same shape"):
                wrapped(rows, table, weights[:, :2])
