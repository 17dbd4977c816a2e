"""Folders that hold something else than a causal language model in safetensors say what to give instead."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import CLIPVisionConfig, LlamaConfig, LlamaForCausalLM, LlavaConfig, T5Config

from kosmos import ConfigError
from kosmos.model.huggingface import HuggingFaceBackbone

LLAMA = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 50}


def test_weights_in_pickle_are_named_with_what_to_do(tmp_path: Path) -> None:
    model = LlamaForCausalLM(LlamaConfig(**LLAMA))
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(
        ConfigError, match=r"its weights are in pytorch_model\.bin, and only safetensors are read; load"
    ):
        HuggingFaceBackbone(50, model=str(tmp_path))


def test_an_adapter_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    with pytest.raises(ConfigError, match=r"an adapter without its model; .* merged both \(merge_and_unload"):
        HuggingFaceBackbone(50, model=str(tmp_path))


@pytest.mark.parametrize("pretrained", [True, False])
@pytest.mark.parametrize(
    ("kind", "config"),
    [("llava", LlavaConfig(text_config=LlamaConfig(**LLAMA), vision_config=CLIPVisionConfig())), ("t5", T5Config())],
)
def test_other_kinds_of_models_are_told_apart_in_one_line(
    kind: str, config: LlavaConfig | T5Config, pretrained: bool, tmp_path: Path
) -> None:
    config.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=f"is of model_type {kind}, which is no causal language model") as caught:
        HuggingFaceBackbone(50, model=str(tmp_path), pretrained=pretrained)
    assert len(caught.value.line()) < 400


def test_fields_of_another_kind_are_refused_likewise() -> None:
    with pytest.raises(ConfigError, match="is of model_type t5, which is no causal language model"):
        HuggingFaceBackbone(50, config={"model_type": "t5"})
