"""What timm writes beside weights counts: the colours that they were trained with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.models import save_for_hf
from torch import nn

from kosmos import ConfigError
from kosmos_vision.timm_encoder import TimmEncoder
from support.rebuilt import rebuilt

IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def saved(folder: Path, **colours: Any) -> nn.Module:
    """A model as ``timm`` saves it, trained with other colours than its name says."""
    model = timm.create_model("test_vit", pretrained_cfg_overlay=colours).eval()
    save_for_hf(model, folder, safe_serialization=True)
    return model


@pytest.mark.parametrize("named", [".", "model.safetensors"])
def test_pictures_get_the_mean_and_std_that_stand_beside_the_weights(named: str, tmp_path: Path) -> None:
    source = saved(tmp_path, **IMAGENET)
    encoder = TimmEncoder(model="test_vit", weights=str(tmp_path / named)).eval()
    assert encoder.input.mean == (0.485, 0.456, 0.406)
    rows, columns = encoder._start_cells
    cells = torch.randint(0, 256, (rows * columns, 3, *encoder.input.patch_px), dtype=torch.uint8)
    picture = (
        cells.view(rows, columns, 3, *encoder.input.patch_px).permute(2, 0, 3, 1, 4).flatten(3).flatten(1, 2) / 255
    )
    mean, std = (torch.tensor(IMAGENET[name])[:, None, None] for name in ("mean", "std"))
    expected = source.forward_features(((picture - mean) / std)[None])[0, 1:]  # type: ignore[operator]
    got = encoder(cells, torch.tensor([[1, rows, columns]]))
    assert torch.allclose(got, expected, atol=1e-5)  # measured: 2e-6


def test_a_run_knows_them_where_the_weights_are_gone(tmp_path: Path) -> None:
    saved(tmp_path, **IMAGENET)
    options: dict[str, Any] = {"model": "test_vit", "weights": str(tmp_path)}
    encoder = TimmEncoder(**options)
    for file in tmp_path.iterdir():
        file.unlink()
    assert rebuilt(encoder, **options).input == encoder.input


def test_on_the_meta_device_they_are_the_same(tmp_path: Path) -> None:
    saved(tmp_path, **IMAGENET)
    with torch.device("meta"):
        encoder = TimmEncoder(model="test_vit", weights=str(tmp_path))
    assert encoder.input.std == (0.229, 0.224, 0.225)


def test_options_of_the_run_go_before_them(tmp_path: Path) -> None:
    saved(tmp_path, **IMAGENET)
    own = {"pretrained_cfg_overlay": {"mean": (0.4, 0.4, 0.4)}}
    encoder = TimmEncoder(model="test_vit", weights=str(tmp_path), model_options=own)
    assert (encoder.input.mean, encoder.input.std) == ((0.4, 0.4, 0.4), (0.229, 0.224, 0.225))


def test_the_configuration_of_something_else_says_nothing(tmp_path: Path) -> None:
    saved(tmp_path, **IMAGENET)
    (tmp_path / "config.json").write_text('{"model_type": "vit", "image_size": 224}')
    assert TimmEncoder(model="test_vit", weights=str(tmp_path)).input == TimmEncoder(model="test_vit").input


def test_the_file_of_the_hub_is_asked_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    saved(tmp_path, **IMAGENET)
    monkeypatch.setattr("timm.models._hub.download_from_hf", lambda name, file, **_: str(tmp_path / file))
    monkeypatch.setattr(
        "timm.models._builder.load_state_dict_from_hf",
        lambda *_, **__: timm.create_model("test_vit").state_dict(),
    )
    assert TimmEncoder(model="test_vit", weights="hf-hub:someone/theirs").input.mean == (0.485, 0.456, 0.406)


@pytest.mark.parametrize("content", ["{", json.dumps({"pretrained_cfg": {"mean": [0.5], "std": [0.5, 0.5, 0.5]}})])
def test_a_damaged_configuration_is_named(content: str, tmp_path: Path) -> None:
    saved(tmp_path, **IMAGENET)
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=r"config\.json.*(cannot be read|mean: expected three numbers, got \[0\.5\])"):
        TimmEncoder(model="test_vit", weights=str(tmp_path))
