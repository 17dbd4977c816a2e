"""What a run has trained of a timm model begins another, as ``kosmos export --part`` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from kosmos import ConfigError
from kosmos_vision.timm_encoder import TimmEncoder
from support.timm_models import TINY

CASES: dict[str, dict[str, Any]] = {
    "blocks behind its layer are gone": {"model": "test_vit", "layer": -2},
    "what it pools by is gone": {"model": "vit_base_patch16_siglip_224", "model_options": {**TINY, "depth": 1}},
    "norms of items": {"model": "test_resnet", "norm": "group"},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_an_encoder_of_a_run_is_what_another_begins_with(options: dict[str, Any], tmp_path: Path) -> None:
    trained, file = TimmEncoder(**options).state_dict(), tmp_path / "encoder.safetensors"
    save_file(trained, file)
    found = TimmEncoder(**options, weights=str(file)).state_dict()
    assert found.keys() == trained.keys() and all(torch.equal(found[name], trained[name]) for name in found)
    save_file({f"streams.image.encoder.{name}": tensor for name, tensor in trained.items()}, file)
    within = (
        "it holds them under streams.image.encoder.model: kosmos export RUN FILE --part streams.image.encoder.model"
    )
    with pytest.raises(ConfigError, match=within):
        TimmEncoder(**options, weights=str(file))


def test_weights_without_statistics_of_batches_want_norms_of_items(tmp_path: Path) -> None:
    save_file(TimmEncoder(model="test_resnet").state_dict(), tmp_path / "encoder.safetensors")
    with pytest.raises(ConfigError, match=r"lack 30 tensors, first conv1\.1\.running_mean; norm: group takes weights"):
        TimmEncoder(model="test_resnet", weights=str(tmp_path))
