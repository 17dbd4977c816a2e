"""A later stage with pictures of another size: position embeddings are interpolated, all else is taken as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.models.vision_transformer import checkpoint_filter_fn
from torch import nn

from kosmos import load_run, make_run, train_model
from kosmos.errors import PluginError
from kosmos_vision.timm_build import resized_positions
from kosmos_vision.timm_encoder import TimmEncoder
from support.timm_models import TINY


@pytest.mark.parametrize("model", ["test_vit", "vit_base_patch16_siglip_224"])
def test_positions_are_those_that_timm_makes_of_its_own_weights(model: str) -> None:
    more = {} if model == "test_vit" else TINY
    small, large = (timm.create_model(model, img_size=size, num_classes=0, **more) for size in (64, 112))
    nn.init.normal_(small.pos_embed)
    expected = checkpoint_filter_fn(small.state_dict(), large)["pos_embed"]
    found = TimmEncoder(model=model, image_size=112, model_options=more).resized(
        "model.pos_embed", small.pos_embed, {"image_size": 64}
    )
    assert found is not None and torch.equal(found, expected)


def test_positions_of_a_naflex_model_are_a_grid() -> None:
    sides = ({"pos_embed_grid_size": (side, side)} for side in (4, 8))
    small, large = (timm.create_model("naflexvit_base_patch16_gap", **TINY, **side) for side in sides)
    stored = nn.init.normal_(small.embeds.pos_embed)
    found = resized_positions(large, "embeds.pos_embed", stored, ())
    assert found is not None and found.shape == large.embeds.pos_embed.shape != stored.shape
    back = resized_positions(small, "embeds.pos_embed", found, ())
    assert back is not None and torch.nn.functional.cosine_similarity(back, stored, dim=-1).min() > 0.8


def test_what_is_not_to_be_had_is_none() -> None:
    encoder, at_64 = TimmEncoder(model="test_vit", image_size=96), {"image_size": [64, 64]}
    assert encoder.resized("model.norm.weight", torch.zeros(3), at_64) is None
    assert encoder.resized("model.pos_embed", torch.zeros(1, 17, 64), at_64) is not None
    assert encoder.resized("model.pos_embed", torch.zeros(1, 18, 64), at_64) is None
    assert encoder.resized("model.pos_embed", torch.zeros(1, 17, 32), at_64) is None
    assert encoder.resized("model.pos_embed", torch.zeros(1, 17, 64), {"image_size": None}) is None
    other = TimmEncoder(model="test_convnext", image_size=64)
    assert other.resized("model.pos_embed", torch.zeros(1, 17, 64), at_64) is None


def test_pictures_that_were_not_square_are_resized_as_they_were() -> None:
    """2 x 8 cells are as many as 4 x 4."""
    stored = torch.zeros(1, 17, 64)
    stored[:, 1:].view(1, 2, 8, 64)[:, :, :4] = 1  # the left half
    wide = TimmEncoder(model="test_vit", image_size=(64, 256)).resized(
        "model.pos_embed", stored, {"image_size": [32, 128]}
    )
    assert wide is not None
    grid = wide[0, 1:].view(4, 16, 64)
    assert grid[:, :6].min() > 0.9 and grid[:, 10:].max() < 0.1


def run(output: Path, size: int, **over: Any) -> Any:
    stream = {"encoder": {"name": "timm", "model": "test_vit", "image_size": size}, "connector": {"name": "linear"}}
    base = {
        "modalities": ["image"], "streams": {"image": stream}, "trackers": [], "output": str(output),
        "data": {"tokens_per_pack": 512, "workers": 0}, "evaluate": {"max_documents": 1},
        "train": {"steps": 1, "learning_rate": 1e-12, "weight_decay": 0, "optimizer": "adamw", "seed": size},
    }  # fmt: skip
    return make_run(base, over)


def test_a_later_stage_takes_pictures_of_another_size(tmp_path: Path) -> None:
    train_model(run(tmp_path / "first", 64))
    train_model(run(tmp_path / "second", 96, init=str(tmp_path / "first")))
    before, after = (
        load_run(tmp_path / name, device="cpu").composition.model.state_dict() for name in ("first", "second")
    )
    positions = "streams.image.encoder.model.pos_embed"
    assert before[positions].shape != after[positions].shape
    encoder = TimmEncoder(model="test_vit", image_size=96)
    expected = encoder.resized("model.pos_embed", before.pop(positions), {"image_size": 64})
    torch.testing.assert_close(after.pop(positions), expected, atol=1e-6, rtol=0)
    assert before.keys() == after.keys()
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)


@pytest.mark.parametrize(
    ("resized", "says"),
    [
        (lambda encoder, name, weight, options: weight, r"TimmEncoder.resized gives \[1, 17, 64\], not \[1, 37, 64\]"),
        (lambda encoder, name, weight, options: 1 / 0, r"TimmEncoder.resized fails: ZeroDivisionError"),
    ],
)
def test_an_encoder_that_resizes_wrongly_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resized: Any, says: str
) -> None:
    train_model(run(tmp_path / "first", 64))
    monkeypatch.setattr(TimmEncoder, "resized", resized)
    with pytest.raises(PluginError, match=says):
        train_model(run(tmp_path / "second", 96, init=str(tmp_path / "first")))
    assert not (tmp_path / "second").exists()
