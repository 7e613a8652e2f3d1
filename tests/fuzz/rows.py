"""What random tensor programs are made of: statements about tensors, and about Python's own objects beside them.

A row is several templates, apart by ` | `. In one, `{t}` and `{u}` are any tensors, `{f}` and `{g}` float ones, `{i}` one
of integers, `{n}` a number, `{c}` a condition; in a block, a line `%` is one or two statements.
"""

from __future__ import annotations

PREAMBLE = """
import collections
import contextlib
import dataclasses
import enum
import functools
import heapq
import itertools
import math
import operator
import types
import warnings
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x * x * n

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return grad * 2 * x * ctx.n, None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.gru = nn.GRU(4, 4)
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.seen += 1
        x = F.gelu(self.inner(x))
        if x.dim() == 2 and x.shape[0] > 1:
            x = self.norm(x)
        return self.drop(x)


def world():
    torch.manual_seed(3)
    s = types.SimpleNamespace()
    s.net, s.table = Net(), nn.Embedding(10, 4)
    s.w, s.b = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4))
    s.buffer, s.mask = torch.randn(4), torch.tensor([True, False, True, True])
    s.kept, s.named, s.last, s.count, s.rate = [], {}, None, 0, 0.5
    s.sgd = torch.optim.SGD([s.w, s.b], lr=0.1, momentum=0.9)
    s.adam = torch.optim.AdamW(s.net.parameters(), lr=0.01)
    s.schedule = torch.optim.lr_scheduler.StepLR(s.sgd, 2, 0.5)
    return objects(s)


def scaled(x, by=2.0, *, add=0):
    return x * by + add


def twice(f, x):
    return f(f(x))


class Called(TorchFunctionMode):
    def __init__(self, s):
        super().__init__()
        self.s = s

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.s.kept.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    def __init__(self, s):
        super().__init__()
        self.s = s

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.s.kept.append(str(func))
        return func(*args, **(kwargs or {}))


class Pair(NamedTuple):
    left: Any
    right: Any = None


@dataclasses.dataclass
class Point:
    at: Any
    scale: float = 1.0
    tags: list = dataclasses.field(default_factory=list)

    def moved(self, by):
        return dataclasses.replace(self, at=self.at + by)


@dataclasses.dataclass(frozen=True, order=True)
class Key:
    name: str
    size: int = 0


class Mode(enum.Enum):
    SLOW = 1
    FAST = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Meter:
    def __init__(self):
        self.total, self.times, self._best = 0.0, 0, None

    @property
    def mean(self):
        return self.total / max(self.times, 1)

    @property
    def best(self):
        return self._best

    @best.setter
    def best(self, value):
        self._best = value if self._best is None else max(self._best, value)

    def update(self, value, times=1):
        self.total += value * times
        self.times += times
        return self

    def __len__(self):
        return self.times

    def __bool__(self):
        return self.times > 0

    def __call__(self, value):
        return self.update(float(value)).mean

    def __getitem__(self, key):
        return getattr(self, key)

    def __contains__(self, key):
        return hasattr(self, key)

    def __iter__(self):
        yield self.total
        yield self.times

    def __enter__(self):
        self.times += 1
        return self

    def __exit__(self, kind, error, trace):
        self.total += 1
        return kind is ZeroDivisionError

    def __eq__(self, other):
        return isinstance(other, Meter) and self.total == other.total

    __hash__ = None

    def __getattr__(self, name):
        if name.startswith("no_"):
            return name[3:]
        raise AttributeError(name)


class Registry(dict):
    def __missing__(self, key):
        self[key] = value = []
        return value

    def add(self, key):
        def enter(fn):
            self[key] = fn
            return fn
        return enter


class Slots:
    __slots__ = ("value", "next")

    def __init__(self, value, next=None):
        self.value, self.next = value, next


class Base:
    kind = "base"
    made = 0

    def __init_subclass__(cls, **named):
        cls.label = cls.__name__.lower()

    def run(self, x):
        return x + 1

    @classmethod
    def make(cls, *given):
        cls.made += 1
        return cls(*given)

    @staticmethod
    def half(x):
        return x / 2


class Derived(Base):
    kind = "derived"

    def __init__(self, by=2):
        self.by = by

    def run(self, x):
        return super().run(x) * self.by

    @functools.cached_property
    def once(self):
        return self.by * 10


def pieces(x, n):
    for k in range(max(1, int(n))):
        got = yield x * k
        if got is not None:
            x = got


def averaged():
    total, count = 0.0, 0
    value = yield
    while True:
        total, count = total + value, count + 1
        value = yield total / count


@contextlib.contextmanager
def noted(s, name):
    s.kept.append(f"+{name}")
    try:
        yield name
    except ArithmeticError:
        s.kept.append("arith")
    finally:
        s.kept.append(f"-{name}")


def logged(fn):
    @functools.wraps(fn)
    def wrapper(*given, **named):
        wrapper.calls += 1
        return fn(*given, **named)
    wrapper.calls = 0
    return wrapper


@logged
def weighted(x, *others, weight=1.0, **rest):
    for other in others:
        x = x + other * weight
    return x * rest.get("scale", 1)


@functools.lru_cache(maxsize=8)
def cached(n, kind="a"):
    return n * 2 + len(kind)


@functools.singledispatch
def shown(value):
    return "other"


@shown.register
def _(value: int):
    return f"int {value}"


@shown.register
def _(value: torch.Tensor):
    return f"tensor {tuple(value.shape)}"


def nested(value, fn):
    if isinstance(value, torch.Tensor):
        return fn(value)
    if isinstance(value, dict):
        return {key: nested(item, fn) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(nested(item, fn) for item in value)
    return value


def power(x, n):
    return x if n <= 1 else x * power(x, n - 1)


def objects(s):
    s.meter, s.registry, s.deque = Meter(), Registry(), collections.deque(maxlen=3)
    s.counter, s.order, s.groups = collections.Counter(), collections.OrderedDict(), collections.defaultdict(list)
    s.point, s.derived, s.chain, s.mode, s.level = Point(torch.ones(4)), Derived(3), None, Mode.SLOW, Level.LOW
    s.heap, s.seen, s.stats, s.hist = [], set(), {"loss": [], "best": None}, []
    s.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
    s.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Sequential(nn.Linear(4, 4), nn.ReLU())})
    s.act = {"relu": F.relu, "tanh": torch.tanh, "id": lambda x: x}
    return s
"""

VALUES = """
{f} + {g} | {f} * {g} | {f} - {g} | {f} / {g} | {f} @ s.w | {f}.matmul({g}.t()) | {f} ** 2 | -{f} | {f} * {n} | {n} - {f}
{f}.sin() | {f}.exp() | torch.relu({f}) | F.gelu({f}) | F.softmax({f}, -1) | F.layer_norm({f}, (4,)) | torch.sigmoid({f}) | {f}.abs().sqrt()
{f}.tanh() * s.rate | torch.where({f} > 0, {f}, {g}) | torch.clamp({f}, -1, 1) | torch.maximum({f}, {g}) | {f}.clamp(min=s.count) | torch.lerp({f}, {g}, 0.5)
{t}.sum() | {t}.sum(0) | {f}.mean() | {f}.mean(-1, keepdim=True) | {t}.max() | {t}.max(-1).values | {t}.argmax(-1) | {f}.norm() | {t}.cumsum(0)
{t}.amax(0) | {f}.var(0) | {f}.std(-1, unbiased=False) | {f}.logsumexp(-1) | {t}.prod(-1) | {t}.any() | {t}.sort(0)[0] | {t}.flip(0) | {t}.roll(1, 0)
{t}.t() | {t}[0] | {t}[-1] | {t}[1:] | {t}[..., ::2] | {t}[:, 1] | {t}[None] | {t}.reshape(-1) | {t}.view(-1) | {t}.unsqueeze(0) | {t}.squeeze()
{t}.expand(2, *{t}.shape) | {t}.flatten() | {t}.chunk(2)[0] | {t}.chunk(2, -1)[1] | {t}.unbind(0)[0] | {t}.diagonal() | {t}.transpose(0, -1) | {t}.contiguous()
{t}.split(2)[0] | {t}.narrow(0, 0, 1) | {t}.select(-1, 0) | {t}.as_strided((2,), (1,)) | {t}.view_as({u}) | {t}.movedim(0, -1) | {t}.unfold(-1, 2, 1)
{t}.detach() | {t}.clone() | {t}.float() | {t}.double() | {t}.to(torch.int64) | {t}.to({u}.dtype) | {t}.bfloat16() | {t}.bool() | {t}.type_as({u}) | {t}.data
{t} > 0 | {t} == {u} | {f} < {g} | ({t} > 0) & ({u} < 1) | ~({t} > 0) | {f}.isnan() | {t}.eq({n}) | {t}.ne(0).int()
{t}[{i} % {t}.shape[0]] | {t}[{t} > 0] | {t}.index_select(0, {i}.flatten() % {t}.shape[0]) | {t}.gather(0, torch.zeros_like({t}, dtype=torch.int64)) | {t}.nonzero() | {t}.masked_fill({t} > 1, 0)
torch.unique({t}) | {t}.topk(1, dim=-1).values | torch.bincount({i}.flatten().abs()) | {t}.repeat(2, 1) | torch.tril({t}) | {t}.repeat_interleave(2, 0) | torch.masked_select({t}, {t} > 0)
torch.cat([{t}, {u}]) | torch.stack([{f}, {f}]) | torch.cat([{f}, {g}], -1) | torch.stack(list({t}.unbind(0))) | torch.vstack([{t}, {u}]) | torch.cat([{f}.mean(0, keepdim=True), {g}])
torch.zeros_like({t}) | torch.ones({t}.shape) | torch.full((2,), {n}) | torch.arange({t}.shape[0]) | torch.zeros({n} % 4 + 1, 4) | torch.tensor({n}) | torch.tensor([1.0, {n}]) | torch.eye({t}.shape[-1])
{t}[:n] | {t}[:, :n] | {t}[n:] | {t}[..., -n:] | {t}[:n].contiguous() | {t}[:, :n].contiguous() | {t}.t()[:, :n].contiguous() | {t}.sort(0)[0][:, :n].contiguous() | {t}.narrow(0, 0, n) | {t}.split(n)[0] | {t}.chunk(n)[0]
{t}.reshape({t}.shape[0], -1) | {t}.reshape(-1, {t}.shape[-1]) | {t}.t().reshape(-1) | {t}.transpose(0, -1).reshape({t}.shape[0], -1) | {t}.flatten(0, 1) | {t}.unflatten(-1, (2, -1)) | {t}.view(*{t}.shape, 1) | {t}.view(-1, n) | {t}.t().contiguous()
F.pad({f}, (0, n)) | F.pad({t}, (0, 0, n, 1)) | {t}.repeat(n, 1) | {t}.expand(n, *{t}.shape) | torch.arange(n) | torch.linspace(0, 1, n) | {t}.new_zeros({t}.size(0), n) | torch.full({t}.shape, n) | torch.cat([{t}, {t}[:n]]) | {f} / {t}.shape[0] | {f} * {t}.numel()
torch.ones({t}.shape[0], {t}.shape[0]).tril() | torch.zeros({t}.shape) | {f}.new_ones({t}.shape[::-1]) | torch.broadcast_to({t}, (n, *{t}.shape)) | torch.meshgrid({t}[:, 0], {t}[0], indexing="ij")[0] | {t}[torch.arange({t}.shape[0]) % n] | {t}[::n] | {t}.unfold(0, n, 1) | {f}.sum() / n
torch.rand_like({f}) | torch.randn(2, 4) | F.dropout({f}, 0.5) | torch.randperm({t}.shape[0]) | torch.bernoulli({f}.sigmoid()) | torch.randint(0, 9, (3,)) | torch.multinomial(F.softmax({f}, -1), 1)
s.w | s.b | s.buffer | s.last if s.last is not None else {f} | s.kept[-1] if s.kept else {f} | s.named.get("a", {f}) | s.w.grad if s.w.grad is not None else {f} | s.b.data
s.net({f}) | s.table({i} % 10) | F.linear({f}, s.w, s.b) | s.net.norm({f}) | s.net.gru({f})[0] | torch.vmap(lambda r: r.sin() * 2)({f}) | torch.func.grad(lambda r: (r * r).sum())({f})
Twice.apply({f}, {n}) | checkpoint(F.gelu, {f}, use_reentrant=False) | scaled({f}, by=s.rate) | scaled({f}, add={n}) | twice(torch.sin, {f}) | twice(lambda r: r * s.rate, {f}) | sum([{f}, {f}])
torch.einsum("...i,ij->...j", {f}, s.w) | F.cross_entropy({f}, {f}.argmax(-1)) | F.mse_loss({f}, {g}) | F.pad({f}, (1, 0)) | F.one_hot({i} % 5, 5) | torch.outer(s.b, {f}.flatten()) | F.normalize({f}, dim=-1)
F.scaled_dot_product_attention({f}, {f}, {f}) | torch.cdist({f}, {g}) | torch.linalg.norm({f}, dim=-1) | F.avg_pool1d({f}, 2) | F.interpolate({f}[None], scale_factor=2) | torch.bucketize({f}, s.buffer.sort()[0])
torch.autograd.grad(({f} * s.w).sum(), s.w)[0] | torch.autograd.grad({f}.sum(), s.b, allow_unused=True)[0] or {f} | torch.complex({f}, {f}).abs() | torch.fft.rfft({f}).real | torch.view_as_complex({f}[..., :2].contiguous()).abs()
Pair({t}, {u}).left | Pair({f})[0] | Pair({f}, {n})._replace(left={g}).left | Point({f}).moved({n}).at | s.point.at + {f} | s.derived.run({f}) | Base().run({f}) | Base.half({f}) | Derived.make({n}).run({f}) | s.derived.once * {f}
weighted({f}, {f}, weight=s.rate) | weighted({f}, *[{f}] * 2, scale={n}) | weighted(*({f},), **dict(weight={n})) | functools.reduce(torch.add, [{f}, {f}, {f}]) | functools.partial(scaled, by={n})({f}) | functools.reduce(operator.mul, [{f}] * 2, s.rate)
power({f}, 3) | power({f}, n) | nested([{t}, ({u}, {n})], torch.sin)[0] | nested(dict(a={f}), lambda r: r * s.rate)["a"] | nested(({f}, [{g}]), torch.neg)[1][0] | sum(pieces({f}, 3)) | sum(pieces({f}, n)) | list(pieces({f}, 2))[-1] | next(pieces({f}, n)) + 1
torch.stack([p for p in pieces({f}, 2)]) | max([{f}, {g}], key=lambda r: r.sum()) | sorted([{f}, {g}], key=lambda r: float(r.sum()))[0] | min({t}.unbind(0), key=torch.sum) | [r for r in {t} if r.sum() > 0][0] | dict(zip("ab", ({f}, {g})))["b"] | list(map(torch.sin, ({f}, {g})))[1]
[{f}, {g}][n > 2] | ({f}, {g})[-1] | [*{t}.unbind(0), {u}][0] | list(reversed({t}.unbind(0)))[0] | next(iter({t})) | list(itertools.chain([{f}], [{g}]))[1] | list(itertools.accumulate([{f}, {f}]))[-1] | [r for k, r in enumerate({t}) if k % 2 == 0][0]
s.act["relu"]({f}) | s.act.get("gelu", torch.sigmoid)({f}) | getattr(torch, "sin")({f}) | getattr({f}, "abs")() | operator.itemgetter(0)({t}) | operator.attrgetter("at")(s.point) + {f} | operator.methodcaller("mul", {n})({f}) | (lambda *a, **k: a[0] * k["b"])({f}, b={n})
s.layers[0]({f}) | s.layers[n % 3]({f}) | s.heads["b"]({f}) | [layer({f}) for layer in s.layers][-1] | s.layers[-1].weight @ {f}.t() | functools.reduce(lambda r, m: m(r), s.layers, {f}) | nn.Sequential(*s.layers[:2])({f}) | s.heads["a"]({f}) | torch.cat([h({f}) for h in s.heads.values()], -1)
s.groups["a"][-1] if s.groups["a"] else {f} | s.order.get("x", {f}) | s.deque[-1] if s.deque else {f} | s.chain.value if s.chain else {f} | s.stats["best"] if s.stats["best"] is not None else {f} | s.hist[-1] if s.hist else {f} | s.registry["list"][0] if s.registry["list"] else {f}
(y_ := {f} * 2) + y_ | {t}[(slice(None), 0)] | {t}[slice(0, n)] | {t}[[0, -1]] | {t}[..., None, :] | {t}[torch.tensor([0, 0])] | {t}[{t}.shape[0] // 2] | {t}[True] | {t}[:, [0, 2]] | {t}[::2, 1:] | {t}[-n:] | {t}[Level.LOW]
(torch.sin if s.mode is Mode.SLOW else torch.cos)({f}) | {f} * s.level | {f} * Level.HIGH.value | {f} + s.meter.mean | {f} * len(s.meter) | {f} + s.meter["total"] | {f} * cached(n) | {f} + cached(int(s.rate), kind="b") | {f} * (shown(n) == "int 2") | {f} * s.derived.by
"""

NUMBERS = """
n | {t}.shape[0] | {t}.numel() | {t}.dim() | len({t}) | s.count | int(s.rate * 4) | {t}.shape[-1] // 2 | {t}.size(0) * 2 - 1 | int({f}.sum()) % 5 | {i}.sum().item() | max({t}.shape[0], n)
round({f}.mean().item(), 2) | {f}.max().item() | len(s.kept) | {t}.stride(0) | {t}.storage_offset() | n + 1 | -n | n % 3 | n * s.rate | {t}.shape[0] + {u}.shape[0] | float({t}.sum() > 0) | int({t}.any())
{t}.shape[0] % 3 | {t}.shape[0] * {u}.shape[-1] | {t}.numel() // 3 | {t}.shape[0] - n | {t}.size(-1) + n | ({t}.shape[0] + 3) // 4 * 4 - {t}.shape[0] | max(1, {t}.shape[0] // 2) | {t}.is_contiguous() + n
{t}.ndim + n | math.sqrt({t}.numel()) | math.floor(s.rate) | s.sgd.param_groups[0]["lr"] | {t}.nelement() if {t}.requires_grad else n | min(n, {t}.shape[0]) | sum({t}.shape) | {t}._version % 7
len(Pair(n, n)) | Pair(n, 2).right | s.meter.mean | len(s.meter) | s.meter.total | sum(s.meter) | cached(n) | len(s.deque) | len(s.seen) | s.counter["a"] | sum(s.counter.values()) | s.point.scale | s.derived.by | s.derived.once | Base.made | weighted.calls
s.level + n | Level.HIGH | s.mode.value | len(s.groups["a"]) | len(s.order) | len(s.heap) | s.heap[0] if s.heap else n | max(map(int, {t}.shape)) | sum(r.numel() for r in {t}.unbind(0)) | len(f"{{n}}") | int("12"[:n]) | divmod({t}.shape[0], 2)[0]
{t}.shape.numel() | len([k for k in range({t}.shape[0]) if k % 2]) | functools.reduce(operator.mul, {t}.shape, 1) | sorted({t}.shape)[0] | abs(n - 3) | round(n / 3, 1) | pow(n, 2) | n // 2 | hash(Key("a", 1)) % 5 | (n << 1) if isinstance(n, int) else n | ord("abc"[n % 3]) | math.prod({t}.shape)
any(r.sum() > 0 for r in {t}) + 1 | len(list(pieces(1, n))) | next((k for k, r in enumerate({t}) if r.sum() > 0), 5) | len({{*{t}.shape}}) | len(s.stats["loss"]) | int(s.meter.best or 0) | len(s.layers) | sum(p.numel() for p in s.layers.parameters()) % 7 | int(bool(s.meter)) | len(str({t}.dtype))
"""

WRITES = """
{t}.add_(1) | {t}.mul_(2) | {f}.add_({g}) | {f} += {g} | {f} *= s.rate | {t}[0] = {n} | {t}[..., 0] = {u}[..., 0] | {f}[{f} > 1] = 0.5 | {t}.copy_({u}) | {t}.zero_() | {t}.fill_({n}) | {t}[:] = {u}
{t}.t_() | {t}.unsqueeze_(0) | {t}.squeeze_() | {t}.requires_grad_(True) | {f}.requires_grad_() | {t}.detach_() | {f}.data = {g} | {f}.data.mul_(0.5) | {t}.swapaxes_(0, -1) | {f}.clamp_(-1, 1) | {f}.relu_()
{f}.normal_() | {f}.uniform_(0, 1) | {f}.bernoulli_(0.5) | F.relu({f}, inplace=True) | F.dropout({f}, 0.5, inplace=True) | {t}.masked_fill_({t} > 0, 1) | {t}.index_fill_(0, {i}.flatten() % {t}.shape[0], 2) | {f}.addmm_({f}, s.w)
{t}.index_add_(0, torch.arange({t}.shape[0]), {t}) | {t}.scatter_(0, torch.zeros_like({t}, dtype=torch.int64), {t}) | {f}.lerp_({g}, 0.5) | torch.add({f}, {g}, out={f}) | torch.sum({f}, 0, out=s.buffer) | torch._foreach_add_([s.buffer, {f}], 1.0)
{t}.resize_(0) | {t}.set_({u}) | {f}.exp_() | {t}.view(-1)[0] = {n} | {t}[1:].add_(1) | {t}.diagonal().add_(1) | {t}.unbind(0)[0].mul_(3) | {t}.expand(2, *{t}.shape)[0].add_(1)
s.last = {t} | s.kept.append({t}) | s.kept.append({n}) | s.named["a"] = {f} | s.count += 1 | s.count = {n} | s.rate *= 0.5 | s.buffer.copy_({f}.flatten()[:4]) | s.buffer = {f}.detach() | s.buffer.lerp_({f}.detach(), 0.1) | s.kept.clear() | s.last = None
s.w.data.mul_(0.9) | s.w.data = s.w.data * 0.5 | s.w.grad = None | s.b.grad = torch.ones(4) | s.w.grad.zero_() | s.b.requires_grad_(not s.b.requires_grad) | s.net.train(not s.net.training) | s.net.norm.eval() | s.table.weight.data[0] = 0
({f}.float() * 1.0).sum().backward() | ({f} * s.b).sum().backward() | F.linear({f}, s.w, s.b).mean().backward() | s.net({f}).sum().backward() | (s.w * s.b).sum().backward() | s.table({i} % 10).sum().backward() | {f}.sum().backward(retain_graph=True)
s.sgd.step() | s.sgd.zero_grad() | s.sgd.zero_grad(set_to_none=False) | s.adam.step() | s.adam.zero_grad() | s.schedule.step() | nn.utils.clip_grad_norm_([s.w, s.b], 1.0) | s.sgd.param_groups[0]["lr"] *= 0.5
{f}.register_hook(lambda grad: grad * 2) | {f}.retain_grad() | {f}.register_hook(s.kept.append) | s.w.register_post_accumulate_grad_hook(lambda p: s.kept.append(1)) | torch.manual_seed({n} % 9) | torch.set_grad_enabled(True)
print({n}) | s.kept.append(f"{{{n}:.2f}}") | s.named[f"k{{n}}"] = {n} | s.kept.append({t}.tolist()) | s.kept.append(list({t}.shape)) | assert {c} | s.kept.append(float({f}.sum())) | s.named.setdefault("r", []).append({f}.mean().item()) | s.kept.append({t}.is_contiguous())
s.meter.update({f}.mean().item()) | s.meter.update({n}) | s.meter({f}.sum()) | s.meter.best = {n} | s.meter.times += 1 | del s.meter.total; s.meter.total = 0.5 | s.deque.append({f}) | s.deque.append({n}) | s.deque.appendleft({f}.detach()) | s.deque.extend([1, {f}]) | s.deque.clear()
s.counter["a"] += 1 | s.counter.update("ab") | s.counter[n] += 1 | s.order["x"] = {f} | s.order.move_to_end("x") if "x" in s.order else None | s.order.pop("x", None) | s.groups["a"].append({f}) | s.groups[n % 2].append({n}) | s.groups.clear() | s.registry["list"].append({f}) | s.registry.add("f")(scaled)
s.point.at = {f} | s.point.tags.append({n}) | s.point = s.point.moved({n}) | s.point = dataclasses.replace(s.point, scale={n}) | s.point.scale *= 0.5 | s.derived.by = {n} | s.derived.by += 1 | vars(s.derived).pop("once", None) | Base.made += 1 | s.derived = Derived({n}) | setattr(s.derived, "by", {n}) | s.derived.__dict__["by"] = 4
s.chain = Slots({f}, s.chain) | s.chain = s.chain.next if s.chain else None | s.mode = Mode.FAST | s.mode = Mode["SLOW"] | s.mode = Mode(2) | s.level = Level.HIGH | s.level = Level(1) | heapq.heappush(s.heap, {n}) | heapq.heappush(s.heap, round({f}.sum().item(), 3)) | heapq.heappop(s.heap) if s.heap else None
s.seen.add({n}) | s.seen.add(tuple({t}.shape)) | s.seen.discard(2) | s.seen |= {{1, 2}} | s.seen.add(Key("a", int(n))) | s.stats["loss"].append({f}.mean().item()) | s.stats["best"] = {f} | s.stats.update(best=None, n={n}) | s.stats.setdefault("list", []).append({n}) | s.hist.append({f}.detach()) | s.hist[:] = s.hist[-2:] | s.hist.insert(0, {f}) | s.hist.reverse() | s.hist += [{f}]
a, *b = {t}.shape; s.kept.append((a, b)) | (a, b), c = ({n}, 2), {f}; s.last = c | s.kept.append(" ".join(map(str, {t}.shape))) | s.kept.append("%d %s" % ({t}.shape[0], {n})) | s.kept.append("{{}}-{{:>4}}".format({n}, {t}.dim())) | s.kept.append(shown({t})) | s.kept.append(repr({n})) | s.kept.append(str({t}.shape)) | s.kept.append(f"{{n!r:>5}} {{s.mode.name}}")
s.kept.append(Key("b", 2) in {{Key("b", 2): 1}}) | s.kept.append(sorted([Key("b", 2), Key("a", 3)])) | s.kept.append({{k: v for k, v in zip("abc", {t}.shape)}}) | s.kept.append(s.meter == Meter()) | s.kept.append("mean" in s.meter) | s.kept.append(s.meter.no_name) | s.kept.append(list(itertools.pairwise(range(3)))) | s.kept.append(type(s.derived).label) | s.kept.append(isinstance(s.derived, Base))
s.kept.append(list(s.deque)) | s.kept.append(s.counter.most_common(1)) | s.kept.append([*s.groups]) | s.kept.append(list(s.order)) | s.kept.append(max(s.stats["loss"], default=0)) | s.kept.append(sum(1 for p in s.layers.parameters() if p.grad is not None))
s.layers.append(nn.Linear(4, 4)) if len(s.layers) < 5 else None | s.layers[0].weight.requires_grad_(False) | s.heads["c"] = nn.Identity() | s.layers[1] = nn.Identity() | s.layers.train(not s.layers.training) | s.layers[0].extra = {n} | s.layers.zero_grad() | s.heads["b"]({f}).sum().backward() | sum(layer({f}).sum() for layer in s.layers).backward() | s.layers.requires_grad_(True)
[p.data.mul_(0.9) for p in s.layers.parameters()] | s.layers.apply(lambda m: s.kept.append(type(m).__name__)) | s.kept.append([k for k, v in s.layers.named_parameters() if v.requires_grad]) | s.layers.load_state_dict({{k: v * 0.5 for k, v in s.layers.state_dict().items()}}, strict=False) | s.act["id"] = torch.neg | s.act.pop("tanh", None) | for p in s.layers.parameters(): p.grad = None
"""

TESTS = """
{t}.sum() > 0 | {f}.mean() < {n} | {t}.shape[0] > 2 | {t}.shape[0] % 2 == 0 | s.count > 1 | n > 2 | {f}.isnan().any() | {t}.requires_grad | {t}.is_contiguous() | {t}.dtype == torch.float32 | {t}.numel() | torch.equal({t}, {u}) | {t}.any()
{t}.max() == {n} | s.last is None | {t} is {u} | len(s.kept) > 2 | {f}.grad_fn is None | {t}.dim() == 2 | s.net.training | torch.is_grad_enabled() | {t}.shape == {u}.shape | {f}.norm().item() > 3 | (n > 1 and {f}.sum() > 0) | torch.allclose({f}, {g}) | {t}.is_leaf
s.mode is Mode.SLOW | s.level > Level.LOW | s.level == 3 | s.meter | "a" in s.counter | s.chain is None | n in s.seen | isinstance(s.hist, list) and s.hist | s.stats["best"] is None | any(r.sum() > 0 for r in {t}) | all({t}.shape) | callable(s.derived.run) | hasattr(s.layers[0], "extra")
s.meter.best and s.meter.best > 1 | not s.deque | len(s.heap) > 1 and s.heap[0] < n | isinstance({t}, nn.Parameter) | {t}.shape[-1:] == (4,) | 0 < n <= 2 | {f}.sum() > s.meter.mean | n == s.derived.by | s.act.get("tanh") | type(n) is int | {t}.dim() in (1, 2) | {t}.dtype in {{torch.float32, torch.int64}} | s.point.scale < 1 | bool(s.counter)
"""

BLOCKS = (
    "if {c}:\n%\nelse:\n%",
    "if {c}:\n%",
    "for k in range({t}.shape[0] % 5):\n%",
    "for k in range(3):\n%\n    if {c}:\n        break",
    "k = 0\nwhile k < 3 and {c}:\n    k += 1\n%",
    "if {t}.shape[0] > n:\n%\nelif {t}.shape[-1] == {u}.shape[-1]:\n%",
    "for k in range(0, {t}.shape[0], max(1, int(n))):\n    s.kept.append({t}[k:k + 2].sum())\n%",
    "for row in {t}:\n    s.kept.append(row.sum())\n%",
    "with torch.no_grad():\n%",
    "with torch.enable_grad():\n%",
    "with torch.autocast('cpu', torch.bfloat16):\n%",
    "with torch.random.fork_rng():\n%",
    "with torch.inference_mode():\n%",
    "try:\n%\nexcept (RuntimeError, IndexError, ValueError, TypeError, AttributeError) as error:\n    s.kept.append(type(error).__name__)",
    "try:\n%\nfinally:\n%",
    "try:\n%\n    if {c}:\n        raise KeyError(n)\nexcept KeyError as error:\n%",
    "def inner(r, k=n):\n%\n    return r * 2\nx = inner(x)",
    "s.kept.extend([r * 2 for r in {t}])",
    "if {c}:\n    return {t}, {n}\n%",
    "with noted(s, n):\n%",
    "with s.meter as m:\n%\n    s.kept.append(m.times)",
    "with noted(s, 'a'), s.meter:\n%\n    1 / (n - 2)",
    "with contextlib.suppress(RuntimeError, ZeroDivisionError):\n%\n    1 / (n - 2)",
    "with contextlib.ExitStack() as stack:\n    stack.enter_context(noted(s, 'x'))\n    stack.callback(s.kept.append, n)\n%",
    "match {n}:\n    case 2 | 3:\n    %\n    case int(k) if k < 0:\n    %\n    case _:\n    %",
    "match {t}.shape:\n    case (r, 4):\n    %\n        s.kept.append(r)\n    case [r, *rest]:\n    %\n    case ():\n    %",
    "match s.point:\n    case Point(at=a, scale=1.0):\n        s.kept.append(a.sum())\n    %\n    case Point(tags=[]):\n    %",
    "for k, (name, head) in enumerate(s.heads.items()):\n    if name == 'c':\n        continue\n    s.kept.append(head({f}).sum())\n%",
    "for k, layer in enumerate(s.layers):\n    x = layer(x) if k != n else x\n%",
    "for a, b in zip({t}, {u}):\n    s.kept.append((a * b).sum())\n%",
    "for part in pieces({f}, n):\n    s.hist.append(part)\n%",
    "a = averaged()\nnext(a)\nfor k in {t}.shape:\n    s.kept.append(a.send(k))\n    if {c}:\n        a.close()\n        break",
    "g = pieces({f}, 3)\nnext(g)\ns.kept.append(g.send({g}))",
    "def inner(r):\n    nonlocal_ = r * n\n    return lambda q: q + nonlocal_\nx = inner(x)(x)",
    "total = 0\ndef add(r):\n    global_ = r.sum()\n    s.count += 1\n    return global_\ns.kept.append(sum(add(r) for r in [{f}, {g}]))",
    "try:\n%\n    s.registry.nothing\nexcept (AttributeError, KeyError) as error:\n    s.kept.append(str(error))\nelse:\n%\nfinally:\n    s.count += 1",
    "try:\n    try:\n    %\n        raise ValueError(n)\n    except ValueError as error:\n        raise TypeError('t') from error\nexcept TypeError as error:\n    s.kept.append(repr(error.__cause__))\n%",
    "for k in range(4):\n    if {c}:\n        continue\n%\n    if k == n:\n        break\nelse:\n%",
    "while len(s.hist) > 1:\n    s.hist.pop()\n%",
    "for k, v in sorted(s.stats.items()):\n    s.kept.append((k, type(v).__name__))\n%",
    "if (m := {n}) > 1:\n    s.kept.append(m)\n%",
    "s.kept.append([[a * b for b in range(2)] for a in {t}.shape])",
    "for p in s.layers.parameters():\n    if p.grad is not None:\n        p.data.add_(p.grad, alpha=-0.1)\n%",
    "class Local(Base):\n    def run(self, r):\n        return r * n\nx = Local().run(x)",
    "s.kept.append({{k: v for k, v in vars(s.derived).items()}})",
)

CALLS = (
    "torch.randn({r}, 4), torch.randn({r}, 4), torch.arange({r}), {n}",
    "torch.randn({r}, 4), torch.randn(4), torch.arange({r}), {n}",
    "torch.randn({r}, 4), torch.randn({r}, 4), torch.randint(0, 5, (3,)), {n}",
    "torch.randn(4, {r}).t(), torch.randn({r}, 4), torch.arange({r}), {n}",
    "torch.randn({r}, 8)[:, ::2], torch.randn({r}, 4), torch.arange({r}), {n}",
    "torch.randn({r}, 4, requires_grad=True), torch.randn({r}, 4), torch.arange({r}), {n}",
    "torch.randn({r}, 4, requires_grad=True) * 2, torch.randn(4, requires_grad=True), torch.arange({r}), {n}",
    "*[torch.randn({r}, 4)] * 2, torch.arange({r}), {n}",
    "*torch.randn(2, {r}, 4).unbind(), torch.arange({r}), {n}",
    "*(lambda r: (r[1:], r[:-1]))(torch.randn({r} + 1, 4)), torch.arange({r}), {n}",
    "torch.randn({r}, 4, dtype=torch.float64), torch.randn({r}, 4), torch.arange({r}), {n}",
    "torch.randn({r}, 4).bfloat16(), torch.randn({r}, 4).bfloat16(), torch.arange({r}), {n}",
    "s.w, s.b, torch.arange({r}), {n}",
    "s.last if isinstance(s.last, torch.Tensor) else torch.zeros({r}, 4), torch.randn({r}, 4), torch.arange({r}), {n}",
    "torch.randn(1, 4).expand({r}, 4), torch.randn({r}, 4), torch.arange({r}), {n}",
    "torch.full(({r}, 4), float('nan')), torch.randn({r}, 4), torch.arange({r}), {n}",
    "nn.Parameter(torch.randn({r}, 4)), torch.randn({r}, 4), torch.arange({r}, dtype=torch.int32), {n}",
)

OUTSIDE = (
    "s.w.requires_grad_(False)",
    "s.w.requires_grad_(True)",
    "s.w.grad = None; s.b.grad = None",
    "s.net.eval()",
    "s.net.train()",
    "s.rate = 2.0",
    "s.rate = 3",
    "s.count = 0",
    "s.kept.clear()",
    "s.last = torch.randn(3, 4)",
    "s.buffer = torch.randn(4, dtype=torch.float64)",
    "s.w.data = torch.randn(4, 4).t()",
    "s.net.double()",
    "s.net.float()",
    "s.w = nn.Parameter(torch.randn(4, 4))",
    "s.sgd.param_groups[0]['lr'] = 0.01",
    "s.net.register_forward_hook(lambda m, given, out: out * 2)",
    "s.b = s.w[0]",
    "scaled.__defaults__ = (3.0,)",
    "Net.forward = lambda self, x: self.inner(x)",
    "torch.set_default_dtype(torch.float64)",
    "torch.set_default_dtype(torch.float32)",
    "s.mode = Mode.FAST",
    "s.level = Level.HIGH",
    "s.meter = Meter()",
    "s.counter.clear()",
    "s.derived = Derived(5)",
    "s.derived.by = 7",
    "Derived.run = lambda self, x: x - self.by",
    "Base.half = staticmethod(lambda x: x / 3)",
    "s.act['relu'] = torch.abs",
    "s.layers[1] = nn.Linear(4, 4, bias=False)",
    "s.layers.eval()",
    "weighted.__wrapped__.__kwdefaults__ = {'weight': 2.0}",
    "cached.cache_clear()",
    "Meter.mean = property(lambda self: 3.0)",
    "s.chain = Slots(torch.ones(4))",
    "s.stats['best'] = torch.ones(3, 4)",
    "s.hist = [torch.zeros(4)]",
    "s.deque.append(torch.ones(4))",
    "s.groups['a'] = [torch.ones(3, 4)]",
    "global power\npower = lambda x, n: x * n",
    "s.point = Point(torch.zeros(4), 0.5, [1])",
    "s.layers.append(nn.ReLU())",
    "s.heads['a'].register_forward_pre_hook(lambda m, given: (given[0] * 2,))",
    "s.heap[:] = [5, 7]",
    "s.layers[0].forward = lambda x: x * 3",
    "Key.__eq__ = lambda self, other: True",
    "Meter.__bool__ = lambda self: True",
    "Point.moved = lambda self, by: self",
    "scaled = lambda x, by=1.0, add=0: x - by",
    "F.gelu = F.relu",
    "torch.sin = torch.cos",
    "math.sqrt = math.floor",
    "len = lambda given: 3",
    "torch.relu = lambda x: x.abs()",
    "nn.Linear.forward = lambda self, x: F.linear(x, self.weight * 2)",
    "torch.Tensor.double_ = lambda self: self",
    "torch.use_deterministic_algorithms(True)",
    "torch.use_deterministic_algorithms(False)",
    "torch.set_default_device('cpu')",
    "s.net.inner.weight.data.t_()",
    "s.w.grad = torch.ones(4, 4)",
    "del s.net.drop",
    "s.net.extra = nn.Linear(2, 2)",
    "nn.Module.__call__ = nn.Module._call_impl",
    "s.net.inner.bias = None",
    "F.dropout = lambda x, *given, **named: x",
    "torch.Tensor.mean = torch.Tensor.sum",
)

AROUND = (
    "torch.no_grad()",
    "torch.enable_grad()",
    "torch.inference_mode()",
    "torch.set_grad_enabled(False)",
    "torch.autocast('cpu', torch.bfloat16)",
    "torch.autocast('cpu', enabled=False)",
    "torch.device('cpu')",
    "torch.random.fork_rng()",
    "torch.autograd.set_detect_anomaly(True)",
    "torch.autograd.graph.save_on_cpu()",
    "torch.autograd.graph.saved_tensors_hooks(lambda saved: saved * 1, lambda packed: packed)",
    "torch.autograd.graph.saved_tensors_hooks(lambda saved: s.kept.append(saved.shape) or saved, lambda packed: packed)",
    "torch.autograd.graph.disable_saved_tensors_hooks('not here')",
    "torch.autograd.forward_ad.dual_level()",
    "torch.profiler.record_function('around')",
    "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)",
    "torch.backends.mkldnn.flags(enabled=False)",
    "torch.utils.checkpoint.set_checkpoint_early_stop(False)",
    "nn.utils.parametrize.cached()",
    "warnings.catch_warnings()",
    "Called(s)",
    "Dispatched(s)",
    "s.meter",
)
