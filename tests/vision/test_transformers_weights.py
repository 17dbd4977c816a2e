"""Vision towers that transformers has saved are loaded into timm's models, and give the same features."""

from __future__ import annotations

import json

import pytest
import torch
import transformers as hf
from torch import nn

from kosmos import ConfigError
from kosmos_vision.timm_build import build
from kosmos_vision.timm_encoder import TimmEncoder

SIZES = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
DINO = {**SIZES, "mlp_ratio": 2}
TIMM = {"embed_dim": 32, "depth": 2, "num_heads": 4, "mlp_ratio": 2.0, "patch_size": 8, "img_size": 32}
TEXT = {**SIZES, "vocab_size": 10, "bos_token_id": 0, "eos_token_id": 1}
TOWERS = {
    "siglip": (hf.SiglipVisionModel, hf.SiglipVisionConfig, SIZES, "vit_base_patch16_siglip_224"),
    "siglip with its text": (
        hf.SiglipModel, hf.SiglipConfig, {"vision_config": SIZES, "text_config": TEXT}, "vit_base_patch16_siglip_224",
    ),
    "clip": (hf.CLIPVisionModel, hf.CLIPVisionConfig, SIZES, "vit_base_patch16_clip_quickgelu_224"),
    "vit": (hf.ViTForImageClassification, hf.ViTConfig, SIZES, "vit_base_patch16_224"),
    "deit": (hf.DeiTModel, hf.DeiTConfig, SIZES, "deit_base_distilled_patch16_224"),
    "dinov2": (hf.Dinov2Model, hf.Dinov2Config, DINO, "vit_small_patch14_dinov2"),
    "dinov2 with registers": (
        hf.Dinov2WithRegistersModel, hf.Dinov2WithRegistersConfig, DINO, "vit_small_patch14_reg4_dinov2",
    ),
}  # fmt: skip


def saved(kind, folder):
    """A tower with weights of its own, as transformers saves it; the part that sees."""
    model, config, sizes, _ = TOWERS[kind]
    torch.manual_seed(0)
    tower = model(config(**sizes)).eval()
    for parameter in tower.parameters():
        nn.init.normal_(parameter, mean=0.0 if parameter.ndim > 1 else 0.3, std=0.1)
    tower.save_pretrained(folder)
    return getattr(tower, "vision_model", None) or getattr(tower, "vit", None) or tower


@pytest.mark.parametrize("kind", TOWERS)
def test_a_tower_of_transformers_gives_the_same_features_in_timm(kind, tmp_path):
    tower, name = saved(kind, tmp_path), TOWERS[kind][3]
    model = build(name, pretrained=False, weights=str(tmp_path), options=TIMM).eval()
    pictures = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        theirs, ours = tower(pixel_values=pictures).last_hidden_state, model.forward_features(pictures)
        theirs = tower.post_layernorm(theirs) if kind == "clip" else theirs
    torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=0)  # one has the tangent in its GELU


def test_an_encoder_begins_with_them_and_takes_their_colours(tmp_path):
    saved("vit", tmp_path)
    colours = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(colours))
    encoder = TimmEncoder(model="vit_base_patch16_224", weights=str(tmp_path), model_options=TIMM)
    assert (encoder.input.mean, encoder.input.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


def test_a_model_that_counts_otherwise_is_refused(tmp_path):
    saved("clip", tmp_path)
    clip = "vit_base_patch16_clip_224"
    with pytest.raises(ConfigError, match=r"hidden_act quick_gelu, .* such as vit_base_patch16_clip_quickgelu_224$"):
        TimmEncoder(model=clip, weights=str(tmp_path), model_options=TIMM)
    hf.CLIPVisionModel(hf.CLIPVisionConfig(**SIZES, hidden_act="gelu")).save_pretrained(tmp_path / "gelu")
    with pytest.raises(ConfigError, match=r"hidden_act gelu, .* one without quickgelu .* such as vit_base_patch16_"):
        TimmEncoder(model=TOWERS["clip"][3], weights=str(tmp_path / "gelu"), model_options=TIMM)
    assert TimmEncoder(model=clip, weights=str(tmp_path / "gelu"), model_options=TIMM)
    with pytest.raises(ConfigError, match=r"says num_attention_heads 4, .* has 2; .* model_options: \{num_heads: 4\}"):
        TimmEncoder(model=TOWERS["clip"][3], weights=str(tmp_path), model_options={**TIMM, "num_heads": 2})


def test_a_tower_of_another_size_does_not_fit(tmp_path):
    saved("siglip", tmp_path)
    with pytest.raises(ConfigError, match=r"_siglip_224 \(.* model_type siglip_.*\): lack .* blocks\.2"):
        TimmEncoder(model="vit_base_patch16_siglip_224", weights=str(tmp_path), model_options={**TIMM, "depth": 3})


def test_siglip_has_the_activation_that_it_was_trained_with(tmp_path):
    tower = saved("siglip", tmp_path)
    encoder = TimmEncoder(model="vit_base_patch16_siglip_224", weights=str(tmp_path), model_options=TIMM).eval()
    cells = torch.randint(0, 256, (16, 3, 8, 8), dtype=torch.uint8)
    rows = cells.reshape(4, 4, 3, 8, 8).permute(2, 0, 3, 1, 4).reshape(1, 3, 32, 32)
    with torch.no_grad():
        theirs = tower(pixel_values=(rows / 255 - 0.5) / 0.5).last_hidden_state[0]
        torch.testing.assert_close(encoder(cells, torch.tensor([[1, 4, 4]])), theirs, atol=2e-5, rtol=0)


def test_the_size_of_another_model_has_to_be_stated(tmp_path):
    saved("vit", tmp_path)
    options = {name: value for name, value in TIMM.items() if name != "img_size"}
    with pytest.raises(ConfigError, match=r"says image_size 32, and timm model .* is for 224 x 224 pixels"):
        TimmEncoder(model="vit_base_patch16_224", weights=str(tmp_path), model_options=options)
    for size in (32, 64):
        assert TimmEncoder(
            model="vit_base_patch16_224", weights=str(tmp_path), model_options=options, image_size=size
        ).input.size_px == (size, size)


def test_weights_in_several_files_are_read_by_their_index(tmp_path):
    tower = saved("dinov2", tmp_path / "one")
    tower.save_pretrained(tmp_path / "several", max_shard_size="20KB")
    assert (tmp_path / "several" / "model.safetensors.index.json").exists()
    whole, parts = (
        build("vit_small_patch14_dinov2", pretrained=False, weights=str(tmp_path / name), options=TIMM).state_dict()
        for name in ("one", "several")
    )
    assert all(torch.equal(parts[name], tensor) for name, tensor in whole.items())
    next((tmp_path / "several").glob("*-00002-*")).unlink()
    with pytest.raises(ConfigError, match=r"model\.safetensors\.index\.json: cannot be read as tensors: .*00002"):
        build("vit_small_patch14_dinov2", pretrained=False, weights=str(tmp_path / "several"), options=TIMM)
