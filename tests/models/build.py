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


def _gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            n_layer=2,
            n_head=2,
            n_embd=32,
            n_positions=32,
            vocab_size=VOCABULARY,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    )


def _bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    return BertModel(
        BertConfig(
            num_hidden_layers=2,
            num_attention_heads=2,
            hidden_size=32,
            intermediate_size=64,
            vocab_size=VOCABULARY,
            max_position_embeddings=32,
        )
    )


def _t5() -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(
        T5Config(
            num_layers=2,
            num_heads=2,
            d_model=32,
            d_kv=16,
            d_ff=64,
            vocab_size=VOCABULARY,
            decoder_start_token_id=0,  # type: ignore[call-arg]
        )
    )


def _llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            hidden_size=32,
            intermediate_size=64,
            vocab_size=VOCABULARY,
            max_position_embeddings=64,
        )
    )


def _qwen3() -> nn.Module:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(
        Qwen3Config(
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            hidden_size=32,
            intermediate_size=64,
            vocab_size=VOCABULARY,
            max_position_embeddings=64,
        )
    )


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
