"""Whole loops: trainers, averages, teachers, schedules of what is trained."""

from __future__ import annotations

import copy
import math
from collections import defaultdict, deque
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim
from torch.optim import lr_scheduler as schedules
from torch.optim import swa_utils

from .parts import Style, mlp, style


@style
def classic() -> Style:
    net = mlp()
    opt = optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    criterion = nn.CrossEntropyLoss()
    running = {"loss": 0.0, "correct": 0, "total": 0}

    def step(x: Tensor, y: Tensor) -> float:
        net.train()
        opt.zero_grad()
        out = net(x)
        loss = criterion(out, y)
        loss.backward()
        opt.step()
        running["loss"] += loss.item()
        running["total"] += y.size(0)
        running["correct"] += out.argmax(1).eq(y).sum().item()
        return running["loss"] / running["total"]

    return step, net, opt, running


@style
def trainer() -> Style:
    """As transformers' Trainer has it: a class, callbacks, a state, logs every few steps."""
    net = mlp(nn.Dropout(0.1))
    decay = [p for p in net.parameters() if p.ndim > 1]
    rest = [p for p in net.parameters() if p.ndim <= 1]

    class Trainer:
        def __init__(self) -> None:
            self.model = net
            self.args = SimpleNamespace(max_grad_norm=1.0, logging_steps=4, accumulation=2)
            self.optimizer = optim.AdamW(
                [{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}],
                lr=1e-2,
            )
            self.scheduler = schedules.LambdaLR(self.optimizer, lambda s: max(0.0, 1 - s / 100))
            self.state = SimpleNamespace(global_step=0, history=[], micro=0)
            self.tr_loss = torch.tensor(0.0)
            self.logged = 0.0

        def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
            labels = inputs.pop("labels")
            return F.cross_entropy(model(**inputs), labels)

        def training_step(self, inputs: dict[str, Tensor]) -> Tensor:
            self.model.train()
            loss = self.compute_loss(self.model, inputs) / self.args.accumulation
            loss.backward()
            return loss.detach()

        def step(self, x: Tensor, y: Tensor) -> Tensor:
            loss = self.training_step({"input": x, "labels": y})
            if torch.isnan(loss) or torch.isinf(loss):
                self.tr_loss += self.tr_loss / (1 + self.state.global_step)
            else:
                self.tr_loss += loss
            self.state.micro += 1
            if self.state.micro % self.args.accumulation == 0:
                norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
                self.optimizer.step()
                self.scheduler.step()
                self.model.zero_grad()
                self.state.global_step += 1
                if self.state.global_step % self.args.logging_steps == 0:
                    self.state.history.append(
                        {
                            "loss": round(self.tr_loss.item() / self.args.logging_steps, 4),
                            "grad_norm": norm.item(),
                            "learning_rate": self.scheduler.get_last_lr()[0],
                        }
                    )
                    self.tr_loss -= self.tr_loss
            return self.tr_loss.clone()

    it = Trainer()
    return it.step, net, it.optimizer, it.scheduler, it.state.history


@style
def nano_gpt() -> Style:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(8), nn.LayerNorm(8)
            self.c_attn, self.c_proj = nn.Linear(8, 24), nn.Linear(8, 8)
            self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

        def forward(self, x: Tensor) -> Tensor:
            b, t, c = x.size()
            q, k, v = self.c_attn(self.ln_1(x)).split(c, dim=2)
            q, k, v = (it.view(b, t, 2, c // 2).transpose(1, 2) for it in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))
            return x + self.mlp(self.ln_2(x))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wte, self.wpe = nn.Embedding(11, 8), nn.Embedding(6, 8)
            self.h = nn.ModuleList([Block(), Block()])
            self.lm_head = nn.Linear(8, 11, bias=False)
            self.wte.weight = self.lm_head.weight

        def forward(self, idx: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
            pos = torch.arange(0, idx.size(1), dtype=torch.long)
            x = self.wte(idx) + self.wpe(pos)
            for block in self.h:
                x = block(x)
            logits = self.lm_head(x)
            loss = F.cross_entropy(
                logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
            )
            return logits, loss

    net = GPT()
    opt = optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    told: list[str] = []
    state = {"iter": 0}

    def get_lr(it: int) -> float:
        if it < 3:
            return 1e-3 * (it + 1) / 4
        ratio = (it - 3) / 20
        return 1e-4 + 0.5 * (1.0 + math.cos(math.pi * ratio)) * 9e-4

    def step(x: Tensor, y: Tensor) -> None:
        lr = get_lr(state["iter"])
        for group in opt.param_groups:
            group["lr"] = lr
        tokens = (x * 5).long().abs() % 11
        for micro in range(2):
            _, loss = net(tokens, tokens.roll(micro + 1, 1))
            loss = loss / 2
            loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        lossf = loss.item() * 2
        told.append(f"iter {state['iter']}: loss {lossf:.4f}")
        state["iter"] += 1

    return step, net, opt, told


@style
def accumulation() -> Style:
    net = mlp()
    opt = optim.Adam(net.parameters(), lr=0.01)
    count = [0]

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(net(x), y) / 4
        loss.backward()
        count[0] += 1
        if count[0] % 4 == 0:
            opt.step()
            opt.zero_grad()
        return loss.detach()

    return step, net, opt


@style
def grad_scaler() -> Style:
    net = mlp()
    opt = optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3)

    def step(x: Tensor, y: Tensor) -> tuple[Tensor, float]:
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        return loss.detach(), scaler.get_scale()

    return step, net, opt, scaler


@style
def autocast_only() -> Style:
    net = mlp()
    opt = optim.AdamW(net.parameters(), lr=0.01)

    def step(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = net(x)
            loss = F.cross_entropy(out.float(), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    return step, net, opt


@style
def averaged() -> Style:
    """EMA by hand, over state dictionaries' items."""
    net = mlp()
    ema = copy.deepcopy(net).requires_grad_(False)
    opt = optim.Adam(net.parameters(), lr=0.01)

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for slow, quick in zip(ema.parameters(), net.parameters(), strict=True):
                slow.mul_(0.99).add_(quick.detach(), alpha=0.01)
        return loss.detach()

    return step, net, ema, opt


@style
def averaged_states() -> Style:
    net = mlp(nn.BatchNorm1d(8))
    ema = copy.deepcopy(net)
    opt = optim.SGD(net.parameters(), lr=0.1)
    updates = [0]

    @torch.no_grad()
    def update() -> None:
        updates[0] += 1
        d = 0.9999 * (1 - math.exp(-updates[0] / 2000))
        new = net.state_dict()
        for k, v in ema.state_dict().items():
            if v.dtype.is_floating_point:
                v *= d
                v += (1 - d) * new[k].detach()

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        update()
        return loss.detach()

    return step, net, ema, opt


@style
def averaged_model() -> Style:
    net = mlp()
    swa = swa_utils.AveragedModel(net)
    opt = optim.SGD(net.parameters(), lr=0.1)
    scheduler = swa_utils.SWALR(opt, swa_lr=0.05, anneal_epochs=4)

    def step(x: Tensor, y: Tensor) -> Tensor:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        swa.update_parameters(net)
        scheduler.step()
        return loss.detach()

    return step, net, swa, opt


@style
def averaged_model_ema() -> Style:
    net = mlp()
    swa = swa_utils.AveragedModel(net, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
    opt = optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        swa.update_parameters(net)
        return loss.detach()

    return step, net, swa, opt


@style
def mean_teacher() -> Style:
    student, teacher = mlp(nn.Dropout(0.2)), mlp(nn.Dropout(0.2))
    for param in teacher.parameters():
        param.detach_()
    opt = optim.Adam(student.parameters(), lr=0.01, weight_decay=1e-4)
    state = {"step": 0}

    def step(x: Tensor, y: Tensor) -> dict[str, float]:
        out = student(x + torch.randn_like(x) * 0.1)
        with torch.no_grad():
            target = teacher(x + torch.randn_like(x) * 0.1)
        weight = math.exp(-5.0 * (1 - min(state["step"], 6) / 6) ** 2)
        supervised = F.cross_entropy(out, y)
        consistency = F.mse_loss(out.softmax(1), target.softmax(1))
        loss = supervised + weight * consistency
        opt.zero_grad()
        loss.backward()
        opt.step()
        state["step"] += 1
        alpha = min(1 - 1 / (state["step"] + 1), 0.99)
        for slow, quick in zip(teacher.parameters(), student.parameters(), strict=True):
            slow.data.mul_(alpha).add_(quick.data, alpha=1 - alpha)
        return {"loss": loss.item(), "consistency": consistency.item()}

    return step, student, teacher, opt


@style
def ppo() -> Style:
    net = nn.ModuleDict({"actor": mlp(), "critic": mlp(out=1)})
    opt = optim.Adam(net.parameters(), lr=2.5e-3, eps=1e-5)
    fractions: list[float] = []

    def step(x: Tensor, y: Tensor) -> tuple[float, float, float]:
        with torch.no_grad():
            old = torch.distributions.Categorical(logits=net["actor"](x))
            actions = old.sample()
            old_log = old.log_prob(actions)
            values = net["critic"](x).flatten()
            returns = values + torch.randn_like(values)
            advantages = returns - values
        for epoch in range(2):
            dist = torch.distributions.Categorical(logits=net["actor"](x))
            ratio_log = dist.log_prob(actions) - old_log
            ratio = ratio_log.exp()
            with torch.no_grad():
                kl = ((ratio - 1) - ratio_log).mean()
                fractions.append(((ratio - 1.0).abs() > 0.2).float().mean().item())
            adv = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            policy = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 0.8, 1.2)).mean()
            value = net["critic"](x).view(-1)
            clipped = values + torch.clamp(value - values, -0.2, 0.2)
            value_loss = 0.5 * torch.max((value - returns) ** 2, (clipped - returns) ** 2).mean()
            loss = policy - 0.01 * dist.entropy().mean() + value_loss * 0.5
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
            if kl > 0.5:
                break
        return policy.item(), value_loss.item(), kl.item()

    return step, net, opt, fractions


@style
def dqn() -> Style:
    policy, target = mlp(), mlp()
    target.load_state_dict(policy.state_dict())
    opt = optim.AdamW(policy.parameters(), lr=1e-3, amsgrad=True)
    replay: deque[Any] = deque(maxlen=20)
    steps = [0]

    def step(x: Tensor, y: Tensor) -> float | None:
        replay.append((x, y, x.roll(1, 0), x.sum(1)))
        steps[0] += 1
        if len(replay) < 2:
            return None
        states, actions, after, rewards = (torch.cat(it) for it in zip(*list(replay)[-2:]))
        values = policy(states).gather(1, actions.unsqueeze(1))
        with torch.no_grad():
            best = target(after).max(1).values
        expected = best * 0.99 + rewards
        loss = nn.SmoothL1Loss()(values, expected.unsqueeze(1))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy.parameters(), 100)
        opt.step()
        if steps[0] % 3 == 0:
            new, old = policy.state_dict(), target.state_dict()
            for key in new:
                old[key] = new[key] * 0.1 + old[key] * 0.9
            target.load_state_dict(old)
        return loss.item()

    return step, policy, target, opt


class LoRA(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_a = nn.Linear(base.in_features, 2, bias=False)
        self.lora_b = nn.Linear(2, base.out_features, bias=False)
        self.scaling, self.dropout = 0.5, nn.Dropout(0.05)
        nn.init.zeros_(self.lora_b.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.lora_b(self.lora_a(self.dropout(x))) * self.scaling


@style
def lora() -> Style:
    net = nn.Sequential(LoRA(nn.Linear(4, 8)), nn.ReLU(), LoRA(nn.Linear(8, 3)))
    opt = optim.AdamW((p for p in net.parameters() if p.requires_grad), lr=0.01)

    def step(x: Tensor, y: Tensor) -> float:
        opt.zero_grad(set_to_none=True)
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss.item()

    return step, net, opt


@style
def unfreezing() -> Style:
    net = mlp()
    net[0].requires_grad_(False)
    opt = optim.Adam(net.parameters(), lr=0.01)

    def step(x: Tensor, y: Tensor) -> float:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss.item()

    return step, net, opt, lambda call: net[0].requires_grad_(call >= 4)


@style
def added_group() -> Style:
    net = mlp()
    opt = optim.AdamW(net[2].parameters(), lr=0.01)

    def step(x: Tensor, y: Tensor) -> float:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        return loss.item()

    def between(call: int) -> None:
        if call == 4:
            opt.add_param_group({"params": list(net[0].parameters()), "lr": 0.001})

    return step, net, opt, between


@style
def convolutional() -> Style:
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout2d(0.2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )
    opt = optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    def step(x: Tensor, y: Tensor) -> tuple[float, float]:
        images = x.view(6, 1, 2, 2)
        opt.zero_grad()
        out = net(images)
        loss = criterion(out, y)
        loss.backward()
        opt.step()
        _, predicted = out.max(1)
        return loss.item(), 100.0 * predicted.eq(y).sum().item() / y.size(0)

    return step, net, opt


@style
def mixup() -> Style:
    net = mlp()
    opt = optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        lam = torch.distributions.Beta(0.4, 0.4).sample()
        index = torch.randperm(x.size(0))
        out = net(lam * x + (1 - lam) * x[index])
        loss = lam * F.cross_entropy(out, y) + (1 - lam) * F.cross_entropy(out, y[index])
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    return step, net, opt


@style
def distillation() -> Style:
    student, teacher = mlp(), mlp().eval().requires_grad_(False)
    opt = optim.SGD(student.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> dict[str, float]:
        with torch.inference_mode():
            wanted = teacher(x)
        out = student(x)
        soft = F.kl_div(
            F.log_softmax(out / 2, -1), F.softmax(wanted.clone() / 2, -1), reduction="batchmean"
        )
        loss = 0.5 * soft * 4 + 0.5 * F.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return {"loss": loss.item(), "soft": soft.item()}

    return step, student, opt


@style
def variational() -> Style:
    net = nn.ModuleDict(
        {
            "enc": nn.Linear(4, 6),
            "mu": nn.Linear(6, 2),
            "var": nn.Linear(6, 2),
            "dec": nn.Linear(2, 4),
        }
    )
    opt = optim.Adam(net.parameters(), lr=1e-2)

    def step(x: Tensor, y: Tensor) -> float:
        hidden = F.relu(net["enc"](x))
        mu, logvar = net["mu"](hidden), net["var"](hidden)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
        bce = F.binary_cross_entropy(
            torch.sigmoid(net["dec"](z)), torch.sigmoid(x), reduction="sum"
        )
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        opt.zero_grad()
        (bce + kld).backward()
        opt.step()
        return (bce + kld).item()

    return step, net, opt


@style
def recurrent() -> Style:
    net = nn.ModuleDict({"rnn": nn.LSTM(4, 5, batch_first=True), "out": nn.Linear(5, 4)})
    opt = optim.Adam(net.parameters(), lr=0.01)
    kept: dict[str, Any] = {"hidden": None}

    def step(x: Tensor, y: Tensor) -> float:
        hidden = kept["hidden"]
        if hidden is not None:
            hidden = tuple(h.detach() for h in hidden)
        opt.zero_grad()
        out, hidden = net["rnn"](x.view(1, 6, 4), hidden)
        loss = F.mse_loss(net["out"](out), x.view(1, 6, 4).roll(-1, 1))
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.25)
        opt.step()
        kept["hidden"] = hidden
        return loss.item()

    return step, net, opt


@style
def skipped_when_bad() -> Style:
    """Skips a step whose gradients aren't finite."""
    net = mlp()
    opt = optim.SGD(net.parameters(), lr=0.1)
    skipped = [0]

    def step(x: Tensor, y: Tensor) -> float:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=False)
        if not torch.isfinite(norm):
            skipped[0] += 1
            return loss.item()
        opt.step()
        return loss.item()

    return step, net, opt, skipped


@style
def metric_logger() -> Style:
    """Meters, as detection and segmentation code keeps them."""

    class SmoothedValue:
        def __init__(self) -> None:
            self.deque: deque[float] = deque(maxlen=5)
            self.total, self.count = 0.0, 0

        def update(self, value: float, n: int = 1) -> None:
            self.deque.append(value)
            self.count += n
            self.total += value * n

        @property
        def global_avg(self) -> float:
            return self.total / self.count

    net = mlp()
    opt = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    meters: defaultdict[str, SmoothedValue] = defaultdict(SmoothedValue)

    def step(x: Tensor, y: Tensor) -> float:
        losses = {
            "class": F.cross_entropy(net(x), y),
            "l2": sum(p.norm() for p in net.parameters()) * 0.01,
        }
        total = sum(loss for loss in losses.values())
        value = total.item()
        if not math.isfinite(value):
            raise SystemExit(f"Loss is {value}, stopping training")
        opt.zero_grad()
        total.backward()
        opt.step()
        for name, loss in {**losses, "total": total}.items():
            meters[name].update(loss.item() if isinstance(loss, Tensor) else loss)
        return meters["total"].global_avg

    return step, net, opt


@style
def early_stop() -> Style:
    """Patience, a best loss, a copy of the best weights."""
    net = mlp()
    opt = optim.Adam(net.parameters(), lr=0.05)
    best: dict[str, Any] = {"loss": float("inf"), "weights": None, "bad": 0}

    def step(x: Tensor, y: Tensor) -> int:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        if loss.item() < best["loss"]:
            best["loss"] = loss.item()
            best["weights"] = {k: v.detach().clone() for k, v in net.state_dict().items()}
            best["bad"] = 0
        else:
            best["bad"] += 1
        return best["bad"]

    return step, net, opt, best
