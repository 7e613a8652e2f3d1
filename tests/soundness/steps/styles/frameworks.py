"""Steps in the manner of frameworks, and of what papers' repositories share: trainers, agents, diffusion, contrast."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim
from torch.distributions import Normal
from torch.optim import lr_scheduler as schedules

from .parts import Style, mlp, style


@style
def lightning_like() -> Style:
    """A module that says what a step is, callbacks, logged values, automatic optimization by a closure."""

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(nn.Dropout(0.1))
            self.logged: dict[str, Any] = {}
            self.automatic_optimization = True

        def log(self, name: str, value: Tensor | float, prog_bar: bool = False) -> None:
            self.logged[name] = value.detach() if isinstance(value, Tensor) else value

        def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> dict[str, Tensor]:
            x, y = batch
            out = self.net(x)
            loss = F.cross_entropy(out, y)
            self.log("train_loss", loss, prog_bar=True)
            self.log("train_acc", (out.argmax(-1) == y).float().mean())
            return {"loss": loss}

        def configure_optimizers(self) -> tuple[optim.Optimizer, Any]:
            optimizer = optim.AdamW(self.parameters(), lr=1e-2)
            return optimizer, schedules.StepLR(optimizer, 3, gamma=0.5)

    class Callback:
        def __init__(self) -> None:
            self.seen = 0

        def on_train_batch_start(self, trainer: Any, module: Module) -> None:
            module.train()

        def on_train_batch_end(self, trainer: Any, module: Module, outputs: Any) -> None:
            self.seen += 1

    class Trainer:
        def __init__(self, module: Module) -> None:
            self.module, self.callbacks = module, [Callback()]
            self.optimizer, self.scheduler = module.configure_optimizers()
            self.global_step, self.gradient_clip_val = 0, 0.5

        def call(self, hook: str, *args: Any) -> None:
            for callback in self.callbacks:
                function = getattr(callback, hook, None)
                if callable(function):
                    function(self, self.module, *args)

        def step(self, x: Tensor, y: Tensor) -> Tensor:
            self.call("on_train_batch_start")
            outputs: dict[str, Tensor] = {}

            def closure() -> Tensor:
                outputs.update(self.module.training_step((x, y), self.global_step))
                self.optimizer.zero_grad()
                outputs["loss"].backward()
                nn.utils.clip_grad_norm_(self.module.parameters(), self.gradient_clip_val)
                return outputs["loss"]

            self.optimizer.step(closure)
            self.scheduler.step()
            self.global_step += 1
            outputs = {name: value.detach() for name, value in outputs.items()}
            self.call("on_train_batch_end", outputs)
            return outputs["loss"]

    trainer = Trainer(Module())
    return trainer.step, trainer.module, trainer.optimizer, trainer.module.logged


@style
def accelerate_like() -> Style:
    """Wrapped optimizers and schedulers, `accumulate` as a context, gradients gathered at the end."""
    net = mlp()

    class GradientState:
        def __init__(self, steps: int) -> None:
            self.num_steps, self.sync_gradients, self.step = steps, True, 0

    class WrappedOptimizer:
        def __init__(self, optimizer: optim.Optimizer, state: GradientState) -> None:
            self.optimizer, self.state, self.skipped = optimizer, state, False

        def step(self) -> None:
            if self.state.sync_gradients:
                self.optimizer.step()

        def zero_grad(self) -> None:
            if self.state.sync_gradients:
                self.optimizer.zero_grad()

    class Accelerator:
        def __init__(self) -> None:
            self.state = GradientState(2)

        @contextmanager
        def accumulate(self, model: nn.Module) -> Iterator[None]:
            self.state.step += 1
            self.state.sync_gradients = self.state.step % self.state.num_steps == 0
            with nullcontext():
                yield

        def backward(self, loss: Tensor) -> None:
            (loss / self.state.num_steps).backward()

        def clip_grad_norm_(self, parameters: Any, max_norm: float) -> Tensor | None:
            if self.state.sync_gradients:
                return nn.utils.clip_grad_norm_(list(parameters), max_norm)
            return None

    accelerator = Accelerator()
    optimizer = WrappedOptimizer(optim.AdamW(net.parameters(), lr=1e-2), accelerator.state)
    scheduler = schedules.LambdaLR(optimizer.optimizer, lambda s: min(1.0, (s + 1) / 5))

    def step(x: Tensor, y: Tensor) -> Tensor:
        with accelerator.accumulate(net):
            loss = F.cross_entropy(net(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            if accelerator.state.sync_gradients:
                scheduler.step()
            optimizer.zero_grad()
        return loss.detach()

    return step, net, optimizer.optimizer


@style
def fastai_like() -> Style:
    """A learner with callbacks in order of events, which may cancel the rest of a batch."""

    class CancelBatch(Exception):
        pass

    class Learner:
        def __init__(self) -> None:
            self.model, self.loss_func = mlp(), nn.CrossEntropyLoss()
            self.opt = optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
            self.cbs: list[Any] = [Recorder(), Annealer(), Skipper()]
            self.iter, self.smooth, self.losses = 0, 0.0, []

        def __call__(self, name: str) -> None:
            for cb in sorted(self.cbs, key=lambda cb: cb.order):
                getattr(cb, name, lambda learn: None)(self)

        def one_batch(self, x: Tensor, y: Tensor) -> float:
            self.xb, self.yb = x, y
            try:
                self("before_batch")
                self.pred = self.model(self.xb)
                self.loss = self.loss_func(self.pred, self.yb)
                self("after_loss")
                self.loss.backward()
                self.opt.step()
                self.opt.zero_grad()
            except CancelBatch:
                self("after_cancel_batch")
            finally:
                self("after_batch")
                self.iter += 1
            return self.smooth

    class Recorder:
        order = 50

        def after_batch(self, learn: Learner) -> None:
            learn.smooth = 0.98 * learn.smooth + 0.02 * learn.loss.item()
            learn.losses.append(learn.smooth)

    class Annealer:
        order = 10

        def before_batch(self, learn: Learner) -> None:
            for group in learn.opt.param_groups:
                group["lr"] = 0.1 * (1 + math.cos(math.pi * learn.iter / 50)) / 2

    class Skipper:
        order = 20

        def after_loss(self, learn: Learner) -> None:
            if torch.isnan(learn.loss):
                raise CancelBatch

    learner = Learner()
    return learner.one_batch, learner.model, learner.opt, learner.losses


@style
def reinforce() -> Style:
    policy = mlp(out=3)
    opt = optim.Adam(policy.parameters(), lr=1e-2)

    def step(x: Tensor, y: Tensor) -> Tensor:
        log_probs, rewards = [], []
        for state in x:
            dist = torch.distributions.Categorical(F.softmax(policy(state), dim=-1))
            action = dist.sample()
            log_probs.append(dist.log_prob(action))
            rewards.append(state.sum() + action)
        returns, total = [], torch.zeros(())
        for reward in reversed(rewards):
            total = reward + 0.99 * total
            returns.insert(0, total)
        advantage = torch.stack(returns)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-9)
        loss = torch.stack([-p * a for p, a in zip(log_probs, advantage, strict=True)]).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    return step, policy, opt


@style
def soft_actor_critic() -> Style:
    actor, critics = mlp(out=4), nn.ModuleList([nn.Linear(6, 1), nn.Linear(6, 1)])
    targets = copy.deepcopy(critics).requires_grad_(False)
    log_alpha = nn.Parameter(torch.zeros(1))
    actor_opt = optim.Adam(actor.parameters(), lr=3e-3)
    critic_opt = optim.Adam(critics.parameters(), lr=3e-3)
    alpha_opt = optim.Adam([log_alpha], lr=3e-3)

    def act(state: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = actor(state).chunk(2, dim=-1)
        normal = Normal(mean, log_std.clamp(-5, 2).exp())
        raw = normal.rsample()
        action = torch.tanh(raw)
        log_prob = normal.log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)
        return action, log_prob.sum(-1, keepdim=True)

    def step(x: Tensor, y: Tensor) -> dict[str, float]:
        reward, after = x.sum(1, keepdim=True), x.roll(1, 0)
        alpha = log_alpha.exp().item()
        with torch.no_grad():
            action, log_prob = act(after)
            least = torch.min(*[target(torch.cat([after, action], 1)) for target in targets])
            goal = reward + 0.99 * (least - alpha * log_prob)
        taken = torch.tanh(x[:, :2])
        critic_loss = sum(F.mse_loss(q(torch.cat([x, taken], 1)), goal) for q in critics)
        critic_opt.zero_grad()
        critic_loss.backward()
        critic_opt.step()
        action, log_prob = act(x)
        values = torch.min(*[q(torch.cat([x, action], 1)) for q in critics])
        actor_loss = (alpha * log_prob - values).mean()
        actor_opt.zero_grad()
        actor_loss.backward()
        actor_opt.step()
        alpha_loss = -(log_alpha * (log_prob - 2.0).detach()).mean()
        alpha_opt.zero_grad()
        alpha_loss.backward()
        alpha_opt.step()
        with torch.no_grad():
            for p, q in zip(critics.parameters(), targets.parameters(), strict=True):
                q.data.mul_(0.995)
                q.data.add_(0.005 * p.data)
        return {"critic": critic_loss.item(), "actor": actor_loss.item(), "alpha": alpha}

    return step, actor, critics, targets, actor_opt, critic_opt, alpha_opt


@style
def diffusion() -> Style:
    """Denoising at random times, gathered coefficients, an average of the weights."""
    net = nn.Sequential(nn.Linear(4 + 8, 16), nn.SiLU(), nn.Linear(16, 4))
    ema, opt = copy.deepcopy(net), optim.AdamW(net.parameters(), lr=1e-3)
    betas = torch.linspace(1e-4, 0.02, 50)
    alphas = torch.cumprod(1 - betas, 0)
    counts = {"step": 0}

    def extract(values: Tensor, t: Tensor, shape: torch.Size) -> Tensor:
        return values.gather(-1, t).reshape(t.shape[0], *((1,) * (len(shape) - 1)))

    def embed(t: Tensor, dim: int) -> Tensor:
        frequencies = torch.exp(-math.log(10000) * torch.arange(dim // 2) / (dim // 2 - 1))
        args = t[:, None].float() * frequencies[None, :]
        return torch.cat([args.sin(), args.cos()], dim=-1)

    def step(x: Tensor, y: Tensor) -> float:
        t = torch.randint(0, 50, (x.shape[0],)).long()
        noise = torch.randn_like(x)
        kept = extract(alphas.sqrt(), t, x.shape)
        noisy = kept * x + extract((1 - alphas).sqrt(), t, x.shape) * noise
        found = net(torch.cat([noisy, embed(t, 8)], 1))
        weight = extract(alphas, t, x.shape).clamp(min=0.1)
        loss = (weight * F.mse_loss(found, noise, reduction="none")).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        counts["step"] += 1
        decay = min(0.999, (1 + counts["step"]) / (10 + counts["step"]))
        with torch.no_grad():
            for own, other in zip(ema.parameters(), net.parameters(), strict=True):
                own.lerp_(other, 1 - decay)
        return loss.item()

    return step, net, ema, opt, counts


@style
def simclr() -> Style:
    """Two views, NT-Xent with a mask, LARS-like scaling by hand."""
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 6))
    opt = optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss()

    def info_nce(features: Tensor, views: int, temperature: float) -> tuple[Tensor, Tensor]:
        batch = features.shape[0] // views
        labels = torch.cat([torch.arange(batch) for _ in range(views)], dim=0)
        labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()
        features = F.normalize(features, dim=1)
        similarity = torch.matmul(features, features.T)
        mask = torch.eye(labels.shape[0], dtype=torch.bool)
        labels = labels[~mask].view(labels.shape[0], -1)
        similarity = similarity[~mask].view(similarity.shape[0], -1)
        positives = similarity[labels.bool()].view(labels.shape[0], -1)
        negatives = similarity[~labels.bool()].view(similarity.shape[0], -1)
        logits = torch.cat([positives, negatives], dim=1)
        return logits / temperature, torch.zeros(logits.shape[0], dtype=torch.long)

    def step(x: Tensor, y: Tensor) -> tuple[float, float]:
        views = torch.cat([x + 0.1 * torch.randn_like(x), x * (torch.rand_like(x) > 0.1)], 0)
        logits, labels = info_nce(net(views), 2, 0.07)
        loss = criterion(logits, labels)
        opt.zero_grad()
        loss.backward()
        for p in net.parameters():
            if p.ndim > 1 and p.grad is not None:
                scale = 0.001 * p.norm() / (p.grad.norm() + 1e-6)
                p.grad.mul_(torch.clamp(scale, max=1.0))
        opt.step()
        hits = (logits.argmax(1) == labels).float().mean()
        return loss.item(), hits.item() * 100

    return step, net, opt


@style
def feature_distillation() -> Style:
    """Forward hooks, with and without keywords, pre-hooks and handles that stay."""
    teacher = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 3))
    teacher, student = teacher.eval().requires_grad_(False), mlp()
    match = nn.Linear(8, 12)
    opt = optim.Adam([*student.parameters(), *match.parameters()], lr=1e-2)
    features: dict[str, Tensor] = {}

    def keep(name: str, module: nn.Module, args: Any, out: Tensor) -> None:
        features[name] = out

    def scale(module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Any]) -> Any:
        return tuple(arg * 1.5 for arg in args), kwargs

    teacher[1].register_forward_hook(partial(keep, "teacher"))
    student[1].register_forward_hook(partial(keep, "student"))
    student[0].register_forward_pre_hook(scale, with_kwargs=True)
    student[2].register_forward_hook(lambda module, args, out: out / 2)

    def step(x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            soft = F.softmax(teacher(x) / 2.0, dim=-1)
        out = student(x)
        hard = F.cross_entropy(out, y)
        kl = F.kl_div(F.log_softmax(out / 2.0, dim=-1), soft, reduction="batchmean") * 4
        hint = F.mse_loss(match(features["student"]), features["teacher"])
        loss = 0.5 * hard + 0.4 * kl + 0.1 * hint
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        features.clear()
        return loss.detach()

    return step, student, match, opt


class Quantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        distances = x.pow(2).sum(1, keepdim=True) - 2 * x @ codes.t() + codes.pow(2).sum(1)
        indices = distances.argmin(1)
        ctx.save_for_backward(indices, codes)
        ctx.mark_non_differentiable(indices)
        return codes.index_select(0, indices), indices

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor | None]:
        given = None
        if ctx.needs_input_grad[1]:
            indices, codes = ctx.saved_tensors
            given = torch.zeros_like(codes)
            given.index_add_(0, indices, grad)
        return grad.clone(), given


@style
def vector_quantized() -> Style:
    """A codebook, straight through by a custom function, with a commitment."""
    encoder, decoder = nn.Linear(4, 3), nn.Linear(3, 4)
    codes = nn.Parameter(torch.randn(6, 3))
    net = nn.ModuleList([encoder, decoder])
    opt = optim.Adam([*net.parameters(), codes], lr=1e-2)

    def step(x: Tensor, y: Tensor) -> tuple[float, Tensor]:
        z = encoder(x)
        quantized, indices = Quantize.apply(z, codes.detach())
        chosen = torch.index_select(codes, 0, indices)
        recon = F.mse_loss(decoder(quantized), x)
        loss = recon + F.mse_loss(chosen, z.detach()) + 0.25 * F.mse_loss(z, chosen.detach())
        opt.zero_grad()
        loss.backward()
        opt.step()
        usage = F.one_hot(indices, 6).float().mean(0)
        perplexity = torch.exp(-torch.sum(usage * torch.log(usage + 1e-10)))
        return loss.item(), perplexity

    return step, net, opt, codes


class SAM(optim.Optimizer):
    def __init__(self, params: Any, base: Callable[..., optim.Optimizer], rho: float, **kw: Any):
        super().__init__(params, {"rho": rho, **kw})
        self.base = base(self.param_groups, **kw)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self, zero_grad: bool = False) -> None:
        norm = torch.norm(
            torch.stack(
                [
                    p.grad.norm(p=2)
                    for group in self.param_groups
                    for p in group["params"]
                    if p.grad is not None
                ]
            ),
            p=2,
        )
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.state[p]["old_p"] = p.data.clone()
                p.add_(p.grad * scale.to(p))
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad: bool = False) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data = self.state[p]["old_p"]
        self.base.step()
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        closure = torch.enable_grad()(closure)
        self.first_step(zero_grad=True)
        closure()
        self.second_step()


@style
def sam_optimizer() -> Style:
    net = mlp()
    opt = SAM(net.parameters(), optim.SGD, rho=0.05, lr=0.1, momentum=0.9)

    def step(x: Tensor, y: Tensor) -> Tensor:
        def closure() -> Tensor:
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            return loss

        loss = closure()
        opt.step(closure)
        opt.zero_grad()
        return loss.detach()

    return step, net, opt.base


@style
def mixed_and_accumulated() -> Style:
    """A scaler, autocast, accumulation, clipping, a schedule, and an average whose decay warms up."""
    net = mlp(nn.Dropout(0.1))
    ema = copy.deepcopy(net).eval().requires_grad_(False)
    opt = optim.AdamW(net.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
    scheduler = schedules.CosineAnnealingLR(opt, 20)
    state = SimpleNamespace(micro=0, updates=0)

    def step(x: Tensor, y: Tensor) -> float:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(net(x), y, label_smoothing=0.1) / 2
        scaler.scale(loss).backward()
        state.micro += 1
        if state.micro % 2 == 0:
            scaler.unscale_(opt)
            norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad(set_to_none=True)
            scheduler.step()
            state.updates += 1
            decay = 0.99 * (1 - math.exp(-state.updates / 10))
            for own, other in zip(
                ema.state_dict().values(), net.state_dict().values(), strict=True
            ):
                if own.dtype.is_floating_point:
                    own *= decay
                    own += (1 - decay) * other.detach()
            return norm.item()
        return loss.item()

    return step, net, ema, opt
