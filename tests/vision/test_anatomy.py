"""What a dry run of a timm model shows, and what it says of pictures that the model cannot take."""

from __future__ import annotations

import pytest
import torch

from kosmos import ConfigError, Document, Text, load_run, make_run, train_model
from kosmos_vision.timm_encoder import TimmEncoder

TINY = {"embed_dim": 32, "depth": 1, "num_heads": 2}


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ("vit_tiny_patch16_224", TINY, "patches of 16 x 16 px, and 100 x 100 px are no whole number of them"),
        ("naflexvit_base_patch16_gap", TINY, "patches of 16 x 16 px, and 100 x 100 px"),
        ("mixer_s32_224", {}, "patches of 32 x 32 px, and 100 x 100 px"),
        ("convnext_atto", {}, "gives 3 x 3 positions for 100 x 100 px, no whole number of pixels each"),
    ],
)
def test_of_a_size_that_leaves_a_rest_the_message_says_what_to_choose(model, options, said):
    with pytest.raises(ConfigError, match=f"{said}.*; choose an image_size that its stride divides$"):
        TimmEncoder(model=model, image_size=100, model_options=options)


@pytest.mark.parametrize("without_gradients", [torch.no_grad, torch.inference_mode])
def test_a_run_is_loaded_where_no_gradients_are_wanted_and_can_go_on_to_train(tmp_path, without_gradients):
    encoder = {"name": "timm", "model": "vit_tiny_patch16_224", "image_size": 32, "model_options": TINY}
    layers = {
        "modalities": ["image"],
        "data": {"tokens_per_pack": 256, "look_ahead": 8, "workers": 0, "sources": ["shapes"]},
        "backbone": {"width": 32, "layers": 1, "heads": 2, "ffn_width": 48},
        "streams": {"image": {"encoder": encoder}},
        "train": {"steps": 1, "warmup_steps": 0},
        "evaluate": {"max_documents": 1},
        "trackers": [],
        "output": str(tmp_path / "run"),
    }
    train_model(make_run(layers))
    with without_gradients():
        composition = load_run(tmp_path / "run", device="cpu").composition
        assert not torch.is_grad_enabled()
    loss = composition.model(composition.pack([Document("mine", (Text("a", train=True),))])).total
    loss.backward()
    assert composition.model.backbone.output_weight().grad is not None
