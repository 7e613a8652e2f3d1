"""Models nobody has looked at: `python -m bench.survey` writes `bench/survey.md`.

Model classes are drawn at random from transformers, torchvision and timm, and built from small
configurations with default arguments, caches on. Those that can't be built or run so in eager are
passed over. Each of the others runs in a process of its own, in evaluation and in training
(a `backward()` outside the compiled model), compiled with default settings: whether results,
gradients and buffers are plain PyTorch's to the bit, whether the model is one trace without a graph
break, and what a call takes beside plain PyTorch behind 64 calls (of large models: what fits ten
seconds). Then the reasons of all graph breaks, by models. A model that isn't done in time counts
with what is known of it by then. On a GPU (`--device cuda`) plain PyTorch may differ from itself,
where kernels add in any order: what does so is counted apart, and compared within rounding.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import copy
import inspect
import logging
import multiprocessing
import os
import random
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

import stator
from bench import pages
from bench.measure import single_threaded
from examples.models import tensors_of

MODES = ("evaluation", "training")
WARM_UP = 64
WARM_UP_SECONDS = 10.0
TIMED_SECONDS = 2.0
PATIENCE = 4
"""How many times its processor time a model may take by the clock: others use the machine, too."""
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

        builder = torchvision.models.get_model_builder(model_name)
        takes = inspect.signature(builder).parameters
        nothing = {name: None for name in ("weights", "weights_backbone") if name in takes}
        model = builder(**nothing)
        return model, _images(model, 64)
    import timm

    model = timm.create_model(model_name, pretrained=False)
    whole = getattr(model, "default_cfg", {}).get("input_size", (3, 64, 64))[-1]
    return model, _images(
        model, next(it for it in (64, 96, whole) if _takes(model, it) or it == whole)
    )


def _images(model: nn.Module, pixels: int) -> Callable[[], dict[str, Any]]:
    name = next(iter(inspect.signature(model.forward).parameters))
    return lambda: {name: torch.randn(2, 3, pixels, pixels)}


def _takes(model: nn.Module, pixels: int) -> bool:
    """Whether its layers fit a small image: what is measured is Python, not convolutions."""
    twin = copy.deepcopy(model).eval()
    with torch.no_grad(), contextlib.suppress(Exception):
        twin(torch.zeros(1, 3, pixels, pixels))
        return True
    return False


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
        with contextlib.suppress(Exception):
            now = getattr(config, attribute, None)
            if isinstance(now, int) and not isinstance(now, bool) and now > size:
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
        numpy.random.seed(1)
        random.seed(1)
        model.zero_grad()
        left = state_of(model, step(run, copy.deepcopy(inputs), mode))
        states.append([it.detach().clone() for it in left])
    return states


def measure(name: str, mode: str, is_timed: bool, device: str) -> Iterator[dict[str, Any]]:
    """One model in one mode: what is known of it, as soon as it is."""
    torch.manual_seed(0)
    try:
        model, make_inputs = build(name)
        model.train(mode == "training").to(device)
        made = [{key: it.to(device) for key, it in make_inputs().items()} for _ in range(4)]
        twin, again = copy.deepcopy(model), copy.deepcopy(model)
        expected = states_of_calls(model, model, made, mode)
        if not expected[0]:
            yield {"left_out": "no tensor in its output"}
            return
    except Exception as error:
        yield {"left_out": f"{type(error).__name__}: {str(error).splitlines()[:1]}"}
        return
    yield {"eager": True}
    compiled = stator.compile(twin)
    found = states_of_calls(twin, compiled, made, mode)
    right = all(map(same, expected, found))
    stats = stator.stats(compiled)
    yield {"right": right, "breaks": stats.breaks, "traces": stats.traces}
    if device != "cpu" and not right:
        steady = all(map(same, expected, states_of_calls(again, again, made, mode)))
        yield {"steady": steady, "right": not steady and all(map(near, expected, found))}
    if stats.breaks or stats.native:
        yield {"reasons": _reasons(name, mode, made)}
    if is_timed:
        yield {"ratio": _ratio(model, compiled, made[0], mode, device)}


def _reasons(name: str, mode: str, made: list[dict[str, Any]]) -> list[str]:
    """Of calls of their own, in which everything is recorded."""
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("stator.graph_breaks")
    logger.addHandler(handler)
    logger.propagate = False
    torch.manual_seed(0)
    model = build(name)[0].train(mode == "training").to(next(iter(made[0].values())).device)
    stator.set_logs(graph_breaks=True)
    with stator.config.patch(skip_unprofitable=False):
        states_of_calls(model, stator.compile(model), made, mode)
    stator.set_logs(graph_breaks=False)
    lines = [message.splitlines() for message in told]
    return [" ".join(part.strip() for part in line[1:3]) for line in lines if len(line) > 2]


def _ratio(
    model: nn.Module, compiled: Any, inputs: dict[str, Any], mode: str, device: str
) -> float:
    wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None
    clock = time.perf_counter if device == "cuda" else time.thread_time
    end = time.perf_counter() + WARM_UP_SECONDS
    for _ in range(WARM_UP):
        step(compiled, inputs, mode)
        if time.perf_counter() > end:
            break
    totals = {"plain": [0.0], "compiled": [0.0]}
    end = time.perf_counter() + TIMED_SECONDS
    while time.perf_counter() < end or len(totals["plain"]) < 9:
        for kind, target in (("plain", model), ("compiled", compiled)):
            wait()
            start = clock()
            step(target, inputs, mode)
            wait()
            totals[kind].append(clock() - start)
    medians = {kind: sorted(times[1:])[len(times) // 2] for kind, times in totals.items()}
    return medians["compiled"] / medians["plain"]


def worker(
    to: Connection, name: str, mode: str, timeout: float, is_timed: bool, device: str
) -> None:
    """A process of its own: sends what [measure][] learns. The system ends it behind its time."""
    warnings.simplefilter("ignore")
    limit = int(timeout) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    single_threaded()
    try:
        for known in measure(name, mode, is_timed, device):
            to.send(known)
    except Exception as error:
        to.send({"failed": f"{type(error).__name__}: {str(error).splitlines()[:1]}"})
    to.send({"done": True})


def run_worker(name: str, mode: str, timeout: float, is_timed: bool, device: str) -> dict[str, Any]:
    """What is known of a model, whatever its process comes to."""
    processes = multiprocessing.get_context("forkserver")
    here, there = processes.Pipe(duplex=False)
    process = processes.Process(target=worker, args=(there, name, mode, timeout, is_timed, device))
    end = time.monotonic() + PATIENCE * timeout
    process.start()
    there.close()
    row: dict[str, Any] = {}
    with here, contextlib.suppress(EOFError):
        while "done" not in row and here.poll(max(0.0, end - time.monotonic())):
            row |= here.recv()
    is_late = "done" not in row and process.is_alive() and time.monotonic() >= end
    if is_late:
        process.kill()
    process.join()
    if row.pop("done", False):
        return row
    if is_late or process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL):
        # What eager itself has no time for says nothing of compiled models.
        what = "timed_out" if row else "left_out"
        return {**row, what: f"not done after {timeout:.0f} s"}
    return {**row, "failed": f"exit status {process.exitcode}"}


def drawn(
    count: int, seed: int, jobs: int, minutes: float, run: Callable[[str, str], dict[str, Any]]
) -> Iterator[tuple[str, Any]]:
    """So many models that run in eager, with their rows by mode, or those of so many minutes.
    `jobs`: models at once."""
    end = time.monotonic() + 60.0 * minutes
    candidates = names()
    random.Random(seed).shuffle(candidates)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        while count > 0 and candidates and time.monotonic() < end:
            batch, candidates = candidates[: min(count, jobs)], candidates[min(count, jobs) :]
            for name, row in zip(batch, pool.map(lambda it: _by_mode(it, run), batch), strict=True):
                count -= "left_out" not in row["evaluation"]
                yield name, row


def _by_mode(name: str, run: Callable[[str, str], dict[str, Any]]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for mode in MODES:
        if all("left_out" not in row for row in rows.values()):
            rows[mode] = run(name, mode)
    return rows


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
    for what, words in (
        ("timed_out", "not done in time"),
        ("failed", "ended by a signal or an error"),
    ):
        if some := sum(what in row for row in rows):
            text += f"; {some} {words}"
    return text


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.survey", description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        help="seconds of processor time, for one model in a mode",
    )
    parser.add_argument(
        "--minutes", type=float, default=120.0, help="no further model behind these"
    )
    parser.add_argument("--timed", action="store_true", help="calls are timed, too")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="models at once: not for timing")
    parser.add_argument("--output", type=Path, default=pages.page("survey"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    # The server imports what takes seconds once; it makes no thread and no CUDA context.
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["stator", "timm", "torchvision", "transformers"])

    def run(name: str, mode: str) -> dict[str, Any]:
        return run_worker(name, mode, options.timeout, options.timed, options.device)

    seed = random.randrange(10**6) if options.seed is None else options.seed
    found: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
    reasons: dict[str, set[str]] = collections.defaultdict(set)
    lines, left_out = [], 0
    for name, rows in drawn(options.count, seed, options.jobs, options.minutes, run):
        left_out += "left_out" in rows["evaluation"]
        for mode, row in rows.items():
            print(f"{name:60} {mode:10} {row}", flush=True)
            if "left_out" in row:
                continue
            found[mode].append(row)
            for reason in row.get("reasons", ()):
                reasons[reason].add(f"{name} ({mode})")
            if not row.get("right") or row.get("breaks"):
                what = row.get("failed") or row.get("timed_out")
                what = what or ("not whole" if row["breaks"] else "whole")
                lines.append(f"| {name} | {mode} | {row.get('right')} | {what} |")
    page = [
        "# Models nobody has looked at",
        "",
        (__doc__ or "").split("\n\n", 1)[1].strip(),
        "",
        f"Seed {seed}; {left_out} others can't be built or run so. For each model and mode "
        f"{options.timeout:.0f} s of processor time, {options.minutes:.0f} minutes in all.",
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
