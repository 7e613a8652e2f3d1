"""Real models with sizes that vary: few traces, eager's results."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from models import build

import stator

SIZES = [(2, 8), (3, 11), (4, 16), (5, 7), (2, 9), (8, 3), (3, 5), (6, 12), (7, 13), (4, 4)]
SIZES += [(2, 20), (3, 21), (9, 6), (2, 2), (5, 5), (4, 17), (6, 6), (3, 14), (7, 10), (2, 15)]


def tokens(batch: int, length: int) -> dict[str, Any]:
    return {
        "input_ids": torch.randint(0, build.VOCABULARY, (batch, length)),
        "attention_mask": torch.ones(batch, length, dtype=torch.long),
    }


def picture(batch: int, side: int) -> dict[str, Any]:
    return {"x": torch.randn(batch, 3, side, side)}


CASES = {
    "bert": (build._bert, tokens),
    "gpt2": (build._gpt2, lambda b, s: {**tokens(b, s), "use_cache": False}),
    "llama": (build._llama, lambda b, s: {**tokens(b, s), "use_cache": False}),
    "qwen3": (build._qwen3, lambda b, s: {**tokens(b, s), "use_cache": False}),
    "vit": (build._torchvision_vit, lambda b, s: picture(b, 32)),
    "resnet18": (build._resnet18, lambda b, s: picture(b, 32 * (2 + s % 5))),
}


def first(output: Any) -> torch.Tensor:
    return output if isinstance(output, torch.Tensor) else output[0]


@pytest.mark.parametrize("name", CASES)
def test_two_traces_for_twenty_sizes(name: str) -> None:
    make, inputs = CASES[name]
    torch.manual_seed(0)
    model = make().eval()
    compiled = stator.compile(model, is_compiling=True)
    for batch, size in SIZES:
        given = inputs(batch, size)
        with torch.no_grad():
            expected, found = first(model(**given)), first(compiled(**given))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    stats = stator.stats(compiled)
    assert stats.native == 0, stats.reason
    assert stats.traces <= 2


def test_a_resolution_change_in_resnet50() -> None:
    torch.manual_seed(0)
    model = build._resnet50().eval()
    compiled = stator.compile(model, is_compiling=True)
    with torch.no_grad():
        for side in (64, 96, 128, 96):
            given = picture(2, side)["x"]
            torch.testing.assert_close(compiled(given), model(given), rtol=1e-4, atol=1e-4)
    stats = stator.stats(compiled)
    assert (stats.traces, stats.native) == (2, 0), stats.reason


STEPS = 64

# The reduced model knows too few positions.
_long_gpt2 = build._of_transformers(
    "GPT2", "LMHeadModel", n_layer=2, n_head=2, n_embd=32, n_positions=STEPS + 8
)


@pytest.mark.parametrize("make", [build._llama, _long_gpt2], ids=["llama", "gpt2"])
def test_a_cache_that_grows(make: Any) -> None:
    """Greedy decoding, 64 steps: at most 3 traces."""
    from transformers import DynamicCache

    torch.manual_seed(0)
    model = make().eval()
    compiled = stator.compile(model, is_compiling=True)
    start = torch.randint(0, build.VOCABULARY, (2, 5))

    def decode(target: Any) -> torch.Tensor:
        cache, current, chosen = DynamicCache(), start, []
        with torch.no_grad():
            for _ in range(STEPS):
                output = target(input_ids=current, past_key_values=cache, use_cache=True)
                current = output.logits[:, -1:].argmax(-1)
                chosen.append(current)
        return torch.cat(chosen, 1)

    assert torch.equal(decode(compiled), decode(model))
    stats = stator.stats(compiled)
    assert stats.native == 0, stats.reason
    assert stats.traces <= 3
