"""Real programs that break their graphs: results are eager's, on each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator
from examples.breaks import training

transformers = pytest.importorskip("transformers")


def gpt2() -> Any:
    config = transformers.GPT2Config(
        n_layer=2, n_embd=64, n_head=4, vocab_size=100, bos_token_id=1, eos_token_id=2
    )
    return transformers.GPT2LMHeadModel(config).eval()


def llama() -> Any:
    config = transformers.LlamaConfig(
        num_hidden_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=128,
        vocab_size=100,
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("make", [gpt2, llama], ids=lambda make: make.__name__)
@pytest.mark.parametrize("what", ["forward", "generate"])
@pytest.mark.filterwarnings("ignore::stator.RecompileLimitWarning")
def test_generate(make: Callable[[], Any], what: str) -> None:
    """Greedy decoding with a cache that grows, 32 tokens: the same tokens, four times."""
    torch.manual_seed(0)
    model = make()
    tokens = torch.randint(3, 100, (1, 5))
    options = {
        "attention_mask": torch.ones_like(tokens),
        "max_new_tokens": 32,
        "do_sample": False,
        "pad_token_id": 0,
    }
    with torch.no_grad():
        expected = model.generate(tokens, **options)
        if what == "forward":
            compiled = model.forward = stator.compile(model.forward)
            generate = model.generate
        else:
            compiled = generate = stator.compile(model.generate)
        # What is recorded first ends in the middle of an instruction, so it's recorded once more.
        for _ in range(4):
            assert torch.equal(generate(tokens, **options), expected)
    assert stator.stats(compiled).hits >= 2


class Experts(nn.Module):
    """A mixture of experts whose routing depends on data."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, place = (chosen == number).nonzero(as_tuple=True)
            if rows.numel() == 0:
                continue
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, place, None])
        return out


def test_mixture_of_experts() -> None:
    torch.manual_seed(0)
    model = Experts()
    compiled = stator.compile(model)
    with torch.no_grad():
        for _ in range(6):
            x = torch.randn(5, 8)
            assert torch.equal(compiled(x), model(x))
    assert stator.stats(compiled).hits >= 5


def test_training_that_reports(capsys: pytest.CaptureFixture[str]) -> None:
    plain, compiled = training(None), training(stator.compile)
    assert plain.losses == compiled.losses
    assert all(map(torch.equal, plain.parameters, compiled.parameters))
    printed = capsys.readouterr().out
    assert printed[: len(printed) // 2] == printed[len(printed) // 2 :]
    assert compiled.stats is not None and compiled.stats.native == 0
