"""Steps with other optimizers, schedules and parametrizations."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim
from torch.nn.utils import parametrizations
from torch.optim import lr_scheduler as schedules

from .parts import Style, mlp, style


@style
def one_cycle() -> Style:
    net = mlp()
    opt = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scheduler = schedules.OneCycleLR(opt, max_lr=0.1, total_steps=40)
    rates: list[float] = []

    def step(x: Tensor, y: Tensor) -> None:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        rates.append(opt.param_groups[0]["lr"])
        scheduler.step()

    return step, net, opt, scheduler, rates


@style
def plateau() -> Style:
    net = mlp()
    opt = optim.SGD(net.parameters(), lr=0.1)
    scheduler = schedules.ReduceLROnPlateau(opt, patience=1)

    def step(x: Tensor, y: Tensor) -> float:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        scheduler.step(loss.item())
        return opt.param_groups[0]["lr"]

    return step, net, opt, scheduler


@style
def chained_schedules() -> Style:
    net = mlp()
    opt = optim.AdamW(net.parameters(), lr=0.1)
    warm = schedules.LinearLR(opt, 0.1, total_iters=3)
    scheduler = schedules.SequentialLR(
        opt, [warm, schedules.CosineAnnealingLR(opt, 20)], milestones=[3]
    )

    def step(x: Tensor, y: Tensor) -> list[float]:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        scheduler.step()
        return scheduler.get_last_lr()

    return step, net, opt


@style
def closure() -> Style:
    net = mlp()
    opt = optim.LBFGS(net.parameters(), lr=0.1, max_iter=3)

    def step(x: Tensor, y: Tensor) -> Tensor:
        def evaluate() -> Tensor:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            return loss

        return opt.step(evaluate).detach()

    return step, net, opt


@style
def closure_sgd() -> Style:
    net = mlp()
    opt = optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        def evaluate() -> Tensor:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            return loss

        return opt.step(evaluate).detach()

    return step, net, opt


@style
def spectral() -> Style:
    net = nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(4, 8)),
        nn.ReLU(),
        parametrizations.weight_norm(nn.Linear(8, 3)),
    )
    opt = optim.Adam(net.parameters(), lr=0.01)

    def step(x: Tensor, y: Tensor) -> float:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss.item()

    return step, net, opt


@style
def old_spectral() -> Style:
    net = nn.Sequential(
        nn.utils.spectral_norm(nn.Linear(4, 8)),
        nn.ReLU(),
        nn.utils.weight_norm(nn.Linear(8, 3)),
    )
    opt = optim.Adam(net.parameters(), lr=0.01)

    def step(x: Tensor, y: Tensor) -> float:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss.item()

    return step, net, opt


@style
def sparse_embedding() -> Style:
    words = nn.Embedding(12, 4, sparse=True)
    out = nn.Linear(4, 3)
    sparse, dense = optim.SparseAdam(words.parameters(), lr=0.1), optim.Adam(out.parameters())

    def step(x: Tensor, y: Tensor) -> float:
        sparse.zero_grad()
        dense.zero_grad()
        loss = F.cross_entropy(out(words(y)), y)
        loss.backward()
        sparse.step()
        dense.step()
        return loss.item()

    return step, words, out, sparse, dense


@style
def muon() -> Style:
    net = mlp()
    matrices = [p for p in net.parameters() if p.ndim == 2]
    rest = [p for p in net.parameters() if p.ndim != 2]
    opts = [optim.Muon(matrices, lr=0.02), optim.AdamW(rest, lr=0.01)]

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(net(x), y)
        for opt in opts:
            opt.zero_grad()
        loss.backward()
        for opt in opts:
            opt.step()
        return loss.detach()

    return step, net, *opts


@style
def adafactor() -> Style:
    net = mlp()
    opt = optim.Adafactor(net.parameters(), lr=0.01)

    def step(x: Tensor, y: Tensor) -> Tensor:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss.detach()

    return step, net, opt


class Lion(optim.Optimizer):
    """An optimizer of somebody's own."""

    def __init__(self, params: Any, lr: float = 1e-2, betas: tuple[float, float] = (0.9, 0.99)):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                beta1, beta2 = group["betas"]
                update = state["exp_avg"] * beta1 + p.grad * (1 - beta1)
                p.add_(update.sign_(), alpha=-group["lr"])
                state["exp_avg"].mul_(beta2).add_(p.grad, alpha=1 - beta2)
        return None


@style
def lion() -> Style:
    net = mlp()
    opt = Lion(net.parameters())

    def step(x: Tensor, y: Tensor) -> float:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss.item()

    return step, net, opt


class OldAdam(optim.Optimizer):
    """As research code of 2019 has it: a Python number counts the steps."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.01})

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                grad, state = p.grad.data, self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p.data)
                    state["exp_avg_sq"] = torch.zeros_like(p.data)
                state["step"] += 1
                state["exp_avg"].mul_(0.9).add_(grad, alpha=0.1)
                state["exp_avg_sq"].mul_(0.999).addcmul_(grad, grad, value=0.001)
                size = group["lr"] * math.sqrt(1 - 0.999 ** state["step"])
                size /= 1 - 0.9 ** state["step"]
                denominator = state["exp_avg_sq"].sqrt().add_(1e-8)
                p.data.addcdiv_(state["exp_avg"], denominator, value=-size)


@style
def old_adam() -> Style:
    net = mlp()
    opt = OldAdam(net.parameters())

    def step(x: Tensor, y: Tensor) -> float:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss.item()

    return step, net, opt
