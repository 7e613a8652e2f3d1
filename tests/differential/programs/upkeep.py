"""What training code does beside the network: clipping, averages, checks of gradients, hooks that keep things, early stopping, logs."""

from __future__ import annotations

import collections
import copy
import math
import statistics
from collections import defaultdict, deque
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..support.case import Corpus, t

case = Corpus()
LIMIT = 0.3
MOMENTUM = 0.9


def _limit(*_: Any) -> None:
    global LIMIT
    LIMIT = 0.1


def _momentum(*_: Any) -> None:
    global MOMENTUM
    MOMENTUM = 0.5


def batch() -> tuple[Tensor, ...]:
    return (t(6, 4), t(6, 2))


CRITIC = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
CRITIC_OPT = torch.optim.RMSprop(CRITIC.parameters(), lr=0.01)


@case(batch, change=_limit)
def clipped_critic(x: Tensor, y: Tensor) -> Any:
    CRITIC_OPT.zero_grad()
    loss = CRITIC(x).mean() - CRITIC(y @ y.T @ x).mean()
    loss.backward()
    CRITIC_OPT.step()
    for p in CRITIC.parameters():
        p.data.clamp_(-LIMIT, LIMIT)
    return loss.item()


@case(batch, change=_limit)
def clipped_by_assignment(x: Tensor, y: Tensor) -> Any:
    F.mse_loss(CRITIC(x), y).backward()
    for p in CRITIC.parameters():
        p.data = p.data.clamp(-LIMIT, LIMIT)
        p.grad = None
    return CRITIC(x)


ONLINE = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
TARGET = copy.deepcopy(ONLINE).requires_grad_(False)


@case(batch, change=_momentum)
def target_network(x: Tensor, y: Tensor) -> Any:
    with torch.no_grad():
        for q, k in zip(ONLINE.parameters(), TARGET.parameters(), strict=True):
            k.data = k.data * MOMENTUM + q.data * (1 - MOMENTUM)
        for q, k in zip(ONLINE.buffers(), TARGET.buffers(), strict=True):
            k.data.copy_(q.data)
    return ONLINE(x) - TARGET(x)


class Average:
    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.shadow = {n: p.data.clone() for n, p in model.named_parameters() if p.requires_grad}
        self.backup: dict[str, Tensor] = {}

    def update(self, model: nn.Module) -> None:
        for n, p in model.named_parameters():
            if p.requires_grad:
                self.shadow[n] = (1.0 - self.decay) * p.data + self.decay * self.shadow[n]

    def apply(self, model: nn.Module) -> None:
        for n, p in model.named_parameters():
            if p.requires_grad:
                self.backup[n] = p.data
                p.data = self.shadow[n]

    def restore(self, model: nn.Module) -> None:
        for n, p in model.named_parameters():
            if p.requires_grad:
                p.data = self.backup[n]
        self.backup = {}


AVERAGED = nn.Linear(4, 2)
AVERAGE = Average(AVERAGED, 0.9)
AVERAGED_OPT = torch.optim.SGD(AVERAGED.parameters(), lr=0.1)


def _decay(*_: Any) -> None:
    AVERAGE.decay = 0.5


@case(batch, change=_decay)
def shadow_weights(x: Tensor, y: Tensor) -> Any:
    AVERAGED_OPT.zero_grad()
    F.mse_loss(AVERAGED(x), y).backward()
    AVERAGED_OPT.step()
    AVERAGE.update(AVERAGED)
    AVERAGE.apply(AVERAGED)
    with torch.no_grad():
        out = AVERAGED(x)
    AVERAGE.restore(AVERAGED)
    return out, AVERAGED.weight.detach().clone()


PLAINLY = nn.Linear(4, 2)


@case(batch)
def descent_by_hand(x: Tensor, y: Tensor) -> Any:
    for p in PLAINLY.parameters():
        if p.grad is not None:
            p.grad.data.zero_()
    loss = F.mse_loss(PLAINLY(x), y)
    loss.backward()
    for p in PLAINLY.parameters():
        p.data.add_(p.grad.data, alpha=-0.1)
        p.data -= 0.01 * p.data
    return loss.data, PLAINLY.weight.data.norm()


@case(lambda: (t(3, 4, grad=True),))
def data_of_results(x: Tensor) -> Any:
    y = x * 2
    y.data = y.data + 1
    z = y.sum()
    z.backward()
    y.data.mul_(3)
    return y, x.grad, y.data_ptr() == y.data.data_ptr()


@case(lambda: (t(2, 3), t(4, 5)), keep=True)
def data_of_arguments(x: Tensor, y: Tensor) -> Any:
    before = x
    x.data = y.data[:2, :3]
    x.add_(1)
    return before is x, x.shape, y.sum()


@case(lambda: (t(2, 3),), keep=True)
def data_grows(x: Tensor) -> Any:
    x.data = torch.cat([x.data, x.data[:1]])
    return x.shape[0], x * 2


NETWORK = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
NETWORK_OPT = torch.optim.Adam(NETWORK.parameters(), lr=0.01)
SKIPPED = {"count": 0}
THRESHOLD = 1e6


def _threshold(*_: Any) -> None:
    global THRESHOLD
    THRESHOLD = 1e-3


@case(batch, change=_threshold)
def skips_bad_gradients(x: Tensor, y: Tensor) -> Any:
    NETWORK_OPT.zero_grad()
    loss = F.mse_loss(NETWORK(x), y)
    loss.backward()
    grads = [p.grad for p in NETWORK.parameters() if p.grad is not None]
    if any(torch.isnan(g).any() for g in grads) or any(g.abs().max() > THRESHOLD for g in grads):
        SKIPPED["count"] += 1
    else:
        NETWORK_OPT.step()
    return loss.item(), SKIPPED["count"]


@case(lambda: ([t(3), t(2, 2)],), again=lambda: ([t(3) * math.inf, t(2, 2)],))
def all_are_finite(xs: list[Tensor]) -> Any:
    if not all(torch.isfinite(x).all() for x in xs):
        return None
    return sum(x.sum() for x in xs)


@case(lambda: ([t(3), t(3), t(3)],), again=lambda: ([t(3), t(3) + 50, t(3) - 50],))
def extremes_of_tensors(xs: list[Tensor]) -> Any:
    low, high = min(x.min() for x in xs), max(x.max() for x in xs)
    widest = max(xs, key=lambda x: x.max() - x.min())
    ranked = sorted(range(len(xs)), key=lambda i: xs[i].norm().item(), reverse=True)
    total = sum(x.norm() ** 2 for x in xs) ** 0.5
    over = sum(1 for x in xs if x.mean() > 0)
    return low, high, widest, ranked, total, over


@case(lambda: ([t(3), t(3)], [t(3), t(3)]), again=lambda: ([torch.ones(3)], [torch.ones(3)]))
def all_close_pairs(xs: list[Tensor], ys: list[Tensor]) -> Any:
    same = all(torch.allclose(x, y) for x, y in zip(xs, ys, strict=True))
    near = any((x - y).abs().max().item() < 0.5 for x, y in zip(xs, ys, strict=True))
    first = next((i for i, x in enumerate(xs) if x.sum() > 0), None)
    bad = [i for i, x in enumerate(xs) if bool((x < 0).any())]
    return same, near, first, bad


CLIPPED = nn.Linear(4, 2)
NORMS: list[float] = []


@case(batch, change=_limit)
def clipping_by_hand(x: Tensor, y: Tensor) -> Any:
    CLIPPED.zero_grad()
    F.mse_loss(CLIPPED(x), y).backward()
    total = 0.0
    for p in CLIPPED.parameters():
        total += p.grad.data.norm(2).item() ** 2
    total = total**0.5
    NORMS.append(total)
    scale = LIMIT / (total + 1e-6)
    if scale < 1:
        for p in CLIPPED.parameters():
            p.grad.data.mul_(scale)
    return total, CLIPPED.weight.grad


class Probe:
    def __init__(self, model: nn.Module) -> None:
        self.acts: list[Tensor] = []
        self.named: dict[str, Tensor] = {}
        self.stats: dict[str, list[float]] = defaultdict(list)
        self.handles = [
            m.register_forward_hook(self.hook(n))
            for n, m in model.named_modules()
            if isinstance(m, nn.Linear)
        ]

    def hook(self, name: str) -> Any:
        def inner(module: nn.Module, inputs: Any, output: Tensor) -> None:
            self.acts.append(output.detach())
            self.named[name] = output.detach().clone()
            self.stats[name].append(output.std().item())

        return inner


PROBED = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
PROBE = Probe(PROBED)


def _unhook(*_: Any) -> None:
    PROBE.handles[0].remove()


@case(batch, change=_unhook)
def kept_activations(x: Tensor, y: Tensor) -> Any:
    PROBE.acts.clear()
    out = PROBED(x)
    return out, [a.shape for a in PROBE.acts], PROBE.named["2"].mean(), len(PROBE.stats["2"])


GRADS: list[Tensor] = []
GRAD_OF: dict[str, Tensor] = {}
HOOKED = nn.Linear(4, 2)
HOOKED.weight.register_hook(lambda g: GRADS.append(g.detach().clone()))
HOOKED.bias.register_hook(lambda g: GRAD_OF.__setitem__("bias", g * 2))


def _third(*_: Any) -> None:
    HOOKED.weight.register_hook(lambda g: g * 10)


@case(batch, change=_third)
def kept_gradients(x: Tensor, y: Tensor) -> Any:
    HOOKED.zero_grad()
    F.mse_loss(HOOKED(x), y).backward()
    return HOOKED.weight.grad, len(GRADS), GRADS[-1].norm(), GRAD_OF["bias"]


CAM = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))


@case(lambda: (t(1, 1, 4, 4),))
def class_activation(x: Tensor) -> Any:
    store: dict[str, Tensor] = {}

    def forward_hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
        store["act"] = output

    def backward_hook(module: nn.Module, grad_in: Any, grad_out: Any) -> None:
        store["grad"] = grad_out[0]

    h1 = CAM[0].register_forward_hook(forward_hook)
    h2 = CAM[0].register_full_backward_hook(backward_hook)
    CAM.zero_grad()
    scores = CAM(x)
    scores[0, scores.argmax()].backward()
    h1.remove()
    h2.remove()
    weights = store["grad"].mean(dim=(2, 3), keepdim=True)
    return F.relu((weights * store["act"]).sum(1)).detach()


@case(batch)
def hooks_of_inputs(x: Tensor, y: Tensor) -> Any:
    seen: list[Any] = []
    m = nn.Linear(4, 2)
    m.register_forward_pre_hook(lambda mod, args: seen.append(args[0].shape) or (args[0] + 1,))
    m.register_forward_hook(lambda mod, args, out: seen.append(out.detach()) or out * 2)
    return m(x), seen


class Stopping:
    def __init__(self, patience: int = 1) -> None:
        self.patience, self.best, self.bad, self.stopped = patience, math.inf, 0, False
        self.state: dict[str, Tensor] | None = None

    def __call__(self, loss: float, model: nn.Module) -> bool:
        if loss < self.best - 1e-4:
            self.best, self.bad = loss, 0
            self.state = {k: v.detach().clone() for k, v in model.state_dict().items()}
        else:
            self.bad += 1
            self.stopped = self.bad > self.patience
        return self.stopped


STOPPED = nn.Linear(4, 2)
STOPPING = Stopping()


@case(batch)
def early_stopping(x: Tensor, y: Tensor) -> Any:
    opt = torch.optim.SGD(STOPPED.parameters(), lr=0.2)
    for epoch in range(4):
        opt.zero_grad()
        loss = F.mse_loss(STOPPED(x), y)
        loss.backward()
        opt.step()
        with torch.no_grad():
            val = F.mse_loss(STOPPED(x + 1), y).item()
        if STOPPING(val, STOPPED):
            break
    if STOPPING.state is not None:
        STOPPED.load_state_dict(STOPPING.state)
    return epoch, STOPPING.best, STOPPED.weight


class Meters:
    def __init__(self, window: int = 3) -> None:
        self.recent: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=window))
        self.total: collections.Counter[str] = collections.Counter()

    def update(self, **values: Any) -> None:
        for k, v in values.items():
            if isinstance(v, Tensor):
                v = v.item()
            self.recent[k].append(v)
            self.total[k] += 1

    def __str__(self) -> str:
        parts = []
        for name, window in self.recent.items():
            parts.append(f"{name}: {statistics.median(window):.4f} ({max(window):.4f})")
        return "  ".join(parts)


METERS = Meters()


@case(batch)
def smoothed_meters(x: Tensor, y: Tensor) -> Any:
    METERS.update(loss=F.mse_loss(x[:, :2], y), lr=0.1, step=len(METERS.recent["loss"]))
    return str(METERS), dict(METERS.total)


HISTORY: list[dict[str, float]] = []


@case(batch)
def history_of_rows(x: Tensor, y: Tensor) -> Any:
    row = {"step": len(HISTORY), "loss": F.mse_loss(x[:, :2], y).item(), "mean": x.mean().item()}
    HISTORY.append(row)
    best = min(HISTORY, key=lambda r: r["loss"])
    mean = sum(r["loss"] for r in HISTORY) / len(HISTORY)
    print(" | ".join(f"{k}={v:.3f}" for k, v in row.items()))
    return best["step"], mean


SCALED = nn.Linear(4, 2)
SCALER = {"scale": 1024.0, "good": 0}


@case(batch, again=lambda: (t(6, 4) * math.inf, t(6, 2)))
def loss_scaling(x: Tensor, y: Tensor) -> Any:
    SCALED.zero_grad()
    (F.mse_loss(SCALED(x), y) * SCALER["scale"]).backward()
    found = False
    for p in SCALED.parameters():
        p.grad.data /= SCALER["scale"]
        found = found or not torch.isfinite(p.grad).all().item()
    if found:
        SCALER["scale"] /= 2
        SCALER["good"] = 0
    else:
        SCALER["good"] += 1
        for p in SCALED.parameters():
            p.data -= 0.1 * p.grad
    return found, SCALER["scale"]


ACCUMULATED = nn.Linear(4, 2)
ACCUMULATED_OPT = torch.optim.SGD(ACCUMULATED.parameters(), lr=0.1, momentum=0.9)
STEP = {"n": 0}


@case(batch)
def accumulated_gradients(x: Tensor, y: Tensor) -> Any:
    logs = []
    for xs, ys in zip(x.chunk(3), y.chunk(3), strict=True):
        loss = F.mse_loss(ACCUMULATED(xs), ys) / 2
        loss.backward()
        STEP["n"] += 1
        if STEP["n"] % 2 == 0:
            norm = nn.utils.clip_grad_norm_(ACCUMULATED.parameters(), 0.5)
            if not torch.isfinite(norm):
                print("bad")
            ACCUMULATED_OPT.step()
            ACCUMULATED_OPT.zero_grad()
            logs.append(norm)
    return logs, STEP["n"]


PRUNED = nn.Linear(4, 3)
MASKS: dict[str, Tensor] = {}


@case(batch)
def pruned_weights(x: Tensor, y: Tensor) -> Any:
    for n, p in PRUNED.named_parameters():
        if n.endswith("weight"):
            if n not in MASKS:
                k = int(0.5 * p.numel())
                MASKS[n] = (p.abs() > p.abs().flatten().kthvalue(k).values).float()
            p.data.mul_(MASKS[n])
    sparsity = sum((p == 0).sum().item() for p in PRUNED.parameters())
    return PRUNED(x), sparsity


@case(batch)
def state_put_back(x: Tensor, y: Tensor) -> Any:
    saved = {n: p.data.clone() for n, p in PRUNED.named_parameters()}
    for p in PRUNED.parameters():
        p.data += 0.5
    moved = PRUNED(x).detach()
    for n, p in PRUNED.named_parameters():
        p.data.copy_(saved[n])
    return moved - PRUNED(x)


NORMED = nn.Linear(4, 3)


@case(batch)
def weights_normed(x: Tensor, y: Tensor) -> Any:
    NORMED.weight.data = F.normalize(NORMED.weight.data, dim=1)
    NORMED.bias.data.fill_(0.5)
    return NORMED(x), NORMED.weight.data.norm(dim=1)


@case(batch)
def made_and_initialized(x: Tensor, y: Tensor) -> Any:
    m = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    for layer in m:
        if isinstance(layer, nn.Linear):
            layer.weight.data.normal_(0, 0.02)
            if layer.bias is not None:
                layer.bias.data.zero_()
        elif isinstance(layer, nn.BatchNorm1d):
            layer.weight.data.fill_(1.5)
    return m(x)


WATCHED: dict[str, dict[str, float]] = {}


@case(batch)
def gradient_statistics(x: Tensor, y: Tensor) -> Any:
    NETWORK.zero_grad()
    F.mse_loss(NETWORK(x), y).backward()
    for name, p in NETWORK.named_parameters():
        if p.grad is not None:
            WATCHED[name] = {
                "mean": p.grad.mean().item(),
                "ratio": (p.grad.norm() / (p.data.norm() + 1e-8)).item(),
            }
    worst = max(WATCHED, key=lambda n: WATCHED[n]["ratio"])
    return worst, {k: round(v["mean"], 4) for k, v in WATCHED.items()}


BEST = {"acc": 0.0, "epoch": -1}


@case(lambda: (t(8, 3), torch.randint(0, 3, (8,))))
def best_epoch(logits: Tensor, y: Tensor) -> Any:
    pred = logits.argmax(1)
    acc = (pred == y).float().mean().item()
    per = {
        c: ((pred == y) & (y == c)).sum().item() / max(1, (y == c).sum().item()) for c in range(3)
    }
    if acc > BEST["acc"]:
        BEST.update(acc=acc, epoch=BEST["epoch"] + 1)
    return per, max(per.values()), BEST["acc"] >= acc


@case(lambda: (t(8, 4), torch.randint(0, 4, (8,))))
def top_k(logits: Tensor, y: Tensor) -> Any:
    _, pred = logits.topk(3, 1)
    hit = pred.t().eq(y.view(1, -1).expand_as(pred.t()))
    res = []
    for k in (1, 3):
        res.append(hit[:k].reshape(-1).float().sum(0).mul_(100.0 / y.size(0)).item())
    return res, [*hit.any(0).tolist()]


@case(lambda: (t(3, 4),), again=lambda: (t(3, 4) * math.nan,))
def raises_for_data(x: Tensor) -> Any:
    if torch.isnan(x).any():
        raise ValueError(f"{int(torch.isnan(x).sum())} bad values in {tuple(x.shape)}")
    return x.log1p().nan_to_num()
