"""Reduced versions of the demo models, from configurations with random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

VOCABULARY = 64


@dataclass(frozen=True)
class Model:
    """How to build a model and its inputs."""

    build: Callable[[], nn.Module]
    inputs: Callable[[], dict[str, Any]]
    trains: bool = False


def _tokens(batch: int = 2, length: int = 10) -> dict[str, Any]:
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, -3:] = 0
    return {
        "input_ids": torch.randint(0, VOCABULARY, (batch, length)),
        "attention_mask": mask,
    }


def _decoder_tokens() -> dict[str, Any]:
    return {**_tokens(), "use_cache": False}


def _seq2seq_tokens() -> dict[str, Any]:
    given = _tokens()
    given["decoder_input_ids"] = torch.randint(0, VOCABULARY, (2, 6))
    given["use_cache"] = False
    return given


def _picture(size: int) -> Callable[[], dict[str, Any]]:
    return lambda: {"x": torch.randn(2, 3, size, size)}


def _of_transformers(family: str, head: str, **sizes: Any) -> Callable[[], nn.Module]:
    """How to build a model of two layers with a small vocabulary; `head` is what follows `family` in its name."""

    def build() -> nn.Module:
        import transformers

        config = getattr(transformers, f"{family}Config")(vocab_size=VOCABULARY, **sizes)
        return getattr(transformers, f"{family}{head}")(config)  # type: ignore[no-any-return]

    return build


_gpt2 = _of_transformers(
    "GPT2",
    "LMHeadModel",
    n_layer=2,
    n_head=2,
    n_embd=32,
    n_positions=32,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
)
_bert = _of_transformers(
    "Bert",
    "Model",
    num_hidden_layers=2,
    num_attention_heads=2,
    hidden_size=32,
    intermediate_size=64,
    max_position_embeddings=32,
)
_t5 = _of_transformers(
    "T5",
    "ForConditionalGeneration",
    num_layers=2,
    num_heads=2,
    d_model=32,
    d_kv=16,
    d_ff=64,
    decoder_start_token_id=0,
)
# What decoders of this kind have in common.
_LLAMA = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
_llama = _of_transformers("Llama", "ForCausalLM", **_LLAMA)
_qwen3 = _of_transformers("Qwen3", "ForCausalLM", head_dim=8, **_LLAMA)


def _resnet18() -> nn.Module:
    from torchvision.models import resnet18

    return resnet18(weights=None, num_classes=10)  # type: ignore[no-any-return]


def _resnet50() -> nn.Module:
    from torchvision.models import resnet50

    return resnet50(weights=None, num_classes=10)  # type: ignore[no-any-return]


def _torchvision_vit() -> nn.Module:
    from torchvision.models import VisionTransformer

    return VisionTransformer(
        image_size=32,
        patch_size=8,
        num_layers=2,
        num_heads=2,
        hidden_dim=32,
        mlp_dim=64,
        num_classes=10,
    )


def _timm_vit() -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=10
    )


MODELS: dict[str, Model] = {
    "gpt2": Model(_gpt2, _decoder_tokens, trains=True),
    "bert": Model(_bert, _tokens),
    "t5": Model(_t5, _seq2seq_tokens),
    "llama": Model(_llama, _decoder_tokens),
    "qwen3": Model(_qwen3, _decoder_tokens),
    "resnet18": Model(_resnet18, _picture(32), trains=True),
    "resnet50": Model(_resnet50, _picture(32), trains=True),
    "vit of torchvision": Model(_torchvision_vit, _picture(32)),
    "vit of timm": Model(_timm_vit, _picture(32)),
}


def built(name: str) -> nn.Module:
    """The model, with the same weights each time."""
    torch.manual_seed(0)
    return MODELS[name].build().eval()


def inputs(name: str, seed: int) -> dict[str, Any]:
    """Inputs of this seed."""
    torch.manual_seed(seed)
    return MODELS[name].inputs()
