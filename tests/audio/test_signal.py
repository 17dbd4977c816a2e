"""Resampling and log-mel against torchaudio and Whisper."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kosmos.errors import ConfigError
from kosmos_audio.inputs import AudioInput
from kosmos_audio.products import product
from kosmos_audio.resample import _by_taps, resample, resampled_length
from kosmos_audio.spectrogram import _filters, log_mel

RATES_HZ = [8000, 11_025, 22_050, 24_000, 32_000, 44_100, 48_000]


def noise(samples: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(samples).astype(np.float32)


@pytest.mark.parametrize("to_hz", [8000, 16_000])
@pytest.mark.parametrize("from_hz", RATES_HZ)
def test_resampling_equals_torchaudio(from_hz: int, to_hz: int) -> None:
    import torchaudio

    samples = noise(9001)
    ours = resample(samples, from_hz, to_hz)
    theirs = torchaudio.functional.resample(torch.from_numpy(samples).double(), from_hz, to_hz).numpy()
    # Samples reach 4. Against its float64 the largest difference was 9e-7; its float32 is off by up to 1.3e-4.
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() < 5e-6


def test_rates_without_a_short_period_equal_those_with_one() -> None:
    samples = noise(5000)
    whole = resample(samples, 44_100, 16_000)
    assert np.abs(whole - _by_taps(samples, 441, 160, len(whole))).max() < 5e-6  # seen: 7e-7
    near = resample(np.sin(np.arange(44_101) / 20).astype(np.float32), 44_101, 16_000)
    exact = np.sin(np.arange(16_000) * 44_101 / 16_000 / 20)
    assert np.abs(near - exact)[100:-100].max() < 2e-3


@settings(max_examples=40, deadline=None)
@given(samples=st.integers(1, 3000), from_hz=st.integers(1, 100_000), to_hz=st.sampled_from([8000, 16_000]))
def test_length_after_resampling_is_exact(samples: int, from_hz: int, to_hz: int) -> None:
    expected = resampled_length(samples, from_hz, to_hz)
    if expected > 50_000:
        return
    assert len(resample(np.zeros(samples, np.float32), from_hz, to_hz)) == expected
    assert (expected - 1) * from_hz < samples * to_hz <= expected * from_hz


@pytest.mark.parametrize("from_hz", RATES_HZ)
def test_a_tone_keeps_its_frequency(from_hz: int) -> None:
    tone = np.sin(2 * np.pi * 1234 * np.arange(from_hz) / from_hz).astype(np.float32)
    spectrum = np.abs(np.fft.rfft(resample(tone, from_hz, 16_000)))
    assert spectrum.argmax() == 1234  # one second: a bin is one Hz
    assert spectrum[1234] > 0.95 * np.abs(np.fft.rfft(tone))[1234] * 16_000 / from_hz


def test_what_the_new_rate_cannot_hold_is_filtered_out() -> None:
    tone = np.sin(2 * np.pi * 11_000 * np.arange(44_100) / 44_100).astype(np.float32)
    assert np.abs(resample(tone, 44_100, 16_000))[200:-200].max() < 0.01


@pytest.mark.parametrize(("mel_scale", "norm"), [("htk", None), ("slaney", "slaney")])
def test_mel_bands_equal_those_of_torchaudio(mel_scale: str, norm: str | None) -> None:
    import torchaudio

    theirs = torchaudio.functional.melscale_fbanks(201, 0.0, 8000.0, 80, 16_000, norm=norm, mel_scale=mel_scale)
    ours = _filters(AudioInput(mel_scale=mel_scale))  # type: ignore[arg-type]
    assert np.abs(ours - theirs.numpy()).max() < 2e-5  # bands reach 1; seen: 5.2e-6


@pytest.mark.parametrize("num_mels", [80, 128])
def test_log_mel_equals_that_of_whisper(num_mels: int) -> None:
    from transformers import WhisperFeatureExtractor

    samples = noise(16_000 * 3) / np.float32(10)
    theirs = WhisperFeatureExtractor(feature_size=num_mels)(samples, sampling_rate=16_000, return_tensors="np")
    audio = AudioInput(samples_per_cell=320, normalization="whisper", num_mels=num_mels)
    ours = log_mel(samples, 150, audio).reshape(-1, num_mels)
    assert np.abs(ours - theirs.input_features[0].T[:300]).max() < 1e-5  # values about 1; seen: 1.2e-6


def test_loudness_of_an_item_does_not_change_its_normalized_log_mel() -> None:
    samples = noise(6400)
    loud, quiet = log_mel(samples, 10, AudioInput()), log_mel(samples / np.float32(100), 10, AudioInput())
    assert np.abs(loud - quiet).max() < 1e-4  # unit variance; seen: 4e-6


def test_silence_and_one_sample_have_finite_log_mel() -> None:
    for samples in (np.zeros(640, np.float32), np.ones(1, np.float32)):
        assert np.isfinite(log_mel(samples, 1, AudioInput())).all()


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(0, 70), inner=st.integers(1, 300), columns=st.integers(1, 300))
def test_products_in_one_thread_equal_ordinary_ones(rows: int, inner: int, columns: int) -> None:
    a, b = noise(rows * inner).reshape(rows, inner), noise(inner * columns).reshape(inner, columns)
    assert np.allclose(product(a, b), a.astype(np.float64) @ b, atol=1e-3)


def test_inputs_that_do_not_fit_are_refused() -> None:
    for options in (
        {"samples_per_cell": 500},
        {"samples_per_cell": 160},
        {"num_mels": 300},
        {"hop": 0},
        {"max_cells": 0},
        {"features": "waveform", "normalization": "whisper"},
    ):
        with pytest.raises(ConfigError):
            AudioInput(**options)
