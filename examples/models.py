"""Real architectures with random weights: what `make demo`, `make bench` and the tests compile.

Everything comes from configurations; nothing is downloaded. The depths are those of the published
models (12, 6 + 6 and 36 layers), the widths are small, so that what is measured is the work around
the operations and not the operations. One row of [CASES][] is one model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import timm
import torch
import torchvision
import transformers
from torch import Tensor, nn

BATCH = 2
TOKENS = 16
VOCABULARY = 512


@dataclasses.dataclass(frozen=True)
class Case:
    """One model, how to call it, and in which mode."""

    name: str
    title: str
    build: Callable[[], nn.Module]
    make_inputs: Callable[[], dict[str, Any]]
    training: bool = False

    def make(self) -> tuple[nn.Module, dict[str, Any]]:
        """The model and its inputs, the same at every call."""
        torch.manual_seed(0)
        model = self.build().train(self.training)
        return model, self.make_inputs()

    def step(self, model: nn.Module, inputs: dict[str, Any]) -> Any:
        """One call as a user makes it: inference, or forward and backward with fresh gradients."""
        if not self.training:
            with torch.no_grad():
                return model(**inputs)
        model.zero_grad(set_to_none=True)
        output = model(**inputs)
        output.square().mean().backward()
        return output


def tensors_of(output: Any) -> list[Tensor]:
    """The tensors in a model's output, in order."""
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, dict):
        return tensors_of(list(output.values()))
    if isinstance(output, list | tuple):
        return [tensor for item in output for tensor in tensors_of(item)]
    return []


def _text() -> dict[str, Any]:
    mask = torch.ones(BATCH, TOKENS, dtype=torch.long)
    mask[0, -3:] = 0
    return {
        "input_ids": torch.randint(VOCABULARY, (BATCH, TOKENS)),
        "attention_mask": mask,
    }


def _text_without_cache() -> dict[str, Any]:
    return {**_text(), "use_cache": False}


def _text_pair() -> dict[str, Any]:
    return {**_text(), "decoder_input_ids": torch.randint(VOCABULARY, (BATCH, 8))}


def _text_pair_without_cache() -> dict[str, Any]:
    return {**_text_pair(), "use_cache": False}


def _image(pixels: int) -> Callable[[], dict[str, Any]]:
    return lambda: {"x": torch.randn(1, 3, pixels, pixels)}


def _gpt2() -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=64,
        n_embd=64,
        n_layer=12,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config)


def _bert() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        num_hidden_layers=12,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
    )
    return transformers.BertModel(config)


def _t5() -> nn.Module:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=64, d_kv=16, d_ff=128, num_layers=6, num_heads=4
    )
    return transformers.T5ForConditionalGeneration(config)


def _bart() -> nn.Module:
    config = transformers.BartConfig(
        vocab_size=VOCABULARY,
        d_model=64,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_position_embeddings=64,
    )
    return transformers.BartForConditionalGeneration(config)


def _llama() -> nn.Module:
    config = transformers.LlamaConfig(**_decoder(layers=16))
    return transformers.LlamaForCausalLM(config)


def _qwen3() -> nn.Module:
    config = transformers.Qwen3Config(**_decoder(layers=36), head_dim=16)
    return transformers.Qwen3ForCausalLM(config)


def _decoder(layers: int) -> dict[str, int]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
    }


def _resnet50() -> nn.Module:
    return torchvision.models.resnet50(weights=None)


def _vit() -> nn.Module:
    return timm.create_model("vit_tiny_patch16_224", pretrained=False)


CASES = (
    Case("gpt2", "GPT-2, 12 layers", _gpt2, _text_without_cache),
    Case("bert", "BERT, 12 layers", _bert, _text),
    Case("t5", "T5, 6 + 6 layers", _t5, _text_pair_without_cache),
    Case("llama", "Llama, 16 layers", _llama, _text_without_cache),
    Case("qwen3", "Qwen3, 36 layers", _qwen3, _text_without_cache),
    Case("resnet50", "ResNet-50", _resnet50, _image(128)),
    Case("vit", "ViT-tiny", _vit, _image(224)),
    Case("resnet50_training", "ResNet-50, training", _resnet50, _image(128), training=True),
)

CACHED_CASES = (
    Case("t5_cached", "T5, 6 + 6 layers, its cache", _t5, _text_pair),
    Case("bart_cached", "BART, 6 + 6 layers, its cache", _bart, _text_pair),
)
"""Encoder-decoders as called by default: they make a cache, and copy their configuration."""

CASE = {case.name: case for case in CASES}
