"""The programs that a profile is made of (`tools/profile_build.py`).

They have first calls, replays, breaks and training steps. None of them is one of the benchmarks'
(`bench/cases.py`), which would otherwise tell of themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

import stator

TURNS = 6
SIZES: dict[str, int] = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
LANGUAGE_MODELS: dict[str, dict[str, int]] = {
    "Roberta": SIZES,
    "Electra": SIZES,
    "Gemma": {**SIZES, "num_key_value_heads": 2, "head_dim": 8},
    "Mistral": {**SIZES, "num_key_value_heads": 2},
    "GPTNeoX": SIZES,
    "Bloom": {"vocab_size": 100, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "OPT": {
        "vocab_size": 100,
        "hidden_size": 32,
        "word_embed_proj_dim": 32,
        "ffn_dim": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    },
}

Call = Callable[[], Any]


def language_models() -> Iterator[Call]:
    """Small models with random parameters, by their default call."""
    tokens = torch.randint(5, 90, (2, 8))
    for name, sizes in LANGUAGE_MODELS.items():
        config = getattr(transformers, f"{name}Config")(**sizes)
        model = getattr(transformers, f"{name}Model")(config).eval()
        compiled = stator.compile(model, backend="eager")
        yield torch.no_grad()(lambda compiled=compiled: compiled(tokens, use_cache=False))
        yield lambda compiled=compiled: compiled(tokens)


def convolutions() -> nn.Module:
    """A small network of layers that language models don't have."""
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3, groups=2), nn.GroupNorm(2, 8), nn.SiLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.1), nn.Linear(32, 10)),
    )


def training_steps() -> Iterator[Call]:
    """Whole steps in one compiled function each."""
    images, labels = torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))
    for make in (torch.optim.SGD, torch.optim.RMSprop, torch.optim.Adamax):
        model = convolutions()
        optimizer = make(model.parameters(), lr=1e-3)
        history: list[float] = []

        @stator.compile
        def step(
            model: nn.Module = model,
            optimizer: torch.optim.Optimizer = optimizer,
            history: list[float] = history,
        ) -> torch.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            history.append(loss.item())
            return loss

        yield step


def functions() -> Iterator[Call]:
    """Plain Python around tensors: containers, decisions on data, sizes that vary, a break."""

    @stator.compile
    def statistics(table: dict[str, torch.Tensor]) -> dict[str, float]:
        found = {name: value.mean().item() for name, value in sorted(table.items())}
        worst = max(found, key=lambda name: found[name])
        return {**found, "worst": found[worst]}

    @stator.compile
    def halved(x: torch.Tensor, limit: float) -> tuple[torch.Tensor, int]:
        turns = 0
        while x.abs().max() > limit:
            x = x / 2
            turns += 1
        return x[x > 0], turns

    @stator.compile
    def windows(x: torch.Tensor, size: int) -> list[torch.Tensor]:
        print(end="")
        return [x[i : i + size].sum() for i in range(0, x.shape[0] - size, size)]

    for rows in range(3, 7):
        table = {name: torch.rand(rows) for name in "abcde"}
        yield lambda table=table: statistics(table)
        yield lambda rows=rows: halved(torch.randn(rows, 4), 0.5)
        yield lambda rows=rows: windows(torch.arange(4.0 * rows), 3)


def main() -> None:
    """Run everything a few times, from a first call on."""
    expected = Path(sys.argv[1])
    if not Path(stator.__file__).is_relative_to(expected):
        raise SystemExit(f"The build that counts is in {expected}, but {stator.__file__} was found")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for _ in range(TURNS):
        stator.reset()
        for call in (*language_models(), *training_steps(), *functions()):
            for _ in range(3):
                call()


if __name__ == "__main__":
    main()
