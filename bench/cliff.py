"""Whether compiling ever costs anything: `python -m bench.cliff` writes `bench/cliff.md`.

Each program is called 64 times, compiled with default settings. Then the mean of its later calls is
taken beside plain Python: 1,000 of them, fewer where calls are slow. Blocks of calls take turns in
one process, and what counts is the processor time of the thread; of five such runs the one with the
median ratio. The bound is 1.05 times plain Python plus half a microsecond. Each run makes two
programs of each kind and takes their means, because two plain ones aren't equally quick either:
where their objects lie decides over some percent. How two plain ones compare is said below, too.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import random
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import stator
from bench import pages
from bench.measure import single_threaded

Call = Callable[[], object]
Maker = Callable[[Callable[[Any], Any]], Call]
"""Given what compiles a function (or leaves it as it is), makes a program."""

BEFORE = 64
CALLS = 1000
BLOCK = 10
RUNS = 5
GENERATED = 200
SECONDS = 2.0
"""Where calls are slow, fewer of them are made in a run: plain ones take about so long."""


def encoder_decoder(name: str) -> Maker:
    """A small model of transformers with its default cache."""

    def make(compiled: Callable[[Any], Any]) -> Call:
        import transformers

        sizes: dict[str, Any] = {"vocab_size": 100, "decoder_start_token_id": 2}
        if name == "T5":
            sizes |= {"d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 2, "d_kv": 16}
        else:
            sizes |= {"d_model": 32, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
            for side in ("encoder", "decoder"):
                sizes |= {f"{side}_layers": 2, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 64}
        inputs: dict[str, Tensor] = {"decoder_input_ids": torch.arange(3, 9)[None]}
        if name == "Whisper":
            sizes |= {"num_mel_bins": 16, "max_source_positions": 32, "max_target_positions": 32}
            inputs["input_features"] = torch.randn(1, 16, 64)
        else:
            inputs["input_ids"] = torch.arange(3, 13)[None]
        config = getattr(transformers, f"{name}Config")(**sizes)
        model = getattr(transformers, f"{name}ForConditionalGeneration")(config).eval()
        run = compiled(model)

        def call() -> object:
            with torch.no_grad():
                return run(**inputs)

        return call

    return make


def optimizer(kind: type[torch.optim.Optimizer], parameters: int, **options: Any) -> Maker:
    """One step of an optimizer."""

    def make(compiled: Callable[[Any], Any]) -> Call:
        weights = [nn.Parameter(torch.randn(8, 8)) for _ in range(parameters)]
        for weight in weights:
            weight.grad = torch.randn(8, 8)
        chosen: Any = kind(weights, **options)

        def step() -> None:
            chosen.step()

        run: Call = compiled(step)
        return run

    return make


@stator.disable
def note(*what: object) -> None:
    """Breaks the graph."""


def sgd_with_breaks(compiled: Callable[[Any], Any]) -> Call:
    """A step of SGD, written out, that breaks the graph behind each of its parameters."""
    weights = [torch.randn(8, 8) for _ in range(130)]
    gradients = [torch.randn(8, 8) for _ in range(130)]

    def step() -> None:
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.add_(gradient, alpha=-1e-3)
            note(weight)

    run: Call = compiled(step)
    return run


def faster_rcnn(compiled: Callable[[Any], Any]) -> Call:
    """torchvision's detector on a small image."""
    import torchvision

    model = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=5, min_size=64, max_size=64
    ).eval()
    image = torch.rand(3, 64, 64)
    run = compiled(model)

    def call() -> object:
        with torch.no_grad():
            return run([image])

    return call


def checkpointed_bert(compiled: Callable[[Any], Any]) -> Call:
    """A small BERT in training, whose layers are run again for their gradients."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = transformers.BertModel(config).train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    ids = torch.arange(3, 13)[None]
    run = compiled(model)

    def call() -> object:
        model.zero_grad()
        run(ids).last_hidden_state.sum().backward()
        return None

    return call


PROGRAMS: dict[str, Maker] = {
    "T5": encoder_decoder("T5"),
    "BART": encoder_decoder("Bart"),
    "Pegasus": encoder_decoder("Pegasus"),
    "Whisper": encoder_decoder("Whisper"),
    "AdamW.step": optimizer(torch.optim.AdamW, 20),
    "NAdam.step": optimizer(torch.optim.NAdam, 20),
    "SGD with 130 breaks": sgd_with_breaks,
    "Faster R-CNN": faster_rcnn,
    "BERT, checkpointed": checkpointed_bert,
}

STATEMENTS = (
    "x = x * 0.5 + 1",
    "x = torch.relu(x) - 0.1",
    "x = layer(x)",
    "x = x + len(names) * 0.01",
    "x = x.view(2, -1).sum(0).repeat(2)",
    "note(x)",
    "print('a line')",
    "seen.append(float(x.sum()))",
    "x = x if x.sum() > 0 else -x",
    "x = x[x == x]",
    "names = [name.upper() for name in names]",
    "x = x * (1 + 0.001 * (counter.setdefault('calls', 0) % 3)); counter['calls'] += 1",
    "x = x + copy.deepcopy(settings)['scale']",
    "for index in range(3): x = x + index; note(index)",
    "try: x = x + int(x.argmax())\n    except ValueError: x = -x",
    "x = x + random.random() * 0",
    "x = torch.stack([x + index for index in range(4)]).mean(0)",
    "with torch.no_grad(): x = layer(x); note()",
    "x = x + sorted(x.tolist())[0]",
    "x = x.clamp(-5, 5); seen[:] = seen[-3:]",
)


def generated(seed: int) -> Maker:
    """A program of a few statements, most of which break the graph."""
    lines = random.Random(seed).choices(STATEMENTS, k=3 + seed % 10)

    def make(compiled: Callable[[Any], Any]) -> Call:
        torch.manual_seed(seed)
        names = {
            "torch": torch,
            "copy": copy,
            "random": random,
            "layer": nn.Sequential(nn.Linear(8, 8), nn.Tanh()),
            "note": note,
            "seen": [],
            "counter": {},
            "settings": {"scale": 0.25, "sizes": [1, 2, 3]},
        }
        body = ["def f(x):", "names = ['a', 'b', 'c']", "seen.append(0.0)", *lines, "return x"]
        exec("\n    ".join(body), names)
        run = compiled(names["f"])
        x = torch.linspace(-1, 1, 8)

        def call() -> object:
            with torch.no_grad():
                return run(x)

        return call

    return make


Times = tuple[float, float, float, float]
"""Seconds of a call: of two plain programs, then of two compiled ones."""


def run(make: Maker, calls: int) -> Times:
    """The means of so many calls after the first ones."""
    programs = [make(lambda function: function), make(stator.compile)]
    programs += [make(lambda function: function), make(stator.compile)]
    means = []
    for call in programs:
        start = time.thread_time()
        for _ in range(BEFORE):
            call()
        means.append((time.thread_time() - start) / BEFORE)
    blocks = max(3, min(calls, int(SECONDS / max(means[0], 1e-9))) // BLOCK)
    totals = [0.0] * len(programs)
    for block in range(blocks):
        # Each of them comes first, in the middle and last as often as the others.
        turns = list(enumerate(programs))
        turns = turns[block % 4 :] + turns[: block % 4]
        for index, call in turns if block // 4 % 2 else reversed(turns):
            start = time.thread_time()
            for _ in range(BLOCK):
                call()
            totals[index] += time.thread_time() - start
    first, compiled, second, other = (total / blocks / BLOCK for total in totals)
    return first, second, compiled, other


def plain_and_compiled(times: Times) -> tuple[float, float]:
    """The means of each kind."""
    return (times[0] + times[1]) / 2, (times[2] + times[3]) / 2


def middle(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    """The pair whose ratio is the median."""
    ratio = statistics.median_low(after / before for before, after in pairs)
    return next(pair for pair in pairs if pair[1] / pair[0] == ratio)


def measure(make: Maker, runs: int, calls: int) -> list[Times]:
    """So many runs."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [run(make, calls) for _ in range(runs)]


def keeps(plain: float, compiled: float) -> bool:
    """Whether the bound is kept."""
    return compiled <= 1.05 * plain + 0.5e-6


def rows(runs: int, calls: int, only: list[str]) -> Iterator[str]:
    """The page's table, then what comes of the generated programs."""
    yield "| program | plain, µs | compiled, µs | ratio | within the bound |"
    yield "|---|---|---|---|---|"
    for name in only:
        measured = measure(PROGRAMS[name], runs, calls)
        plain, compiled = middle([plain_and_compiled(times) for times in measured])
        kept = "yes" if keeps(plain, compiled) else "no"
        figures = f"{plain * 1e6:.1f} | {compiled * 1e6:.1f} | {compiled / plain:.2f}"
        yield f"| {name} | {figures} | {kept} |"


def of_generated(seeds: range, runs: int, calls: int) -> Iterator[str]:
    """How many generated programs keep the bound, and the ratios of all."""
    measured = [measure(generated(seed), runs, calls) for seed in seeds]
    kinds = {
        "compiled": [middle([plain_and_compiled(times) for times in all]) for all in measured],
        "a second plain one": [middle([times[:2] for times in all]) for all in measured],
    }
    count = len(seeds)
    yield f"Of {count} generated programs, most of whose statements break the graph:"
    for kind, pairs in kinds.items():
        ratios = sorted(after / before for before, after in pairs)
        kept = sum(keeps(*pair) for pair in pairs)
        yield ""
        yield f"* {kind}: {kept} keep the bound. Ratios: smallest {ratios[0]:.2f},"
        yield f"  median {ratios[count // 2]:.2f}, nine of ten below {ratios[count * 9 // 10]:.2f},"
        yield f"  largest {ratios[-1]:.2f}."
    above = [seed for seed, pair in zip(seeds, kinds["compiled"], strict=True) if not keeps(*pair)]
    if above:
        yield ""
        yield f"Above it, compiled: {', '.join(map(str, above))}."


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.cliff", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--generated", type=int, default=GENERATED)
    parser.add_argument("--first", type=int, default=0, help="the first generated program")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--output", type=Path, default=pages.page("cliff"))
    options = parser.parse_args()
    single_threaded()
    lines = [
        "# Later calls beside plain Python",
        "",
        (__doc__ or "").split("\n\n", 1)[1].strip(),
        "",
    ]
    for line in rows(options.runs, options.calls, options.only):
        print(line, flush=True)
        lines.append(line)
    if options.generated:
        lines.append("")
        seeds = range(options.first, options.first + options.generated)
        for line in of_generated(seeds, options.runs, options.calls):
            print(line, flush=True)
            lines.append(line)
    options.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
