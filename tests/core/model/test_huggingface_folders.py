"""Folders that hold something else than a causal language model in safetensors say what to give instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import CLIPVisionConfig, LlamaConfig, LlamaForCausalLM, LlavaConfig, RwkvForCausalLM, T5Config
from transformers.integrations import hub_kernels

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


def saved_with(folder: Path, **stated: Any) -> str:
    """A small model, whose configuration says this too."""
    LlamaForCausalLM(LlamaConfig(**LLAMA)).save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | stated))
    return str(folder)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What transformers would have fetched of compiled code, had it the package that does."""
    asked: list[Any] = []
    monkeypatch.setattr(hub_kernels, "is_kernels_available", lambda: True)
    monkeypatch.setattr(hub_kernels, "get_kernel", lambda *names, **options: asked.append(names))
    return asked


@pytest.mark.parametrize("pretrained", [True, False])
@pytest.mark.parametrize("field", ["_attn_implementation", "attn_implementation"])
def test_a_configuration_that_names_compiled_code_of_the_hub_fetches_none(
    field: str, pretrained: bool, fetched: list[Any], tmp_path: Path
) -> None:
    model = saved_with(tmp_path, **{field: "kernels-community/flash-attn2", "_experts_implementation": "sonicmoe"})
    HuggingFaceBackbone(50, model=model, pretrained=pretrained)
    assert fetched == []


def test_weights_in_few_bits_are_refused_before_anything_is_fetched_for_them(
    fetched: list[Any], tmp_path: Path
) -> None:
    model = saved_with(tmp_path, quantization_config={"quant_method": "mxfp4"})
    with pytest.raises(ConfigError, match=r"its weights are in few bits \(mxfp4\), which are not trained here; give"):
        HuggingFaceBackbone(50, model=model)
    HuggingFaceBackbone(50, model=model, pretrained=False)
    assert fetched == []


def test_a_model_that_cannot_be_packed_is_refused_before_its_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*arguments: Any, **options: Any) -> None:
        pytest.fail("it was built")

    monkeypatch.setattr(RwkvForCausalLM, "__init__", run)
    with pytest.raises(ConfigError, match=r"\(RwkvForCausalLM\) takes no other attention"):
        HuggingFaceBackbone(50, config={"model_type": "rwkv", "hidden_size": 32, "num_hidden_layers": 1})


@pytest.mark.parametrize("file", ["../outside.safetensors", "/outside.safetensors", "evil.bin"])
def test_a_list_of_weights_names_no_files_but_safetensors_beside_it(file: str, tmp_path: Path) -> None:
    saved_with(folder := tmp_path / "model")
    weights = (folder / "model.safetensors").rename(tmp_path / "outside.safetensors")
    for place in (folder / "evil.bin", folder / "beside.safetensors"):
        place.write_bytes(weights.read_bytes())
    names = load_file(weights)

    def listed(file: str) -> None:
        content = {"metadata": {}, "weight_map": dict.fromkeys(names, file)}
        (folder / "model.safetensors.index.json").write_text(json.dumps(content))

    listed(file)
    with pytest.raises(
        ConfigError, match=r"model.safetensors.index.json names the file '.*'; expected files of"
    ) as told:
        HuggingFaceBackbone(50, model=str(folder))
    assert file in str(told.value)
    listed("beside.safetensors")
    assert HuggingFaceBackbone(50, model=str(folder)).vocab_size == 50
