"""Log-mel frames of one item, in numpy: data workers need no torch for it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from kosmos_audio.inputs import AudioInput, Normalization
from kosmos_audio.products import product

Samples = NDArray[np.float32]

FLOOR = 1e-10
RANGE_DECADES = 8.0


def log_mel(samples: Samples, cells: int, audio: AudioInput) -> Samples:
    """Log-mel of one item.

    Args:
        samples: [S], S at most cells * samples_per_cell; zeros stand after its end.
        cells: cells to fill.
        audio: rates, sizes, mel scale and normalization.

    Returns:
        float32 [cells, *cell_shape]. Frame i is centred on sample i * hop; the item is mirrored
        before its start and silent after its end.

    Source: the front end of Whisper (openai/whisper, audio.py). It differs in that the item is not stretched
    to 30 s by silence, and in the normalization where another is chosen.
    """
    half = audio.fft_size // 2
    padded = np.zeros(cells * audio.samples_per_cell + 2 * half, dtype=np.float32)
    padded[half : half + len(samples)] = samples
    padded[:half] = padded[half + 1 : 2 * half + 1][::-1]
    count = cells * audio.frames_per_cell
    reaches_on = audio.frame_behind and cells != audio.max_cells
    if audio.frame_behind and not reaches_on:
        padded[-half:] = padded[-2 * half - 1 : -half - 1][::-1]  # where what is filled up ends, it is mirrored, too
    frames = sliding_window_view(padded, audio.fft_size)[:: audio.hop][: count + reaches_on]
    spectrum = np.fft.rfft(frames * _window(audio.fft_size), axis=-1)
    power = np.square(spectrum.real) + np.square(spectrum.imag)
    mel = np.log10(np.maximum(product(power.astype(np.float32), _filters(audio)), FLOOR))
    sounding = -(-len(samples) // audio.hop)
    normalized = _normalize(mel, sounding, audio.normalization)
    own = normalized[:count].reshape(cells, audio.frames_per_cell, audio.num_mels)
    if not audio.frame_behind:
        return own
    last = normalized[count:] if reaches_on else np.zeros((1, audio.num_mels), np.float32)
    return np.concatenate([own, np.concatenate([own[1:, 0], last])[:, None]], axis=1)


def _normalize(mel: Samples, sounding: int, normalization: Normalization) -> Samples:
    """``sounding`` frames hold sound, the others padding, which must not shift the statistics."""
    if normalization == "none":
        return mel
    mel = np.maximum(mel, mel.max() - RANGE_DECADES)
    if normalization == "whisper":
        return mel / np.float32(4) + np.float32(1)
    sound = mel[:sounding]
    normalized: Samples = (mel - sound.mean()) / (sound.std() + np.float32(0.1))
    return normalized


@lru_cache(maxsize=4)
def _window(size: int) -> Samples:
    """Periodic Hann window [size]."""
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)).astype(np.float32)


@lru_cache(maxsize=4)
def _filters(audio: AudioInput) -> Samples:
    """Triangular mel bands: float32 [fft_size // 2 + 1, num_mels].

    Source: torchaudio.functional.melscale_fbanks, whose values they equal; "slaney" with equal areas as librosa.
    """
    nyquist = audio.sample_rate_hz / 2
    edges = _from_mel(np.linspace(0.0, _to_mel(nyquist, audio.mel_scale), audio.num_mels + 2), audio.mel_scale)
    bins = np.linspace(0.0, nyquist, audio.fft_size // 2 + 1)
    slopes = edges[None, :] - bins[:, None]
    widths = np.diff(edges)
    triangles = np.maximum(0.0, np.minimum(-slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]))
    if audio.mel_scale == "slaney":
        triangles *= 2.0 / (edges[2:] - edges[:-2])
    return triangles.astype(np.float32)


def _to_mel(hz: float, scale: str) -> float:
    if scale == "htk":
        return 2595.0 * float(np.log10(1.0 + hz / 700.0))
    return hz * 3 / 200 if hz < 1000 else 15.0 + float(np.log(hz / 1000.0)) / (np.log(6.4) / 27.0)


def _from_mel(mel: NDArray[Any], scale: str) -> NDArray[Any]:
    if scale == "htk":
        return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
    return np.where(mel < 15.0, mel * 200 / 3, 1000.0 * np.exp((np.log(6.4) / 27.0) * (mel - 15.0)))
