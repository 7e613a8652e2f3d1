"""A small transformer on a GPU: `python -m bench.gpu` prints a table for `docs/gpu.md`.

Each system has a model of its own with the same weights, all in one process. A *first call*
records, or compiles; it is taken once PyTorch's and Stator's own tables are set up. Later calls are
timed in blocks that take turns: *host* is the time until the last call of a block has returned,
*call* the time until the device is done as well. *Waits* are those of one call for the device, as
PyTorch's profiler counts them; on the CPU, where nothing waits, the numbers that are read out of
tensors. `--device cpu` is a dry run: it shows that the script works, and says nothing of a GPU.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import datetime
import functools
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import stator

Call = Callable[[], Any]

VOCABULARY = 512
BATCH = 8
BLOCK = 10
"""Calls of one system before it is another one's turn."""

WAITS = {
    "cuda": (
        *("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"),
        *("cudaMemcpy", "cuStreamSynchronize", "cuCtxSynchronize"),
    ),
    "cpu": ("aten::_local_scalar_dense",),
}
"""What the profiler calls a wait."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """A model."""

    layers: int
    width: int
    heads: int
    tokens: int


class Block(nn.Module):
    """Attention and a feed-forward network, each behind a normalisation."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.attention_norm, self.norm = nn.LayerNorm(sizes.width), nn.LayerNorm(sizes.width)
        self.qkv = nn.Linear(sizes.width, 3 * sizes.width)
        self.out = nn.Linear(sizes.width, sizes.width)
        self.up = nn.Linear(sizes.width, 4 * sizes.width)
        self.down = nn.Linear(4 * sizes.width, sizes.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        parts = self.qkv(self.attention_norm(x)).chunk(3, dim=-1)
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Transformer(nn.Module):
    """A decoder with learned positions."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, sizes.width)
        self.positions = nn.Parameter(torch.randn(sizes.tokens, sizes.width) / 50)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm, self.head = nn.LayerNorm(sizes.width), nn.Linear(sizes.width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def forward(model: nn.Module, tokens: Tensor, device: str, wrap: Callable[[Any], Any]) -> Call:
    """Inference."""
    run = wrap(model.eval().forward)

    def call() -> Any:
        with torch.no_grad():
            return run(tokens)

    return call


def training(model: nn.Module, tokens: Tensor, device: str, wrap: Callable[[Any], Any]) -> Call:
    """Forward in bfloat16, backward, and a step of AdamW."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def step(tokens: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(tokens)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = wrap(step)
    return lambda: run(tokens)


TASKS = {"forward": forward, "training step": training}


@dataclasses.dataclass
class Row:
    """What was measured of one system. Seconds."""

    task: str
    system: str
    first: float
    host: float = 0.0
    call: float = 0.0
    waits: int = 0


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(call: Call, device: str) -> tuple[float, Any]:
    """Of one call, with what it gives."""
    wait(device)
    start = time.perf_counter()
    result = call()
    wait(device)
    return time.perf_counter() - start, result


def count_waits(call: Call, device: str) -> int:
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    wait(device)
    with profile(activities=activities, acc_events=True) as profiler:
        call()
    return sum(event.count for event in profiler.key_averages() if event.key in WAITS[device])


def measure(
    task: str, sizes: Sizes, device: str, systems: dict[str, Callable[[Any], Any]], rounds: int
) -> list[Row]:
    """All systems on one task."""
    torch.manual_seed(0)
    model = Transformer(sizes).to(device)
    tokens = torch.randint(VOCABULARY, (BATCH, sizes.tokens)).to(device)
    make = TASKS[task]
    for _ in range(3):
        make(copy.deepcopy(model), tokens, device, lambda fn: fn)()
    calls, rows, results = [], [], []
    for name, wrap in systems.items():
        wrap(nn.Linear(2, 2).to(device).forward)(torch.ones(1, 2, device=device))
        call = make(copy.deepcopy(model), tokens, device, wrap)
        taken_by_first, result = seconds(call, device)
        rows.append(Row(task, name, taken_by_first))
        calls.append(call)
        results.append(result)
    for name, result in zip(systems, results, strict=True):
        wrong = f"{name} gives another result than eager"
        torch.testing.assert_close(result, results[0], rtol=2e-2, atol=2e-2, msg=wrong)
    for call in calls:
        for _ in range(3 * BLOCK):
            call()
    taken: list[list[tuple[float, float]]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, times in zip(calls, taken, strict=True):
            wait(device)
            start = time.perf_counter()
            for _ in range(BLOCK):
                call()
            returned = time.perf_counter()
            wait(device)
            done = time.perf_counter()
            times.append(((returned - start) / BLOCK, (done - start) / BLOCK))
    for row, call, times in zip(rows, calls, taken, strict=True):
        row.host, row.call = (statistics.median(column) for column in zip(*times, strict=True))
        row.waits = count_waits(call, device)
    return rows


def table(rows: list[Row]) -> str:
    """Milliseconds, and beside them multiples of eager's."""
    columns = ["", "", "first call, ms", "ratio", "host, ms", "ratio", "call, ms", "ratio", "waits"]
    lines = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for row in rows:
        eager = next(it for it in rows if it.task == row.task)
        pairs = ((row.first, eager.first), (row.host, eager.host), (row.call, eager.call))
        cells = [f"{1000 * own:.2f} | {own / other:.2f}" for own, other in pairs]
        lines.append(f"| {row.task} | {row.system} | {' | '.join(cells)} | {row.waits} |")
    return "\n".join(lines)


def heading(device: str, sizes: Sizes) -> str:
    """What it ran on, and with what."""
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU only: a dry run"
    versions = f"CPython {platform.python_version()}, PyTorch {torch.__version__}"
    model = f"{sizes.layers} layers, width {sizes.width}, batch {BATCH} of {sizes.tokens} tokens"
    return f"{datetime.date.today()}, {name}; {versions}, CUDA {torch.version.cuda}; {model}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--torch-compile",
        nargs="*",
        metavar="BACKEND",
        help="torch.compile beside it, with its usual backend and that for CUDA graphs, or these",
    )
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA device; --device cpu is a dry run")
    sizes = Sizes(options.layers, options.width, max(1, options.width // 64), options.tokens)
    systems: dict[str, Callable[[Any], Any]] = {
        "eager": lambda fn: fn,
        "Stator": stator.compile,
        "Stator, cudagraphs": functools.partial(stator.compile, backend="cudagraphs"),
    }
    if options.torch_compile is not None:
        for backend in options.torch_compile or ("inductor", "cudagraphs"):
            name = f"torch.compile, {backend}"
            systems[name] = functools.partial(torch.compile, backend=backend)
    rows = []
    for task in TASKS:
        rows += measure(task, sizes, options.device, systems, options.rounds)
    print(f"{heading(options.device, sizes)}\n\n{table(rows)}")


if __name__ == "__main__":
    main()
