"""Averaged weights, scaled losses, functional gradients and checkpoints within steps that go back."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.checkpoint import checkpoint

from .within_nodes import Program, Programs, gradients, network, nothing, rows

PROGRAMS = Programs()
program, whole = PROGRAMS.program, PROGRAMS.whole


def weights(net: nn.Module) -> list[Tensor]:
    return [it.detach().clone() for it in (*net.parameters(), *net.buffers())]


def averaged(update: Callable[[nn.Module, nn.Module], None]) -> Program:
    net = network()
    slow = copy.deepcopy(net).requires_grad_(False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor) -> Any:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        update(slow, net)
        return loss.detach()

    return step, nothing, lambda: (weights(net), weights(slow))


@whole
def averages_by_pairs() -> Program:
    def update(slow: nn.Module, net: nn.Module) -> None:
        with torch.no_grad():
            for mean, weight in zip(slow.parameters(), net.parameters(), strict=True):
                mean.mul_(0.9).add_(weight, alpha=0.1)

    return averaged(update)


@whole
def averages_by_names() -> Program:
    def update(slow: nn.Module, net: nn.Module) -> None:
        own = dict(net.named_parameters())
        for name, mean in slow.named_parameters():
            mean.data.lerp_(own[name].data, 0.1)

    return averaged(update)


@whole
def averages_by_states() -> Program:
    @torch.no_grad()
    def update(slow: nn.Module, net: nn.Module) -> None:
        own = net.state_dict()
        for name, mean in slow.state_dict().items():
            mean.copy_(0.9 * mean + 0.1 * own[name].detach())

    return averaged(update)


@whole
def averages_by_loading() -> Program:
    def update(slow: nn.Module, net: nn.Module) -> None:
        own = net.state_dict()
        slow.load_state_dict(
            {name: 0.9 * it + 0.1 * own[name] for name, it in slow.state_dict().items()}
        )

    return averaged(update)


@whole
def averages_of_all_at_once() -> Program:
    def update(slow: nn.Module, net: nn.Module) -> None:
        means = [it.data for it in slow.parameters()]
        torch._foreach_mul_(means, 0.9)
        torch._foreach_add_(means, [it.data for it in net.parameters()], alpha=0.1)

    return averaged(update)


class Average:
    """Shadows in a dictionary, whose decay grows with the number of updates."""

    def __init__(self, net: nn.Module) -> None:
        self.shadow = {name: it.detach().clone() for name, it in net.named_parameters()}
        self.updates = 0

    @torch.no_grad()
    def update(self, net: nn.Module) -> None:
        self.updates += 1
        decay = min(0.9, (1 + self.updates) / (10 + self.updates))
        for name, weight in net.named_parameters():
            if weight.requires_grad:
                self.shadow[name] -= (1 - decay) * (self.shadow[name] - weight)


@program
def averages_in_a_dictionary() -> Program:
    net = network()
    average = Average(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor) -> Any:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        average.update(net)
        return loss.detach()

    return step, nothing, lambda: (weights(net), list(average.shadow.values()), average.updates)


def of_averaged_model(**options: Any) -> Program:
    net = network()
    slow = AveragedModel(net, **options)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor) -> Any:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        slow.update_parameters(net)
        return loss.detach()

    return step, nothing, lambda: (weights(net), weights(slow))


@whole
def an_averaged_model() -> Program:
    return of_averaged_model(multi_avg_fn=get_ema_multi_avg_fn(0.9))


@program
def an_averaged_model_with_buffers() -> Program:
    return of_averaged_model(multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)


@whole
def an_equally_averaged_model() -> Program:
    return of_averaged_model()


@whole
def an_averaged_model_by_a_function() -> Program:
    return of_averaged_model(avg_fn=lambda mean, weight, count: 0.9 * mean + 0.1 * weight)


@program
def statistics_are_updated() -> Program:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    loader = [rows(seed, 5, 3) for seed in range(3)]

    def step(x: Tensor) -> Any:
        net.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        update_bn(loader, net)
        return loss.detach()

    return step, nothing, lambda: (weights(net), gradients(net))


@whole
def a_scaled_loss() -> Program:
    net = network()
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor) -> Any:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = net(x).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach(), scaler.get_scale()

    return step, nothing, lambda: (weights(net), gradients(net))


@whole
def a_scaled_loss_that_overflows() -> Program:
    net = network()
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    factor = torch.ones(())

    def change(call: int) -> None:
        factor.fill_(float("inf") if call in (2, 5) else 1.0)

    def step(x: Tensor) -> Any:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean() * factor
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step, change, lambda: (weights(net), gradients(net), scaler.state_dict())


@program
def functional_gradients_within() -> Program:
    net = network()

    def penalty(x: Tensor) -> Tensor:
        return net(x).pow(2).sum()

    def step(x: Tensor) -> Any:
        net.zero_grad()
        found = torch.func.grad(penalty)(x)
        loss = net(x).pow(2).mean() + found.pow(2).mean()
        loss.backward()
        return loss.detach()

    return step, nothing, lambda: gradients(net)


@program
def gradients_of_samples_by_vmap() -> Program:
    net = network()

    def loss_of(params: dict[str, Tensor], row: Tensor) -> Tensor:
        return torch.func.functional_call(net, params, (row.unsqueeze(0),)).pow(2).sum()

    of_rows = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0))

    def step(x: Tensor) -> Any:
        params = {name: it.detach() for name, it in net.named_parameters()}
        found = of_rows(params, x)
        with torch.no_grad():
            for name, weight in net.named_parameters():
                weight -= 0.1 * found[name].clamp(-1, 1).mean(0)
        return {name: it.flatten(1).norm(dim=1) for name, it in found.items()}

    return step, nothing, lambda: weights(net)


@program
def a_jacobian_within() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        net.zero_grad()
        jacobian = torch.func.vmap(torch.func.jacrev(net))(x)
        loss = net(x).pow(2).mean() + 0.1 * jacobian.pow(2).mean()
        loss.backward()
        return loss.detach()

    return step, nothing, lambda: gradients(net)


def checkpointed(**options: Any) -> Program:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor) -> Any:
        optimizer.zero_grad()
        hidden = checkpoint(net[:2], x.requires_grad_(), **options)
        loss = net[2](hidden).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, nothing, lambda: gradients(net)


@whole
def a_checkpoint() -> Program:
    return checkpointed(use_reentrant=False)


@whole
def a_reentrant_checkpoint() -> Program:
    return checkpointed(use_reentrant=True)


@program
def going_back_within_a_checkpoint() -> Program:
    net = network()

    def inner(x: Tensor) -> Tensor:
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            (found,) = torch.autograd.grad(net[:2](y).pow(2).sum(), y)
        return net[2](net[:2](x)) + found.sum()

    def step(x: Tensor) -> Any:
        net.zero_grad()
        loss = checkpoint(inner, x, use_reentrant=False).pow(2).mean()
        loss.backward()
        return loss.detach()

    return step, nothing, lambda: gradients(net)


@whole
def weights_of_a_module_set_in_place() -> Program:
    """An augmented assignment to a parameter of a module asks whether it's a leaf."""
    net = network()

    def step(x: Tensor) -> Any:
        net.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            for layer in (net[0], net[2]):
                layer.weight -= 0.1 * layer.weight.grad
                layer.bias *= 0.9
        return loss.detach()

    return step, nothing, lambda: (weights(net), gradients(net))


@program
def is_it_a_leaf() -> Program:
    """One that is none from some call on."""
    weight = torch.ones(3, requires_grad=True)
    held = [weight]

    def change(call: int) -> None:
        held[0] = weight * 2 if call in (3, 4) else weight
        weight.grad = torch.ones(3) if call > 5 else None

    def step(x: Tensor) -> Any:
        if held[0].grad_fn:
            return x.sum()
        return x.sum() * 2 if held[0].is_leaf else x.mean()

    return step, change, lambda: weight.grad


@pytest.mark.parametrize("name", sorted(PROGRAMS.all))
def test_calls_are_plain_ones(name: str) -> None:
    PROGRAMS.check(name)
