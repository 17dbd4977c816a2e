"""Small encoders of every kind, and what makes sounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kosmos_audio.conformer import ConformerEncoder
from kosmos_audio.logmel import LogMelEncoder
from kosmos_audio.wav2vec2 import Wav2Vec2Encoder
from kosmos_audio.whisper import WhisperEncoder

TINY: dict[str, Any] = {"width": 32, "layers": 2, "heads": 2, "feed_forward": 64}
ENCODERS: dict[str, Callable[[], Any]] = {
    "logmel": lambda: LogMelEncoder(width=32, layers=2, heads=2),
    "wav2vec2_base": lambda: Wav2Vec2Encoder(model="wav2vec2_base", channels=16, **TINY),
    "hubert_large": lambda: Wav2Vec2Encoder(model="hubert_large", channels=16, **TINY),
    "wavlm_base": lambda: Wav2Vec2Encoder(model="wavlm_base", channels=16, **TINY),
    "wavlm_large": lambda: Wav2Vec2Encoder(model="wavlm_large", channels=16, **TINY),
    "conformer": lambda: ConformerEncoder(**TINY),
    "whisper": lambda: WhisperEncoder(**TINY),
    "whisper, 30 s": lambda: WhisperEncoder(context="30s", **{**TINY, "layers": 1}),
}


@pytest.fixture(params=list(ENCODERS))
def encoder(request: pytest.FixtureRequest) -> Any:
    """A small one of each kind, with the same random weights every time."""
    torch.manual_seed(0)
    return ENCODERS[request.param]()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def clips(shared_data: Callable[[str], Path]) -> Path:
    return shared_data("audio")
