"""Training steps that nobody has thought of: statements in any order, and changes between the calls."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import nn

from .results import copied, same

# What a step may do, in any order. Errors are compared, too.
STATEMENTS = (
    "opt.zero_grad()",
    "opt.zero_grad(set_to_none=False)",
    "net.zero_grad()",
    "loss = net(x).square().mean()",
    "loss = net(x).sum() + w.sum() * x.mean()",
    "loss = loss + (w * w).sum()",
    "loss.backward()",
    "loss.backward(retain_graph=True)",
    "(loss * 2).backward()",
    "torch.autograd.backward([loss, (w * 3).sum()])",
    "loss.backward(inputs=list(net.parameters()))",
    "opt.step()",
    "told.append([None if p.grad is None else p.grad.sum() for p in net.parameters()])",
    "told.append(w.grad)",
    "told.append(torch.autograd.grad(loss, [w], allow_unused=True, retain_graph=True))",
    "told.append(torch.autograd.grad(net(x).sum(), list(net.parameters())))",
    "nn.utils.clip_grad_norm_(net.parameters(), 0.5)",
    "w.grad = None",
    "w.grad = torch.ones_like(w)",
    "del w.grad",
    "w.grad.mul_(0.5)",
    "with torch.no_grad(): w.sub_(0.1)",
    "with torch.no_grad(): w.add_(w.grad if w.grad is not None else 1)",
    "y = x.clone().requires_grad_(); (net(y) * w).sum().backward(); told.append(y.grad)",
    "w.requires_grad_(not w.requires_grad)",
    "net[0].requires_grad_(False)",
    "told.append(loss.detach())",
    "kept[0] = kept[0] * 0.5 + w",
    "kept[0].sum().backward()",
    "told.append(loss.requires_grad)",
    "w.grad = given",
    "w.grad = w.detach()",
    "given.add_(1)",
    "given = w.grad if w.grad is not None else given; told.append(given is w.grad)",
    "net[0].bias.grad = net[2].weight.grad[0] if net[2].weight.grad is not None else None",
    "loss.backward(create_graph=True)",
    "loss = loss if loss > 0.5 else loss * 2",
    "x = x.requires_grad_()",
    "told.append(loss.item())",
    "loss = loss * 0.5 if loss.item() > 0.25 else loss",
    "told.append(sum(p.grad.norm().item() for p in net.parameters() if p.grad is not None))",
    "if not torch.isfinite(loss): raise ArithmeticError(str(loss.detach()))",
)

USUAL = (0, 3, 6, 11)

OPTIMIZERS = (
    lambda them: torch.optim.SGD(them, lr=0.1),
    lambda them: torch.optim.SGD(them, lr=0.1, momentum=0.9),
    lambda them: torch.optim.Adam(them, lr=0.1),
    lambda them: torch.optim.AdamW(them, lr=0.1, foreach=True),
    lambda them: torch.optim.RMSprop(them, lr=0.01),
)


def log_hook(log: list[Any]) -> Callable[[Any], Any]:
    return lambda gradient: log.append("hook") or gradient * 2


CHANGES: dict[str, Callable[..., Any]] = {
    "nothing": lambda net, w, log: None,
    "hook": lambda net, w, log: w.requires_grad and w.register_hook(log_hook(log)),
    "post hook": lambda net, w, log: (
        net[2].weight.requires_grad
        and net[2].weight.register_post_accumulate_grad_hook(lambda it: log.append("post"))
    ),
    "module hook": lambda net, w, log: net[0].register_full_backward_hook(
        lambda *it: log.append("module")
    ),
    "freeze": lambda net, w, log: net[2].requires_grad_(False),
    "thaw": lambda net, w, log: net.requires_grad_(True),
    "gradients": lambda net, w, log: [
        setattr(it, "grad", torch.ones_like(it)) for it in net.parameters()
    ],
    "none": lambda net, w, log: [setattr(it, "grad", None) for it in (*net.parameters(), w)],
    "another weight": lambda net, w, log: setattr(
        net[0], "weight", nn.Parameter(net[0].weight.detach().clone())
    ),
    "data": lambda net, w, log: setattr(w, "data", w.data * 2),
}


def source(seed: int) -> str:
    choose = random.Random(seed)
    chosen = list(USUAL) if choose.random() < 0.6 else [3]
    for _ in range(choose.randrange(6)):
        chosen.insert(choose.randrange(len(chosen) + 1), choose.randrange(len(STATEMENTS)))
    body = "\n".join(f"    {STATEMENTS[at]}" for at in chosen)
    return f"def step(x):\n    global given\n    told = []\n{body}\n    return told\n"


def play(seed: int, wrap: Callable[[Any], Any]) -> list[Any]:
    choose = random.Random(seed + 1_000_000)
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    w = nn.Parameter(torch.randn(3))
    log: list[Any] = []
    names = {
        **{
            "torch": torch,
            "nn": nn,
            "net": net,
            "w": w,
            "kept": [torch.zeros(3)],
            "given": torch.ones(3),
        },
        "opt": choose.choice(OPTIMIZERS)([*net.parameters(), w]),
    }
    exec(source(seed), names)
    step = wrap(names["step"])
    results: list[Any] = []
    for call in range(9):
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(call))
        try:
            result: Any = step(x)
        except Exception as error:
            result = type(error).__name__, str(error)
        tensors = [*net.parameters(), w]
        left = [(it.detach().clone(), it.requires_grad, copied(it.grad)) for it in tensors]
        results.append((copied(result), left, list(log), torch.is_grad_enabled()))
        if call >= 4:
            CHANGES[choose.choice(list(CHANGES))](net, w, log)
    return results


@pytest.mark.parametrize("seed", range(int(os.environ.get("STATOR_STEPS", "120"))))
def test_any_step(seed: int) -> None:
    expected = play(seed, lambda it: it)
    found = play(seed, lambda it: api.compile(it, backend="eager"))
    for call, (left, right) in enumerate(zip(expected, found, strict=True)):
        assert same(left, right), f"call {call} of\n{source(seed)}\n{right}\nnot\n{left}"
