"""What a run has trained of an encoder begins another, as ``kosmos export --part`` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import torch
from safetensors.torch import save_file

from kosmos import ConfigError
from kosmos_video.pytorchvideo_encoder import PytorchVideoEncoder


@pytest.mark.parametrize("norm", ["group", "frozen"])
def test_an_encoder_of_a_run_is_what_another_begins_with(norm: Literal["group", "frozen"], tmp_path: Path) -> None:
    trained, file = PytorchVideoEncoder(norm=norm).state_dict(), str(tmp_path / "encoder.safetensors")
    save_file(trained, file)
    encoder = PytorchVideoEncoder(norm=norm, weights=file)
    found = encoder.state_dict()
    assert found.keys() == trained.keys() and all(torch.equal(found[name], trained[name]) for name in found)
    assert encoder.without_files == {"weights": None, "norm": norm}
    if norm == "group":
        with pytest.raises(ConfigError, match=r"; norm: group takes weights without statistics of batches"):
            PytorchVideoEncoder(weights=file)
    save_file({f"streams.video.encoder.{name}": tensor for name, tensor in trained.items()}, file)
    with pytest.raises(ConfigError, match=r"it holds them under streams\.video\.encoder\.net: kosmos export RUN FILE"):
        PytorchVideoEncoder(norm=norm, weights=file)
