"""What a run has trained of an encoder begins another, as ``kosmos export --part`` writes it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from kosmos import ConfigError
from kosmos_audio.wav2vec2 import Wav2Vec2Encoder
from kosmos_audio.whisper import WhisperEncoder

SIZES = {"width": 32, "layers": 1, "heads": 4, "feed_forward": 64}


@pytest.mark.parametrize("kind", ["whisper", "wav2vec2_base", "wavlm_base"])
def test_an_encoder_of_a_run_is_what_another_begins_with(kind: str, tmp_path: Path) -> None:
    def made(**weights: str) -> torch.nn.Module:
        if kind == "whisper":
            return WhisperEncoder(**SIZES, **weights)  # type: ignore[arg-type]
        return Wav2Vec2Encoder(model=kind, channels=16, **SIZES, **weights)  # type: ignore[arg-type]

    trained, file = {name: t.contiguous() for name, t in made().state_dict().items()}, tmp_path / "x.safetensors"
    save_file(trained, file)
    found = made(weights=str(file)).state_dict()
    assert found.keys() == trained.keys() and all(torch.equal(found[name], trained[name]) for name in found)
    save_file({f"streams.audio.encoder.{name}": tensor for name, tensor in trained.items()}, file)
    with pytest.raises(ConfigError, match=r"; it holds them under streams\.audio\.encoder\.(en|mo)\w+: kosmos export "):
        made(weights=str(file))
