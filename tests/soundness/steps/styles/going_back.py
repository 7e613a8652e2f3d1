"""Steps that go back in other ways: twice, through hooks, through functions of their own, by parts."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from .parts import Style, mlp, style


@style
def gan() -> Style:
    made, judged = (
        nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 4)),
        mlp(out=1),
    )
    opt_g = optim.Adam(made.parameters(), lr=2e-4, betas=(0.5, 0.999))
    opt_d = optim.Adam(judged.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()

    def step(x: Tensor, y: Tensor) -> tuple[float, float, float]:
        judged.zero_grad()
        label = torch.full((x.size(0),), 1.0)
        out = judged(x).view(-1)
        real = criterion(out, label)
        real.backward()
        mean = out.mean().item()
        fake = made(torch.randn(x.size(0), 2))
        label.fill_(0.0)
        wrong = criterion(judged(fake.detach()).view(-1), label)
        wrong.backward()
        opt_d.step()
        made.zero_grad()
        label.fill_(1.0)
        loss = criterion(judged(fake).view(-1), label)
        loss.backward()
        opt_g.step()
        return (real + wrong).item(), loss.item(), mean

    return step, made, judged, opt_g, opt_d


@style
def gradient_penalty() -> Style:
    judged = mlp(out=1)
    opt = optim.RMSprop(judged.parameters(), lr=1e-3)

    def step(x: Tensor, y: Tensor) -> Tensor:
        fake = torch.randn_like(x)
        alpha = torch.rand(x.size(0), 1)
        mixed = (alpha * x + (1 - alpha) * fake).requires_grad_(True)
        scores = judged(mixed)
        gradient = torch.autograd.grad(
            outputs=scores,
            inputs=mixed,
            grad_outputs=torch.ones_like(scores),
            create_graph=True,
            retain_graph=True,
        )[0]
        penalty = ((gradient.view(x.size(0), -1).norm(2, dim=1) - 1) ** 2).mean()
        loss = judged(fake).mean() - judged(x).mean() + 10 * penalty
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    return step, judged, opt


@style
def clipped_critic() -> Style:
    judged = mlp(out=1)
    opt = optim.RMSprop(judged.parameters(), lr=5e-3)

    def step(x: Tensor, y: Tensor) -> float:
        opt.zero_grad()
        loss = -(judged(x).mean() - judged(torch.rand_like(x)).mean())
        loss.backward()
        opt.step()
        for p in judged.parameters():
            p.data.clamp_(-0.1, 0.1)
        return loss.item()

    return step, judged, opt


@style
def contrastive_queue() -> Style:
    """As MoCo: a momentum encoder, and a queue with a pointer, both buffers."""

    class MoCo(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder_q, self.encoder_k = mlp(out=5), mlp(out=5)
            for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters(), strict=True):
                k.data.copy_(q.data)
                k.requires_grad = False
            self.register_buffer("queue", F.normalize(torch.randn(5, 24), dim=0))
            self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

        @torch.no_grad()
        def enqueue(self, keys: Tensor) -> None:
            ptr = int(self.queue_ptr)
            assert 24 % keys.shape[0] == 0
            self.queue[:, ptr : ptr + keys.shape[0]] = keys.T
            ptr = (ptr + keys.shape[0]) % 24
            self.queue_ptr[0] = ptr

        def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
            q = F.normalize(self.encoder_q(q), dim=1)
            with torch.no_grad():
                pairs = zip(self.encoder_q.parameters(), self.encoder_k.parameters(), strict=True)
                for a, b in pairs:
                    b.data = b.data * 0.9 + a.data * 0.1
                k = F.normalize(self.encoder_k(k), dim=1)
            positive = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
            negative = torch.einsum("nc,ck->nk", [q, self.queue.clone().detach()])
            logits = torch.cat([positive, negative], dim=1) / 0.07
            labels = torch.zeros(logits.shape[0], dtype=torch.long)
            self.enqueue(k)
            return logits, labels

    net = MoCo()
    opt = optim.SGD(net.encoder_q.parameters(), 0.03, momentum=0.9, weight_decay=1e-4)

    def step(x: Tensor, y: Tensor) -> Tensor:
        out, target = net(x, x + 0.1 * torch.randn_like(x))
        loss = F.cross_entropy(out, target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    return step, net, opt


@style
def retained() -> Style:
    net = mlp()
    opt = optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> list[Tensor]:
        opt.zero_grad()
        out = net(x)
        first, second = F.cross_entropy(out, y), out.square().mean()
        first.backward(retain_graph=True)
        norms = [p.grad.norm() for p in net.parameters()]
        second.backward()
        opt.step()
        return norms

    return step, net, opt


@style
def tensor_hooks() -> Style:
    net = mlp()
    opt = optim.SGD(net.parameters(), lr=0.1)
    for p in net.parameters():
        p.register_hook(lambda grad: torch.clamp(grad, -0.05, 0.05))

    def step(x: Tensor, y: Tensor) -> Tensor:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss.detach()

    return step, net, opt


@style
def activation_hooks() -> Style:
    net = mlp()
    opt = optim.SGD(net.parameters(), lr=0.1)
    seen: dict[str, Tensor] = {}
    net[0].register_forward_hook(lambda module, args, out: seen.__setitem__("hidden", out.detach()))

    def step(x: Tensor, y: Tensor) -> Tensor:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y) + 0.01 * seen["hidden"].abs().mean()
        loss.backward()
        opt.step()
        return loss.detach()

    return step, net, opt, seen


@style
def local_hooks() -> Style:
    """A hook on an activation of this step, as Grad-CAM has it."""
    net = mlp()
    opt = optim.SGD(net.parameters(), lr=0.1)
    kept: list[Tensor] = []

    def step(x: Tensor, y: Tensor) -> Tensor:
        opt.zero_grad()
        hidden = net[0](x)
        hidden.register_hook(lambda grad: kept.append(grad.norm()))
        loss = F.cross_entropy(net[2](net[1](hidden)), y)
        loss.backward()
        opt.step()
        return loss.detach()

    return step, net, opt, kept


@style
def module_hooks() -> Style:
    net = mlp()
    opt = optim.SGD(net.parameters(), lr=0.1)
    norms: dict[str, float] = {}
    for name, child in net.named_children():
        child.register_full_backward_hook(
            lambda module, gi, go, name=name: norms.__setitem__(name, go[0].norm().item())
        )

    def step(x: Tensor, y: Tensor) -> Tensor:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss.detach()

    return step, net, opt, norms


@style
def step_in_backward() -> Style:
    net = mlp()
    opts = {p: optim.Adam([p], lr=0.01, foreach=False) for p in net.parameters()}

    def hook(p: Tensor) -> None:
        opts[p].step()
        opts[p].zero_grad()

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(hook)

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        return loss.detach()

    return step, net, *opts.values()


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return (x > 0).float()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return F.hardtanh(grad)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad * ctx.factor + 0 * x, None


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: float) -> Tensor:
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.neg() * ctx.alpha, None


@style
def custom_function() -> Style:
    net = mlp()
    opt = optim.Adam(net.parameters(), lr=0.01)

    def step(x: Tensor, y: Tensor) -> Tensor:
        opt.zero_grad()
        hidden = StraightThrough.apply(net[0](x))
        out = Scaled.apply(net[2](hidden), 2.0)
        loss = F.cross_entropy(out, y)
        loss.backward()
        opt.step()
        return loss.detach()

    return step, net, opt


@style
def domain_adversarial() -> Style:
    body, label, domain = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 2)
    net = nn.ModuleList([body, label, domain])
    opt = optim.SGD(net.parameters(), lr=0.05)
    progress = [0]

    def step(x: Tensor, y: Tensor) -> float:
        alpha = 2.0 / (1.0 + math.exp(-10 * progress[0] / 100)) - 1
        progress[0] += 1
        opt.zero_grad()
        features = torch.tanh(body(x))
        reversed_ = Reversed.apply(features, alpha)
        loss = F.cross_entropy(label(features), y) + F.cross_entropy(domain(reversed_), y % 2)
        loss.backward()
        opt.step()
        return loss.item()

    return step, net, opt


@style
def checkpointed() -> Style:
    net = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)] + [nn.Linear(4, 3)])
    opt = optim.AdamW(net.parameters(), lr=0.01)

    def step(x: Tensor, y: Tensor) -> Tensor:
        opt.zero_grad()
        for layer in list(net)[:3]:
            x = checkpoint(lambda h, layer=layer: torch.tanh(layer(h)), x, use_reentrant=False)
        loss = F.cross_entropy(net[3](x), y)
        loss.backward()
        opt.step()
        return loss.detach()

    return step, net, opt


@style
def checkpointed_reentrant() -> Style:
    net = mlp(nn.Dropout(0.1))
    opt = optim.AdamW(net.parameters(), lr=0.01)

    def step(x: Tensor, y: Tensor) -> Tensor:
        opt.zero_grad()
        x = x.requires_grad_()
        loss = F.cross_entropy(checkpoint_sequential(net, 2, x, use_reentrant=True), y)
        loss.backward()
        opt.step()
        return loss.detach()

    return step, net, opt


@style
def sharpness_aware() -> Style:
    net = mlp()
    opt = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    state: dict[Any, Tensor] = {}

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        with torch.no_grad():
            norm = torch.norm(torch.stack([p.grad.norm(p=2) for p in net.parameters()]), p=2)
            scale = 0.05 / (norm + 1e-12)
            for p in net.parameters():
                state[p] = p.data.clone()
                p.add_(p.grad * scale.to(p))
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        with torch.no_grad():
            for p in net.parameters():
                p.data = state[p]
        opt.step()
        opt.zero_grad()
        return loss.detach()

    return step, net, opt


@style
def meta_learning() -> Style:
    """As MAML: an inner step by hand, and through it the outer one."""
    net = mlp()
    opt = optim.Adam(net.parameters(), lr=0.01)

    def step(x: Tensor, y: Tensor) -> float:
        quick = dict(net.named_parameters())
        loss = F.cross_entropy(torch.func.functional_call(net, quick, (x[:3],)), y[:3])
        gradients = torch.autograd.grad(loss, list(quick.values()), create_graph=True)
        quick = {name: p - 0.1 * g for (name, p), g in zip(quick.items(), gradients, strict=True)}
        outer = F.cross_entropy(torch.func.functional_call(net, quick, (x[3:],)), y[3:])
        opt.zero_grad()
        outer.backward()
        opt.step()
        return outer.item()

    return step, net, opt


@style
def per_task_weights() -> Style:
    """Uncertainty weighting, and gradients of each task that are projected (PCGrad)."""
    net, weights = mlp(), nn.Parameter(torch.zeros(2))
    opt = optim.Adam([*net.parameters(), weights], lr=0.01)

    def step(x: Tensor, y: Tensor) -> list[float]:
        out = net(x)
        losses = [F.cross_entropy(out, y), out.pow(2).mean()]
        params = list(net.parameters())
        flat = [
            torch.cat([g.flatten() for g in torch.autograd.grad(loss, params, retain_graph=True)])
            for loss in losses
        ]
        if (flat[0] @ flat[1]) < 0:
            flat[0] = flat[0] - (flat[0] @ flat[1]) / flat[1].norm() ** 2 * flat[1]
        opt.zero_grad()
        total = sum(torch.exp(-w) * loss + w for w, loss in zip(weights, losses, strict=True))
        total.backward()
        at = 0
        for p in params:
            p.grad = (flat[0] + flat[1])[at : at + p.numel()].view_as(p).clone()
            at += p.numel()
        opt.step()
        return [loss.item() for loss in losses]

    return step, net, opt, weights


@style
def stateless_call() -> Style:
    """Parameters in a dictionary, a functional call and gradients by `torch.func`."""
    net = mlp()
    params = {name: p.detach().clone() for name, p in net.named_parameters()}

    def loss_of(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(net, params, (x,)), y)

    def step(x: Tensor, y: Tensor) -> Tensor:
        gradients, loss = torch.func.grad_and_value(loss_of)(params, x, y)
        for name, gradient in gradients.items():
            params[name] = params[name] - 0.1 * gradient
        return loss

    return step, params


@style
def noisy_gradients() -> Style:
    """Noise is added to each gradient, as DP-SGD does with those of the batch."""
    net = mlp()
    opt = optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        opt.zero_grad()
        sums = [torch.zeros_like(p) for p in net.parameters()]
        for i in range(3):
            loss = F.cross_entropy(net(x[i : i + 1]), y[i : i + 1])
            gradients = torch.autograd.grad(loss, list(net.parameters()))
            norm = torch.sqrt(sum(g.pow(2).sum() for g in gradients))
            factor = (1.0 / (norm + 1e-6)).clamp(max=1.0)
            for total, g in zip(sums, gradients, strict=True):
                total += g * factor
        for p, total in zip(net.parameters(), sums, strict=True):
            p.grad = total / 3 + torch.randn_like(p) * 0.01
        opt.step()
        return loss.detach()

    return step, net, opt
