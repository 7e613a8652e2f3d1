"""Optimizers' steps with other backends than the replay: numbers from data are given to operations between the parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator

OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (torch.optim.Adam, {"amsgrad": True}),
    "adamw": (torch.optim.AdamW, {}),
    "adamw, one by one": (torch.optim.AdamW, {"foreach": False}),
    "adamw, fused": (torch.optim.AdamW, {"fused": True}),
    "nadam": (torch.optim.NAdam, {}),
    "rmsprop": (torch.optim.RMSprop, {"centered": True}),
    "adagrad": (torch.optim.Adagrad, {}),
    "adamax": (torch.optim.Adamax, {"foreach": False}),
    "adafactor": (torch.optim.Adafactor, {}),
}


def training(name: str) -> tuple[Any, nn.Module]:
    torch.manual_seed(0)
    # A parameter of one element is no number.
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    make, settings = OPTIMIZERS[name]
    optimizer = make(net.parameters(), lr=1e-2, **settings)

    def step(x: Tensor) -> float:
        optimizer.zero_grad()
        loss = (net(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step, net


@pytest.mark.parametrize("backend", ["fx", "aot_eager"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_one_trace(name: str, backend: str) -> None:
    (plain, plain_net), (own, own_net) = training(name), training(name)
    compiled = stator.compile(own, backend=backend)
    for call in range(7):
        x = torch.linspace(-1, 1 + call, 12).view(4, 3)
        assert compiled(x) == pytest.approx(plain(x), rel=1e-5, abs=1e-6)
        for left, right in zip(own_net.parameters(), plain_net.parameters(), strict=True):
            torch.testing.assert_close(left, right)
    found = stator.stats(compiled)
    # The first call makes the optimizer's state.
    assert (found.breaks, found.native) == (0, 0)
    assert found.traces <= 2
    assert "compiled" in found.tiers


def scaled(x: Tensor, t: Tensor, rows: list[Tensor]) -> Any:
    number = t.item()
    y = torch.add(x * 2, x.sin(), alpha=number).exp()
    z = torch.addcmul(y, y, x, value=number + 1).cos() * 3
    given = torch._foreach_mul(rows, [number, number * 2])
    return y, z + 1, [it.exp() + 1 for it in given]


def by_tensor(x: Tensor, t: Tensor, rows: list[Tensor]) -> Any:
    """A tensor where a number belongs: another backend's code can't read it."""
    y = torch.add(x * 2, x.sin(), alpha=t).exp()
    return y, torch.addcmul(y, y, x, value=t), torch.add(rows[0], rows[1], alpha=t.item())


@pytest.mark.parametrize("backend", ["eager", "fx", "aot_eager"])
@pytest.mark.parametrize("function", [scaled, by_tensor])
@pytest.mark.parametrize("size", [1, 3])
def test_numbers_and_tensors_that_are_given_for_numbers(
    function: Any, backend: str, size: int
) -> None:
    compiled = stator.compile(function, backend=backend)
    for call in range(6):
        x, t = torch.linspace(0.1, 1, size), torch.tensor(0.5 + call)
        rows = [x + 1, x - call]
        torch.testing.assert_close(compiled(x, t, rows), function(x, t, rows))
