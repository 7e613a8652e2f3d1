"""Models nobody has looked at: `python -m bench.survey` writes `bench/survey.md`.

Model classes are drawn at random from transformers, torchvision and timm, and built from small
configurations with default arguments, caches on. Those that can't be built or run so in eager are
passed over. Each of the others runs in a process of its own, in evaluation and in training
(a `backward()` outside the compiled model), compiled with default settings: whether results,
gradients and buffers are plain PyTorch's to the bit, whether the model is one trace without a graph
break, and what a call takes beside plain PyTorch behind 64 calls. Then the reasons of all graph
breaks, by models. On a GPU (`--device cuda`) plain PyTorch may differ from itself, where kernels
add in any order: what does so is counted apart, and compared within rounding.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import copy
import inspect
import json
import os
import random
import subprocess
import sys
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
from examples.models import tensors_of

ROOT = Path(__file__).resolve().parent.parent
MODES = ("evaluation", "training")
WARM_UP = 64
SMALL: dict[str, int] = {
    "hidden_size": 32,
    "d_model": 32,
    "n_embd": 32,
    "dim": 32,
    "embed_dim": 32,
    "intermediate_size": 48,
    "ffn_dim": 48,
    "d_ff": 48,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "d_inner": 48,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "n_layer": 2,
    "n_layers": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_decoder_layers": 2,
    "num_attention_heads": 4,
    "num_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "d_kv": 8,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "vocab_size": 120,
    "max_position_embeddings": 64,
    "image_size": 32,
    "patch_size": 8,
}
"""What configurations call their sizes."""


def names() -> list[str]:
    """Every model class that a library offers: `transformers:BertModel`, `timm:vit_tiny`."""
    import timm
    import torchvision
    import transformers

    bases = [
        name
        for name in dir(transformers)
        if name.endswith("Model") and not name.endswith("PreTrainedModel")
    ]
    found = [f"transformers:{name}" for name in bases]
    found += [f"torchvision:{name}" for name in torchvision.models.list_models()]
    # One of each family: their names differ in sizes only.
    families = {name.split("_")[0]: name for name in reversed(timm.list_models())}
    return sorted(found + [f"timm:{name}" for name in families.values()])


def build(name: str) -> tuple[nn.Module, Callable[[], dict[str, Any]]]:
    """A small model, and what makes its inputs."""
    library, _, model_name = name.partition(":")
    if library == "transformers":
        return _of_transformers(model_name)
    if library == "torchvision":
        import torchvision

        model = torchvision.models.get_model(model_name, weights=None, weights_backbone=None)
        return model, _images(model, 64)
    import timm

    model = timm.create_model(model_name, pretrained=False)
    size = getattr(model, "default_cfg", {}).get("input_size", (3, 64, 64))[-1]
    return model, _images(model, size)


def _images(model: nn.Module, pixels: int) -> Callable[[], dict[str, Any]]:
    name = next(iter(inspect.signature(model.forward).parameters))
    return lambda: {name: torch.randn(2, 3, pixels, pixels)}


def _of_transformers(name: str) -> tuple[nn.Module, Callable[[], dict[str, Any]]]:
    import transformers

    kind = getattr(transformers, name)
    config = kind.config_class()
    _shrink(config)
    model: nn.Module = kind(config)
    accepted = inspect.signature(model.forward).parameters
    vocabulary = getattr(config, "vocab_size", None) or 120

    def inputs() -> dict[str, Any]:
        made: dict[str, Any] = {}
        if "input_ids" in accepted:
            made["input_ids"] = torch.randint(3, min(vocabulary, 120), (2, 12))
            if "attention_mask" in accepted:
                made["attention_mask"] = torch.ones(2, 12, dtype=torch.long)
                made["attention_mask"][0, -2:] = 0
        if "decoder_input_ids" in accepted:
            made["decoder_input_ids"] = torch.randint(3, min(vocabulary, 120), (2, 8))
        if "pixel_values" in accepted and (
            "input_ids" not in made or hasattr(config, "image_size")
        ):
            pixels = config.image_size if isinstance(getattr(config, "image_size", 0), int) else 32
            channels = getattr(config, "num_channels", 3)
            made["pixel_values"] = torch.randn(2, channels, pixels or 32, pixels or 32)
        if "input_values" in accepted:
            made["input_values"] = torch.randn(2, 4000)
        if "input_features" in accepted:
            made["input_features"] = torch.randn(2, getattr(config, "num_mel_bins", 80), 128)
        return made

    return model, inputs


def _shrink(config: Any) -> None:
    for attribute, size in SMALL.items():
        now = getattr(config, attribute, None)
        if isinstance(now, int) and not isinstance(now, bool) and now > size:
            with contextlib.suppress(Exception):
                setattr(config, attribute, size)
    for part in vars(config).values():
        if hasattr(part, "to_dict") and hasattr(part, "model_type"):
            _shrink(part)


def loss_of(output: Any) -> Tensor:
    """Something to go back from."""
    real = [it for it in tensors_of(output) if it.is_floating_point() and it.requires_grad]
    return torch.stack([it.float().square().mean() for it in real]).sum()


def step(model: Any, inputs: dict[str, Any], mode: str) -> Any:
    """A call as users make it."""
    if mode == "evaluation":
        with torch.no_grad():
            return model(**inputs)
    output = model(**inputs)
    loss_of(output).backward()
    return output


def state_of(model: nn.Module, output: Any) -> list[Tensor]:
    """What a call leaves behind."""
    gradients = [it.grad for it in model.parameters() if it.grad is not None]
    return [*tensors_of(output), *gradients, *model.buffers()]


def same(left: list[Tensor], right: list[Tensor]) -> bool:
    """To the bit; a NaN is any other NaN."""
    return len(left) == len(right) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(a.nan_to_num(), b.nan_to_num())
        for a, b in zip(left, right, strict=True)
    )


def near(left: list[Tensor], right: list[Tensor]) -> bool:
    """Within rounding, for each data type."""
    try:
        torch.testing.assert_close(left, right, equal_nan=True, check_stride=False)
    except AssertionError:
        return False
    return True


def states_of_calls(
    model: nn.Module, run: Callable[..., Any], made: list[dict[str, Any]], mode: str
) -> list[list[Tensor]]:
    """What each of some calls leaves behind, all with the same random numbers."""
    states = []
    for inputs in made:
        torch.manual_seed(1)
        model.zero_grad()
        left = state_of(model, step(run, copy.deepcopy(inputs), mode))
        states.append([it.detach().clone() for it in left])
    return states


def measure(name: str, mode: str, is_timed: bool, device: str) -> dict[str, Any]:
    """One model in one mode."""
    torch.manual_seed(0)
    try:
        model, make_inputs = build(name)
        model.train(mode == "training").to(device)
        made = [{key: it.to(device) for key, it in make_inputs().items()} for _ in range(4)]
        twin, again = copy.deepcopy(model), copy.deepcopy(model)
        expected = states_of_calls(model, model, made, mode)
        if not expected[0]:
            return {"left_out": "no tensor in its output"}
    except Exception as error:
        return {"left_out": f"{type(error).__name__}: {str(error).splitlines()[:1]}"}
    compiled = stator.compile(twin)
    found = states_of_calls(twin, compiled, made, mode)
    right = all(map(same, expected, found))
    stats = stator.stats(compiled)
    row: dict[str, Any] = {"right": right, "breaks": stats.breaks, "traces": stats.traces}
    if device != "cpu" and not right:
        row["steady"] = all(map(same, expected, states_of_calls(again, again, made, mode)))
        row["right"] = not row["steady"] and all(map(near, expected, found))
    row["reasons"] = _reasons(name, mode, made[0]) if stats.breaks or stats.native else []
    if is_timed:
        row["ratio"] = _ratio(model, compiled, made[0], mode, device)
    return row


def _reasons(name: str, mode: str, inputs: dict[str, Any]) -> list[str]:
    """Of a call of its own, in which everything is recorded."""
    import logging

    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("stator.graph_breaks")
    logger.addHandler(handler)
    logger.propagate = False
    torch.manual_seed(0)
    model = build(name)[0].train(mode == "training").to(next(iter(inputs.values())).device)
    stator.set_logs(graph_breaks=True)
    with stator.config.patch(skip_unprofitable=False):
        step(stator.compile(model), inputs, mode)
    stator.set_logs(graph_breaks=False)
    lines = [message.splitlines() for message in told]
    return [" ".join(part.strip() for part in line[1:3]) for line in lines if len(line) > 2]


def _ratio(
    model: nn.Module, compiled: Any, inputs: dict[str, Any], mode: str, device: str
) -> float:
    wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None
    clock = time.perf_counter if device == "cuda" else time.thread_time
    for _ in range(WARM_UP):
        step(compiled, inputs, mode)
    totals = {"plain": [0.0], "compiled": [0.0]}
    end = time.perf_counter() + 3.0
    while time.perf_counter() < end or len(totals["plain"]) < 9:
        for kind, target in (("plain", model), ("compiled", compiled)):
            wait()
            start = clock()
            step(target, inputs, mode)
            wait()
            totals[kind].append(clock() - start)
    medians = {kind: sorted(times[1:])[len(times) // 2] for kind, times in totals.items()}
    return medians["compiled"] / medians["plain"]


def run_worker(name: str, mode: str, timeout: float, is_timed: bool, device: str) -> dict[str, Any]:
    """As [measure][], in a process of its own."""
    command = [sys.executable, "-m", "bench.survey", "--worker", name, mode, "--device", device]
    command += ["--timed"] if is_timed else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, timeout=timeout, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        return {"left_out": f"not done after {timeout:.0f} s"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"failed": f"exit status {done.returncode}: {last[:200]}"}
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def drawn(
    count: int, seed: int, jobs: int, run: Callable[[str, str], dict[str, Any]]
) -> Iterator[tuple[str, Any]]:
    """So many models that run in eager, with their rows by mode. `jobs`: models at once."""
    candidates = names()
    random.Random(seed).shuffle(candidates)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        while count > 0 and candidates:
            batch, candidates = candidates[: min(count, jobs)], candidates[min(count, jobs) :]
            for name, row in zip(batch, pool.map(lambda it: _by_mode(it, run), batch), strict=True):
                count -= "left_out" not in row["evaluation"]
                yield name, row


def _by_mode(name: str, run: Callable[[str, str], dict[str, Any]]) -> dict[str, Any]:
    return {mode: run(name, mode) for mode in MODES}


def summary(rows: list[dict[str, Any]], is_timed: bool) -> str:
    """One line."""
    count = len(rows)
    right = sum(row.get("right", False) for row in rows)
    whole = sum(row.get("breaks") == 0 for row in rows)
    text = f"of {count} models {right} right, {whole} whole"
    unsteady = sum(not row.get("steady", True) for row in rows)
    if unsteady:
        text += f" ({unsteady} compared within rounding: plain PyTorch differs from itself)"
    if is_timed:
        ratios = sorted(row.get("ratio", float("inf")) for row in rows)
        slow = sum(ratio <= 1.05 for ratio in ratios)
        text += f", {slow} at most 1.05 times plain PyTorch (median {ratios[count // 2]:.2f}, "
        text += f"worst {ratios[-1]:.2f})"
    return text


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.survey", description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one model")
    parser.add_argument("--timed", action="store_true", help="calls are timed, too")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="models at once: not for timing")
    parser.add_argument("--output", type=Path, default=pages.page("survey"))
    parser.add_argument("--worker", nargs=2, metavar=("MODEL", "MODE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.worker:
        single_threaded()
        print(json.dumps(measure(*options.worker, options.timed, options.device)))
        return

    def run(name: str, mode: str) -> dict[str, Any]:
        return run_worker(name, mode, options.timeout, options.timed, options.device)

    seed = random.randrange(10**6) if options.seed is None else options.seed
    found: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
    reasons: dict[str, set[str]] = collections.defaultdict(set)
    lines, left_out = [], 0
    for name, rows in drawn(options.count, seed, options.jobs, run):
        left_out += "left_out" in rows["evaluation"]
        for mode, row in rows.items():
            print(f"{name:60} {mode:10} {row}", flush=True)
            if "left_out" in row:
                continue
            found[mode].append(row)
            for reason in row.get("reasons", ()):
                reasons[reason].add(f"{name} ({mode})")
            if not row.get("right") or row.get("breaks"):
                what = row.get("failed") or ("whole" if not row["breaks"] else "not whole")
                lines.append(f"| {name} | {mode} | {row.get('right')} | {what} |")
    page = [
        "# Models nobody has looked at",
        "",
        (__doc__ or "").split("\n\n", 1)[1].strip(),
        "",
        f"Seed {seed}; {left_out} others can't be built or run so.",
        "",
        *(f"* {mode}: {summary(rows, options.timed)}" for mode, rows in found.items() if rows),
        "",
        "| reason of a graph break | models |",
        "|---|---|",
    ]
    for reason, models in sorted(reasons.items(), key=lambda item: -len(item[1])):
        page.append(f"| {reason.replace('|', '/')} | {len(models)} |")
    page += ["", "| not right, or not whole | mode | right | |", "|---|---|---|---|", *lines]
    options.output.write_text("\n".join(page) + "\n")
    print("\n".join(page))


if __name__ == "__main__":
    main()
