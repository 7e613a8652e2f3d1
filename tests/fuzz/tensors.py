"""Random tensor programs: views, writes in place, data read, gradients, random numbers, modules, optimizers.

A program is a function of two float tensors, one of integers and a number, and of a world `s` that it reads and
writes. It is grown one statement at a time in a live run of it, so most statements work at the first call; later
calls bring other sizes, types, layouts and aliases, and may fail where plain Python fails.
"""

from __future__ import annotations

import contextlib
import io
import random
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from differential.support import api
from differential.support.describe import describe_all, first_difference

import stator

Space = dict[str, Any]

PREAMBLE = """
import math
import types

import torch
import torch.nn.functional as F
from torch import nn
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
    return s


def scaled(x, by=2.0, *, add=0):
    return x * by + add


def twice(f, x):
    return f(f(x))
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
"""

NUMBERS = """
n | {t}.shape[0] | {t}.numel() | {t}.dim() | len({t}) | s.count | int(s.rate * 4) | {t}.shape[-1] // 2 | {t}.size(0) * 2 - 1 | int({f}.sum()) % 5 | {i}.sum().item() | max({t}.shape[0], n)
round({f}.mean().item(), 2) | {f}.max().item() | len(s.kept) | {t}.stride(0) | {t}.storage_offset() | n + 1 | -n | n % 3 | n * s.rate | {t}.shape[0] + {u}.shape[0] | float({t}.sum() > 0) | int({t}.any())
{t}.shape[0] % 3 | {t}.shape[0] * {u}.shape[-1] | {t}.numel() // 3 | {t}.shape[0] - n | {t}.size(-1) + n | ({t}.shape[0] + 3) // 4 * 4 - {t}.shape[0] | max(1, {t}.shape[0] // 2) | {t}.is_contiguous() + n
{t}.ndim + n | math.sqrt({t}.numel()) | math.floor(s.rate) | s.sgd.param_groups[0]["lr"] | {t}.nelement() if {t}.requires_grad else n | min(n, {t}.shape[0]) | sum({t}.shape) | {t}._version % 7
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
"""

TESTS = """
{t}.sum() > 0 | {f}.mean() < {n} | {t}.shape[0] > 2 | {t}.shape[0] % 2 == 0 | s.count > 1 | n > 2 | {f}.isnan().any() | {t}.requires_grad | {t}.is_contiguous() | {t}.dtype == torch.float32 | {t}.numel() | torch.equal({t}, {u}) | {t}.any()
{t}.max() == {n} | s.last is None | {t} is {u} | len(s.kept) > 2 | {f}.grad_fn is None | {t}.dim() == 2 | s.net.training | torch.is_grad_enabled() | {t}.shape == {u}.shape | {f}.norm().item() > 3 | (n > 1 and {f}.sum() > 0) | torch.allclose({f}, {g}) | {t}.is_leaf
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
)


def _rows(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]


_VALUES, _NUMBERS, _WRITES, _TESTS = map(_rows, (VALUES, NUMBERS, WRITES, TESTS))


@dataclass(frozen=True)
class TensorProgram:
    """Statements of the function, what it returns, and its calls: a write from outside, or nothing, and arguments."""

    body: tuple[str, ...]
    result: str
    calls: tuple[tuple[str, str], ...]

    def function(self) -> str:
        """The source of the function under test."""
        body = textwrap.indent("\n".join(self.body), "    ")
        return f"def fn(x, y, i, n, s):\n{body}\n    return {self.result}\n"

    def space(self) -> Space:
        """A new world."""
        space: Space = {"__name__": "fuzz_world"}
        exec(_PREAMBLE, space)
        exec(compile(self.function(), "fn.py", "exec", dont_inherit=True), space)
        space["s"] = space["world"]()
        return space

    def script(self, options: Space) -> str:
        """A script that shows the failure, to be run with `tests` on the path."""
        body = "".join(f"        {line!r},\n" for line in self.body)
        calls = "".join(f"        {call!r},\n" for call in self.calls)
        return (
            "from fuzz.tensors import TensorProgram, check\n\n"
            f"program = TensorProgram(\n    (\n{body}    ),\n    {self.result!r},\n    (\n{calls}    ),\n)\n"
            "print(program.function())\nprint(check(program, {options!r}))\n"
        )


_PREAMBLE = compile(PREAMBLE, "world.py", "exec", dont_inherit=True)


class Generator:
    """Makes one program from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.scope: Space = {}
        self.made = 0

    def program(self) -> TensorProgram:
        """Statements that work in a live run, mostly, and calls."""
        self._start()
        body: list[str] = []
        for _ in range(self.rng.randint(2, 9)):
            statement = self._working()
            if statement is not None:
                body.append(statement)
        names = self._named(lambda value: isinstance(value, torch.Tensor))
        chosen = self.rng.sample(names, min(len(names), self.rng.randint(1, 4)))
        result = "[" + ", ".join([*chosen, *self.rng.sample(["n", "s.count", "x"], 1)]) + "]"
        return TensorProgram(tuple(body), result, tuple(self._calls()))

    def _start(self) -> None:
        scope: Space = {"__name__": "fuzz_world"}
        exec(_PREAMBLE, scope)
        scope["s"] = scope["world"]()
        torch.manual_seed(1)
        scope.update(x=torch.randn(3, 4), y=torch.randn(3, 4), i=torch.arange(3), n=2)
        self.scope = scope

    def _calls(self) -> list[tuple[str, str]]:
        calls = []
        usual = self.rng.choice(CALLS[:3])
        for index in range(self.rng.randint(5, 10)):
            plain = index < 3 or self.rng.random() < 0.4
            text = usual if plain else self.rng.choice(CALLS)
            rows = 3 if index < 3 else self.rng.choice((3, 3, 5, 2, 1, 0, 7))
            outside = "" if plain or self.rng.random() < 0.6 else self.rng.choice(OUTSIDE)
            number = 2 if index < 3 else self.rng.choice((2, 2, 3, 0, 1, -1, True, 2.5))
            calls.append((outside, text.format(r=rows, n=number)))
        return calls

    def _named(self, fits: Callable[[Any], bool]) -> list[str]:
        return [
            name
            for name, value in self.scope.items()
            if (name in ("x", "y", "i") or (name[0] == "v" and name[1:].isdigit())) and fits(value)
        ]

    def _tensors(self, fits: Callable[[torch.Tensor], bool]) -> list[str]:
        return self._named(
            lambda value: isinstance(value, torch.Tensor) and value.numel() < 500 and fits(value)
        )

    def _filled(self, template: str) -> str:
        anything = self._tensors(lambda value: True) or ["y"]
        floats = self._tensors(lambda value: value.dtype.is_floating_point) or ["y"]
        whole = self._tensors(
            lambda value: value.dtype in (torch.int64, torch.int32) and value.numel() > 0
        ) or ["i"]
        number = ""
        if "{n}" in template:
            number = self.rng.choice(
                ["2", "n", "n", "0.5", self._filled(self.rng.choice(_NUMBERS))]
            )
        test = self._filled(self.rng.choice(_TESTS)) if "{c}" in template else ""
        recent = self.rng.random() < 0.5
        t, f = self.rng.choice(anything), self.rng.choice(floats)
        return template.format(
            t=anything[-1] if recent else t,
            u=self.rng.choice(anything),
            f=floats[-1] if recent else f,
            g=self.rng.choice(floats),
            i=self.rng.choice(whole),
            n=number,
            c=test,
        )

    def _simple(self) -> str:
        roll = self.rng.random()
        if roll < 0.55:
            value = self._filled(self.rng.choice(_VALUES))
            if self.rng.random() < 0.2:
                return f"{self.rng.choice(('x', 'y'))} = {value}"
            self.made += 1
            return f"v{self.made} = {value}"
        if roll < 0.62:
            return f"n = {self._filled(self.rng.choice(_NUMBERS))}"
        return self._filled(self.rng.choice(_WRITES))

    def _statement(self) -> str:
        if self.rng.random() < 0.78:
            return self._simple()
        lines = []
        for line in self._filled(self.rng.choice(BLOCKS)).splitlines():
            if line == "%":
                lines += [f"    {self._inner()}" for _ in range(self.rng.randint(1, 2))]
            else:
                lines.append(line)
        return "\n".join(lines)

    def _inner(self) -> str:
        """A statement of a block. Names that a block makes are there only if it ran; it writes to those that are."""
        name, equals, value = (text := self._simple()).partition(" = ")
        if equals and name[0] == "v":
            return f"{self.rng.choice(('x', 'y'))} = {value}"
        return text

    def _working(self) -> str | None:
        """A statement that works in the live run, with few exceptions."""
        for _ in range(8):
            statement, before = self._statement(), dict(self.scope)
            try:
                exec(compile(statement, "attempt.py", "exec", dont_inherit=True), self.scope)
            except SyntaxError:  # it returns: it is reached by some calls only
                return statement
            except Exception:
                self.scope.clear()
                self.scope.update(before)
                if self.rng.random() > 0.03:
                    continue
            return statement
        return None


def generate(seed: int) -> TensorProgram:
    """The program of this seed."""
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Generator(seed).program()
        finally:
            torch.set_grad_enabled(True)


def check(
    program: TensorProgram, options: Space, skips: bool = False, seen: list[Any] | None = None
) -> str | None:
    """Runs the program in two worlds, plain and compiled; what differs first, or None.

    `skips` lets functions run natively that don't gain from a replay, as by default. `seen` gets the compiled
    function, and how many calls failed.
    """
    api.reset()
    torch.set_num_threads(1)
    with warnings.catch_warnings(), stator.config.patch(strict=True, skip_unprofitable=skips):
        warnings.simplefilter("ignore")
        plain, ours = program.space(), program.space()
        compiled = api.compile(ours["fn"], recompile_limit=100_000, **options)
        failed = 0
        for index, call in enumerate(program.calls):
            expected = _call(index, call, plain["fn"], plain)
            failed += expected[0].startswith("error")
            difference = first_difference(expected, _call(index, call, compiled, ours))
            if difference is not None:
                return f"call {index}, {call}:\n{difference}"
    if seen is not None:
        seen += [compiled, failed]
    return None


def _call(index: int, call: tuple[str, str], fn: Callable[..., Any], space: Space) -> list[str]:
    write, arguments = call
    shown: Space = {}
    torch.manual_seed(100 + index)
    try:
        exec(write, space)
        given = eval(f"({arguments},)", space)
    except Exception as error:
        return [f"before: {type(error).__name__}"]
    torch.manual_seed(index)
    try:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            shown["result"] = fn(*given, space["s"])
    except Exception as error:
        shown["error"] = error
    finally:
        shown.update(
            arguments=given,
            world=space["s"],
            printed=printed.getvalue(),
            drawn=torch.get_rng_state(),
            modes=[torch.is_grad_enabled(), torch.is_inference_mode_enabled()],
        )
        lines = describe_all(shown)
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
    if index % 2:
        lines += _gradients(shown.get("result", ()), given, space)
    return lines


def _gradients(result: Any, given: tuple[Any, ...], space: Space) -> list[str]:
    """What a step backwards from outside gives through the history that the call left."""
    shown: Space = {}
    try:
        losses = [value.float().sum() for value in result if getattr(value, "requires_grad", False)]
        if losses:
            torch.stack(losses).sum().backward()
    except Exception as error:
        shown["error"] = error
    shown.update(arguments=given, world=space["s"])
    return describe_all(shown)


def shrink(program: TensorProgram, fails: Callable[[TensorProgram], bool]) -> TensorProgram:
    """A smaller program that still fails, by leaving out statements and calls."""
    progress = True
    while progress:
        progress = False
        for part in ("calls", "body"):
            lines = getattr(program, part)
            for at in reversed(range(len(lines))):
                candidate = replace(program, **{part: lines[:at] + lines[at + 1 :]})
                if fails(candidate):
                    program, lines, progress = candidate, getattr(candidate, part), True
    return program
