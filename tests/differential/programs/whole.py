"""Small whole programs as people write them: searches, environments, caches, trainers, registries, trees."""

from __future__ import annotations

import collections
import dataclasses
import functools
import heapq
import json
import logging
import math
import os
import random
import re
import string
import textwrap
import time
import typing
import uuid
from collections import Counter, defaultdict, deque
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch import Tensor, nn

from ..support.case import Corpus, one, t

case = Corpus()
LOG: list[Any] = []


@case(lambda: (t(5, 6), 2), again=lambda: (t(7, 6), 3))
def beam_search(logits: Tensor, width: int) -> Any:
    beams: list[tuple[float, list[int]]] = [(0.0, [])]
    for row in logits.log_softmax(-1):
        grown = []
        for score, seq in beams:
            top, idx = row.topk(width)
            for s, i in zip(top.tolist(), idx.tolist(), strict=True):
                grown.append((score + s, [*seq, i]))
        beams = heapq.nlargest(width, grown)
    return beams


@case(lambda: (torch.randint(0, 4, (12,)),))
def run_lengths(x: Tensor) -> Any:
    runs: list[list[int]] = []
    for v in x.tolist():
        if runs and runs[-1][0] == v:
            runs[-1][1] += 1
        else:
            runs.append([v, 1])
    return runs, torch.unique_consecutive(x, return_counts=True)


@case(lambda: ("the cat sat on the mat the end",), again=lambda: ("a b a c",))
def vocabulary(text: str) -> Any:
    counts = Counter(re.findall(r"\w+", text))
    vocab = {w: i for i, (w, _) in enumerate(counts.most_common())}
    ids = torch.tensor([vocab[w] for w in text.split()])
    table = torch.arange(30.0).view(15, 2)
    return table[ids].sum(0), vocab, ids


class Env:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.pos = 0

    def reset(self) -> Tensor:
        self.pos = 0
        return torch.zeros(2)

    def step(self, action: int) -> tuple[Tensor, float, bool, dict[str, Any]]:
        self.pos += 1 if action else -1
        noise = self.rng.random()
        return (
            torch.tensor([float(self.pos), noise]),
            float(self.pos > 0),
            abs(self.pos) >= 3,
            {"n": noise},
        )


ENV = Env(3)
POLICY = nn.Linear(2, 2)


@case(
    lambda: (),
)
def episode() -> Any:
    obs, done, steps, rewards, logps = ENV.reset(), False, 0, [], []
    while not done and steps < 10:
        dist = torch.distributions.Categorical(logits=POLICY(obs))
        action = dist.sample()
        logps.append(dist.log_prob(action))
        obs, reward, done, info = ENV.step(action.item())
        rewards.append(reward)
        steps += 1
    returns, g = deque(), 0.0
    for r in reversed(rewards):
        g = r + 0.9 * g
        returns.appendleft(g)
    rt = torch.tensor(list(returns))
    loss = -(torch.stack(logps) * (rt - rt.mean())).sum()
    POLICY.zero_grad()
    loss.backward()
    return loss, POLICY.weight.grad, steps


@dataclasses.dataclass
class Cache:
    keys: list[Tensor] = dataclasses.field(default_factory=list)
    size: int = 0

    def update(self, k: Tensor) -> Tensor:
        self.keys.append(k)
        self.size += k.shape[0]
        return torch.cat(self.keys)


@case(lambda: (t(4, 3), Cache()), keep=True)
def key_cache(x: Tensor, cache: Cache) -> Any:
    k = cache.update(x[:1])
    return (x @ k.T).softmax(-1) @ k, cache.size


REGISTRY: dict[str, Callable[..., Any]] = {}


def register(name: str) -> Any:
    def inner(f: Any) -> Any:
        REGISTRY[name] = f
        return f

    return inner


@register("double")
def _double(x: Tensor) -> Tensor:
    return x * 2


def _replace(*_: Any) -> None:
    REGISTRY["double"] = lambda x: x * 20
    REGISTRY["extra"] = torch.neg


@case(one, change=_replace)
def registries(x: Tensor) -> Any:
    for name in sorted(REGISTRY):
        x = REGISTRY[name](x)
    return x, getattr(F, "relu")(x), {"relu": nn.ReLU}["relu"]()(x)


class Bus:
    def __init__(self) -> None:
        self.handlers: dict[str, list[Any]] = defaultdict(list)

    def on(self, name: str) -> Any:
        return lambda f: self.handlers[name].append(f) or f

    def emit(self, name: str, *args: Any) -> list[Any]:
        return [h(*args) for h in self.handlers[name]]


BUS = Bus()


@BUS.on("batch")
def _note(x: Tensor) -> int:
    LOG.append(tuple(x.shape))
    return len(LOG)


def _subscribe(*_: Any) -> None:
    BUS.on("batch")(lambda x: x.sum() * 0 + 5)
    BUS.on("end")(lambda: "ended")


@case(one, change=_subscribe)
def event_bus(x: Tensor) -> Any:
    a = BUS.emit("batch", x)
    b = BUS.emit("end")
    return x * len(a) + a[0], b


@case(lambda: ({"a": t(2), "b": [t(3), (t(1), None)]},))
def trees(d: Any) -> Any:
    leaves, spec = pytree.tree_flatten(d)
    doubled = pytree.tree_map(lambda v: v * 2 if isinstance(v, Tensor) else v, d)
    return pytree.tree_unflatten([i for i, _ in enumerate(leaves)], spec), doubled, len(leaves)


@case(
    lambda: (t(4), '{"lr": 0.5, "layers": [1, 2], "name": "x"}'),
    again=lambda: (t(4), '{"lr": 2, "layers": []}'),
)
def json_config(x: Tensor, text: str) -> Any:
    cfg = json.loads(text)
    y = x * cfg["lr"] + sum(cfg["layers"])
    return y, json.dumps({"name": cfg.get("name", "none"), "n": len(cfg)}, sort_keys=True)


@case(one)
def files_and_paths(x: Tensor) -> Any:
    p = Path("a") / "b.txt"
    return (
        x + len(p.parts),
        p.suffix,
        str(p.with_suffix(".py")),
        os.path.join("x", "y"),
        os.environ.get("NOT_THERE", "d"),
        p.exists(),
    )


@case(one)
def logged(x: Tensor) -> Any:
    logger = logging.getLogger("uncommon")
    logger.debug("not shown %s", x.dim())
    if logger.isEnabledFor(logging.DEBUG):
        x = x + 100
    start = time.perf_counter()
    y = x * 2
    took = time.perf_counter() - start
    return y, took >= 0


@case(one)
def printed(x: Tensor) -> Any:
    for i, row in enumerate(x):
        print(i, "row", row.shape, sep="-", end=";")
    print(f"{x.numel():>5}", "done")
    return x + 1


@functools.lru_cache(maxsize=2)
def mask(n: int) -> Tensor:
    LOG.append(f"made {n}")
    return torch.ones(n, n).tril()


@case(lambda: (t(3, 3),), again=lambda: (t(4, 4),), change=lambda: mask.cache_clear())
def cached_masks(x: Tensor) -> Any:
    return x * mask(x.shape[0]), mask.cache_info().hits


def memo(f: Any) -> Any:
    table: dict[Any, Any] = {}

    @functools.wraps(f)
    def inner(*args: Any) -> Any:
        if args not in table:
            table[args] = f(*args)
        return table[args]

    inner.table = table
    return inner


@memo
def steps_to_one(n: int) -> int:
    return 0 if n == 1 else 1 + steps_to_one(n // 2 if n % 2 == 0 else 3 * n + 1)


@case(lambda: (t(2), 7), again=lambda: (t(2), 27))
def memoized(x: Tensor, n: int) -> Any:
    return x * steps_to_one(n) + len(steps_to_one.table)


class Trainer:
    def __init__(self) -> None:
        self.model = nn.Linear(3, 1)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.history: dict[str, list[float]] = {"loss": [], "norm": []}
        self.best = math.inf
        self.best_state: Any = None
        self.callbacks = [self.note, self.keep_best]

    def note(self, loss: float) -> None:
        self.history["loss"].append(loss)

    def keep_best(self, loss: float) -> None:
        if loss < self.best:
            self.best = loss
            self.best_state = {k: v.clone() for k, v in self.model.state_dict().items()}

    def step(self, x: Tensor, y: Tensor) -> float:
        self.opt.zero_grad(set_to_none=True)
        loss = F.mse_loss(self.model(x).squeeze(-1), y)
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in self.model.parameters()]).norm()
        self.history["norm"].append(float(norm))
        self.opt.step()
        for c in self.callbacks:
            c(loss.item())
        return loss.item()


TRAINER = Trainer()


@case(lambda: (t(4, 3), t(4)))
def trainer_step(x: Tensor, y: Tensor) -> Any:
    return TRAINER.step(x, y), TRAINER.best


@case(lambda: (t(6, 2),))
def kmeans(x: Tensor) -> Any:
    centers = x[:2].clone()
    for _ in range(5):
        near = torch.cdist(x, centers).argmin(1)
        new = torch.stack(
            [x[near == k].mean(0) if (near == k).any() else centers[k] for k in range(2)]
        )
        if torch.allclose(new, centers):
            break
        centers = new
    return centers, near, [(near == k).sum().item() for k in range(2)]


@case(lambda: (torch.tensor([[0.0, 2, 9], [2, 0, 1], [9, 1, 0]]),))
def shortest_paths(w: Tensor) -> Any:
    n = w.shape[0]
    dist = {i: math.inf for i in range(n)}
    dist[0], heap, done = 0.0, [(0.0, 0)], set()
    while heap:
        d, u = heapq.heappop(heap)
        if u in done:
            continue
        done.add(u)
        for v in range(n):
            nd = d + w[u, v].item()
            if nd < dist[v]:
                dist[v] = nd
                heapq.heappush(heap, (nd, v))
    return dist, sorted(done)


@case(
    lambda: (
        torch.tensor([0.9, 0.8, 0.3]),
        torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2.1], [5, 5, 6, 6]]),
    )
)
def suppression(scores: Tensor, boxes: Tensor) -> Any:
    keep = []
    order = scores.argsort(descending=True)
    while order.numel() > 0:
        i = order[0]
        keep.append(i.item())
        if order.numel() == 1:
            break
        rest = boxes[order[1:]]
        lt, rb = torch.max(boxes[i, :2], rest[:, :2]), torch.min(boxes[i, 2:], rest[:, 2:])
        wh = (rb - lt).clamp(min=0)
        inter = wh.prod(1)
        iou = inter / (
            (boxes[i, 2:] - boxes[i, :2]).prod() + (rest[:, 2:] - rest[:, :2]).prod(1) - inter
        )
        order = order[1:][iou <= 0.5]
    return keep


@case(lambda: (t(3, 4), torch.tensor([0.7, 0.2, 0.5])))
def early_exit(x: Tensor, conf: Tensor) -> Any:
    done = torch.zeros(3, dtype=torch.bool)
    for step in range(4):
        x = torch.where(done[:, None], x, x * 0.5)
        done |= conf > 0.6 - step * 0.2
        if done.all():
            break
    return x, step, done


@case(lambda: (t(2, 5), 0.9), again=lambda: (t(2, 5), 0.3))
def nucleus(logits: Tensor, p: float) -> Any:
    s, i = logits.sort(descending=True)
    keep = s.softmax(-1).cumsum(-1) <= p
    keep[..., 0] = True
    masked = logits.scatter(1, i, s.masked_fill(~keep, -math.inf))
    g = torch.Generator().manual_seed(0)
    return torch.multinomial(masked.softmax(-1), 3, replacement=True, generator=g)


class Meter:
    def __init__(self, name: str, fmt: str = ":.2f") -> None:
        self.name, self.fmt = name, fmt
        self.val = self.sum = self.count = 0.0

    def update(self, v: float, n: int = 1) -> None:
        self.val, self.sum, self.count = v, self.sum + v * n, self.count + n

    @property
    def avg(self) -> float:
        return self.sum / self.count if self.count else 0.0

    def __str__(self) -> str:
        return ("{name} {val" + self.fmt + "} ({avg" + self.fmt + "})").format(
            **self.__dict__, avg=self.avg
        )


METER = Meter("acc")


@case(lambda: (t(4, 3), torch.tensor([0, 1, 2, 0])))
def metered(x: Tensor, y: Tensor) -> Any:
    acc = (x.argmax(1) == y).float().mean()
    METER.update(acc.item(), x.size(0))
    return str(METER), METER.avg


@case(lambda: (t(4, 3), torch.tensor([0, 1, 2, 0])))
def confusion(x: Tensor, y: Tensor) -> Any:
    m = torch.zeros(3, 3, dtype=torch.long)
    for p, q in zip(x.argmax(1), y, strict=True):
        m[q, p] += 1
    per = m.diag() / m.sum(1).clamp(min=1)
    report = {f"class {i}": round(v, 3) for i, v in enumerate(per.tolist())}
    return m, report


@case(lambda: (t(3, 8),))
def augmented(x: Tensor) -> Any:
    np.random.seed(5)
    if random.random() < 0.5:
        x = x.flip(-1)
    start = random.randint(0, 3)
    x = x[:, start : start + 4]
    if np.random.rand() > 0.2:
        x = x + torch.randn_like(x) * 0.1
    order = np.random.permutation(3)
    lam = np.random.beta(1.0, 1.0)
    return x[order] * lam, random.choice(["a", "b"])


@case(lambda: (t(4, 2),))
def shuffled_batches(x: Tensor) -> Any:
    idx = list(range(len(x)))
    random.shuffle(idx)
    out = []
    for i in range(0, len(idx), 2):
        out.append(x[idx[i : i + 2]].sum())
    picked = random.sample(idx, 2)
    return out, picked


def lookup(path: str, root: Any) -> Any:
    return functools.reduce(getattr, path.split("."), root)


TREE = nn.ModuleDict({"enc": nn.Sequential(nn.Linear(3, 3), nn.ReLU()), "head": nn.Linear(3, 1)})


@case(lambda: (t(2, 3),))
def walked_modules(x: Tensor) -> Any:
    names = {n: type(m).__name__ for n, m in TREE.named_modules() if not list(m.children())}
    count = sum(p.numel() for p in TREE.parameters() if p.requires_grad)
    decay = [n for n, p in TREE.named_parameters() if p.ndim > 1]
    w = lookup("enc.0.weight", TREE)
    for m in TREE.modules():
        if isinstance(m, nn.Linear):
            x = x + m.weight.mean()
    return x, names, count, decay, w.shape


class Buffer:
    def __init__(self, n: int) -> None:
        self.data: deque[Any] = deque(maxlen=n)

    def push(self, *item: Any) -> None:
        self.data.append(item)

    def sample(self, k: int) -> Any:
        batch = random.sample(self.data, k)
        return tuple(torch.stack(c) for c in zip(*batch, strict=True))


REPLAY = Buffer(4)


@case(lambda: (t(3),))
def replay_buffer(x: Tensor) -> Any:
    REPLAY.push(x, x * 2)
    REPLAY.push(x + 1, x * 3)
    a, b = REPLAY.sample(2)
    return a + b, len(REPLAY.data)


@case(lambda: (t(3, 3),))
def power_iteration(a: Tensor) -> Any:
    a = a @ a.T
    v, old, n = torch.ones(3), 0.0, 0
    while True:
        w = a @ v
        v = w / w.norm()
        value = (v @ a @ v).item()
        n += 1
        if abs(value - old) < 1e-4 or n >= 30:
            break
        old = value
    return v, value, n


@case(lambda: (t(5),))
def bisection(x: Tensor) -> Any:
    lo, hi = -10.0, 10.0
    for _ in range(12):
        mid = (lo + hi) / 2
        if (x - mid).sum() > 0:
            lo = mid
        else:
            hi = mid
    return lo, hi, x.mean()


@case(lambda: (t(6),))
def windows(x: Tensor) -> Any:
    window: deque[Any] = collections.deque(maxlen=3)
    out = []
    for v in x:
        window.append(v)
        if len(window) == 3:
            out.append(sum(window) / 3)
    return torch.stack(out)


@case(lambda: (t(2, 3), "x y -> y x"), again=lambda: (t(2, 3), "x y -> x y"))
def tiny_einops(x: Tensor, pattern: str) -> Any:
    left, right = (s.split() for s in pattern.split("->"))
    order = [left.index(c) for c in right]
    letters = dict(zip(left, string.ascii_lowercase, strict=False))
    eq = "".join(letters[c] for c in left) + "->" + "".join(letters[c] for c in right)
    return x.permute(order), torch.einsum(eq, x), textwrap.shorten(pattern, 8)


class LazyConfig(dict):
    def __getattr__(self, k: str) -> Any:
        try:
            return self[k]
        except KeyError as error:
            raise AttributeError(k) from error

    def __setattr__(self, k: str, v: Any) -> None:
        self[k] = v

    def __missing__(self, k: str) -> Any:
        if k.startswith("n_"):
            return 4
        raise KeyError(k)


CFG = LazyConfig(scale=2.0, inner=LazyConfig(bias=1))


def _cfg(*_: Any) -> None:
    CFG.scale = 3.0
    CFG["n_heads"] = 7
    CFG.inner.bias = -1


@case(one, change=_cfg)
def attribute_dict(x: Tensor) -> Any:
    y = x * CFG.scale + CFG.inner.bias + CFG["n_heads"]
    CFG.calls = CFG.get("calls", 0) + 1
    return y, {**CFG}, hasattr(CFG, "nope")


@case(lambda: (t(4, 4),))
def hooks_to_outside(x: Tensor) -> Any:
    feats: dict[str, Tensor] = {}
    m = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    hs = [
        l.register_forward_hook(lambda mod, i, o, n=n: feats.__setitem__(n, o.detach()))
        for n, l in m.named_children()
    ]
    y = m(x)
    for h in hs:
        h.remove()
    return y, feats, len(m[0]._forward_hooks)


ACTS: list[Tensor] = []
PROBED = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
PROBED[0].register_forward_hook(lambda m, i, o: ACTS.append(o.detach().abs().mean()))


@case(lambda: (t(4, 4),))
def outside_hook_lists(x: Tensor) -> Any:
    y = PROBED(x)
    return y, ACTS[-1]


GRAD_LOG: dict[str, list[float]] = defaultdict(list)
WATCHED = nn.Linear(4, 1)
for _n, _p in WATCHED.named_parameters():
    _p.register_hook(lambda g, n=_n: GRAD_LOG[n].append(g.norm().item()))


@case(lambda: (t(4, 4),))
def gradients_logged(x: Tensor) -> Any:
    WATCHED.zero_grad()
    WATCHED(x).sum().backward()
    return WATCHED.weight.grad, {k: len(v) for k, v in GRAD_LOG.items()}


@case(lambda: (t(4, 4, grad=True), t(4, 4)))
def adversarial(x: Tensor, y: Tensor) -> Any:
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(3):
        loss = F.mse_loss(x.detach() + delta, y)
        loss.backward()
        with torch.no_grad():
            delta += 0.1 * delta.grad.sign()
            delta.clamp_(-0.2, 0.2)
        delta.grad.zero_()
    return (x + delta).detach(), loss


@case(lambda: (t(4, 4),))
def gradient_penalty(x: Tensor) -> Any:
    m = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    z = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(m(z).sum(), z, create_graph=True)
    pen = ((g.norm(dim=1) - 1) ** 2).mean()
    pen.backward()
    return pen, m[0].weight.grad


@case(lambda: (t(4, 4),))
def meta_learning(x: Tensor) -> Any:
    w = nn.Parameter(torch.eye(4))
    fast = w
    for _ in range(2):
        inner = (x @ fast).pow(2).mean()
        (g,) = torch.autograd.grad(inner, fast, create_graph=True)
        fast = fast - 0.1 * g
    (x @ fast).mean().backward()
    return w.grad


@case(lambda: (t(4, 4),))
def frozen_layers(x: Tensor) -> Any:
    m = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    for n, p in m.named_parameters():
        p.requires_grad = n.startswith("2")
    m[1].eval()
    opt = torch.optim.SGD(filter(lambda p: p.requires_grad, m.parameters()), lr=0.1)
    m(x).sum().backward()
    opt.step()
    return m[0].weight.grad, m[2].weight, len(opt.param_groups[0]["params"])


@case(lambda: (t(3, 4), [3, 1, 2]), again=lambda: (t(3, 4), [1, 4, 4]))
def ragged(x: Tensor, lens: list[int]) -> Any:
    rows = [x[i, :n] for i, n in enumerate(lens)]
    padded = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    m = torch.arange(max(lens))[None] < torch.tensor(lens)[:, None]
    return padded, m, padded.masked_fill(~m, -1).amax(1), [r.mean() for r in rows]


@case(one)
def generator_pipeline(x: Tensor) -> Any:
    def rows() -> Iterator[Tensor]:
        yield from x

    def scaled(src: Iterator[Tensor]) -> Iterator[Tensor]:
        for r in src:
            yield r * 2

    def batched(src: Iterator[Tensor], n: int) -> Iterator[list[Tensor]]:
        batch: list[Tensor] = []
        for r in src:
            batch.append(r)
            if len(batch) == n:
                yield batch
                batch = []
        if batch:
            yield batch

    return [torch.stack(b).sum(0) for b in batched(scaled(rows()), 2)]


@case(one)
def class_counter(x: Tensor) -> Any:
    class Op:
        made = 0
        names: typing.ClassVar[set[str]] = set()

        def __init__(self, name: str) -> None:
            type(self).made += 1
            self.names.add(name)
            self.id = Op.made

        def __call__(self, v: Tensor) -> Tensor:
            return v + self.id

    for op in [Op("a"), Op("b"), Op("a")]:
        x = op(x)
    return x, Op.made, sorted(Op.names)


@case(lambda: (t(3, 4),))
def tensor_keys(x: Tensor) -> Any:
    rows = list(x)
    ids = {r: i for i, r in enumerate(rows)}
    seen = {rows[1]}
    best = max(rows, key=lambda r: float(r.sum()))
    return ids[best], rows[1] in seen, rows[0] in seen, len(ids)


@case(lambda: (t(3, 4),))
def try_devices(x: Tensor) -> Any:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        y = x.to(device, non_blocking=True)
    except RuntimeError:
        y = x
    return (
        y,
        torch.backends.mps.is_available(),
        y.device.type,
        torch.get_num_threads() > 0,
        torch.__version__ >= "1.0",
        uuid.UUID(int=5).hex,
    )


@case(lambda: (t(3, 4),))
def assertions(x: Tensor) -> Any:
    assert x.shape[1] == 4, f"bad {x.shape}"
    assert not torch.isnan(x).any(), "nan"
    assert torch.all(x.abs() < 100)
    try:
        assert x.dim() == 3, "dims"
    except AssertionError as error:
        return x + 1, str(error)


@case(lambda: (t(3, 4),))
def schedule_closure(x: Tensor) -> Any:
    def warmup(total: int) -> Callable[[int], float]:
        def rate(step: int) -> float:
            return min(1.0, (step + 1) / total) * 0.5 * (1 + math.cos(math.pi * step / total))

        return rate

    m = nn.Linear(4, 2)
    opt = torch.optim.AdamW([{"params": [m.weight], "lr": 0.1}, {"params": [m.bias]}], lr=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, [warmup(4), lambda e: 0.5**e])
    for _ in range(2):
        opt.zero_grad()
        m(x).pow(2).sum().backward()
        opt.step()
        sched.step()
    return m.weight, [g["lr"] for g in opt.param_groups]
