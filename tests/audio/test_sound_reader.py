"""What a codec of one's own for sounds is made of: public names of kosmos-audio."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile

import kosmos_audio
from kosmos import Media, SampleError
from kosmos_audio import SoundReader, wav_of


def test_sounds_of_any_rate_and_channels_are_read_at_one_rate_and_written_again() -> None:
    tone = np.sin(np.arange(4410) * 2 * np.pi * 440 / 44_100).astype(np.float32) / 2
    file = io.BytesIO()
    soundfile.write(file, np.stack([tone, tone * 0.5], 1), 44_100, format="WAV")
    reader = SoundReader(16_000, max_duration_s=1)
    samples = reader.read(Media("audio", file.getvalue()))
    assert samples.shape == (1600,)
    expected = 0.375 * np.sin(np.arange(1600) * 2 * np.pi * 440 / 16_000)
    assert np.abs(samples - expected)[50:-50].max() < 0.01  # the mean of the channels; the ends have no neighbours
    written = wav_of(samples, 16_000)
    assert written.suffix == ".wav"
    assert np.abs(reader.read(Media("audio", written.content)) - samples).max() < 1e-4  # 16 bits


def test_what_is_too_long_or_no_sound_is_a_bad_sample() -> None:
    reader = SoundReader(16_000, max_duration_s=0.1)
    with pytest.raises(SampleError, match="max_duration_s"):
        reader.read(Media("audio", np.zeros(3200, np.float32), rate_hz=16_000))
    with pytest.raises(SampleError):
        reader.read(Media("audio", b"no sound"))


def test_a_name_that_is_not_public_is_told() -> None:
    with pytest.raises(AttributeError, match="module 'kosmos_audio' has no attribute 'SoundWriter'"):
        kosmos_audio.SoundWriter  # noqa: B018
