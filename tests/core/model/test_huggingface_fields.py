"""Fields of a configuration that the model reads and its configuration's class does not name."""

from __future__ import annotations

from typing import Any

import pytest

from kosmos import ConfigError
from kosmos.model.huggingface import HuggingFaceBackbone
from kosmos.model.huggingface_loading import fields_of

V = 40
SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
}


@pytest.mark.parametrize("kind", ["qwen3_moe", "smollm3", "qwen2"])
def test_they_are_taken(kind: str) -> None:
    """Published configurations of these have ``head_dim``."""
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16} if kind == "qwen3_moe" else {}
    backbone = HuggingFaceBackbone(V, config={"model_type": kind, **SHAPE, **experts, "head_dim": 24})
    layer: Any = backbone.model.model.layers[0]
    assert layer.self_attn.q_proj.out_features == 24 * SHAPE["num_attention_heads"]
    again = HuggingFaceBackbone(V, config=fields_of(backbone.model.config))  # as where its files are gone
    assert {n: p.shape for n, p in again.named_parameters()} == {n: p.shape for n, p in backbone.named_parameters()}


@pytest.mark.parametrize(
    ("name", "value"), [("_attn_implementation", "somebody/code"), ("_experts_implementation", 1), ("head_dim", "wide")]
)
def test_what_may_name_code_or_is_no_number_is_not(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"qwen2 has no field '{name}'"):
        HuggingFaceBackbone(V, config={"model_type": "qwen2", **SHAPE, name: value})
