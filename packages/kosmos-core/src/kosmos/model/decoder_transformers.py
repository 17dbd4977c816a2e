"""The built-in decoder as a model of transformers: Llama computes the same, or Qwen3 where heads have norms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

from kosmos.errors import ConfigError
from kosmos.model.decoder_presets import DecoderShape
from kosmos.model.norms import RMSNorm

NAMES = (
    (r"^embedding\.", "model.embed_tokens."),
    (r"^head\.", "lm_head."),
    (r"^norm\.", "model.norm."),
    (r"^blocks\.", "model.layers."),
    (r"\.attention_norm\.", ".input_layernorm."),
    (r"\.feed_forward_norm\.", ".post_attention_layernorm."),
    (r"\.attention\.(query|key|value|output)\.", lambda found: f".self_attn.{found[1][0]}_proj."),
    (r"\.attention\.(query|key)_norm\.", lambda found: f".self_attn.{found[1][0]}_norm."),
    (r"\.feed_forward\.gate\.", ".mlp.gate_proj."),
    (r"\.feed_forward\.inner\.", ".mlp.up_proj."),
    (r"\.feed_forward\.output\.", ".mlp.down_proj."),
)
"""What stands in a name here, and there."""
SAME: tuple[tuple[str, Any], ...] = (
    ("norm", "rms"),
    ("activation", "swiglu"),
    ("positions", "rope"),
    ("sub_ln", False),
)
"""Options of a decoder that models of transformers compute as it does."""


def as_transformers(weights: Mapping[str, Tensor], shape: DecoderShape, longest: int) -> Any:
    """A causal language model of transformers that gives the same logits, with the decoder's own tensors.

    Args:
        weights: by their names in the decoder.
        longest: tokens of the longest document that it has learned from.

    Raises:
        ConfigError: no model of transformers computes the same.
    """
    _check(shape)
    embedding = weights["embedding.weight"]
    config = _config(shape, embedding, longest)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    renamed = {_renamed(name): tensor for name, tensor in weights.items()}
    if shape.tie_embeddings:
        renamed["lm_head.weight"] = embedding
    model.load_state_dict(renamed, assign=True)
    model.tie_weights()
    # Computed and no weight: made anew, with memory.
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to(embedding.device)
    return model.eval()


def _config(shape: DecoderShape, embedding: Tensor, longest: int) -> Any:
    fields = {
        "vocab_size": len(embedding),
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_width,
        "intermediate_size": shape.ffn_width,
        "rms_norm_eps": RMSNorm(1).eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_base},
        "max_position_embeddings": longest,
        "tie_word_embeddings": shape.tie_embeddings,
        "attention_bias": shape.bias,
        "dtype": embedding.dtype,
    }
    return Qwen3Config(**fields) if shape.qk_norm else LlamaConfig(**fields, mlp_bias=shape.bias)


def _check(shape: DecoderShape) -> None:
    others = [f"{name}={getattr(shape, name)}" for name, same in SAME if getattr(shape, name) != same]
    if shape.qk_norm and shape.bias:
        others.append("qk_norm with bias")
    if others:
        raise ConfigError(
            f"backbone decoder with {', '.join(others)}: no model of transformers computes the same; write its weights "
            "as one file (kosmos export OUTPUT FILE)"
        )


def _renamed(name: str) -> str:
    for here, there in NAMES:
        name = re.sub(here, there, name)
    return name
