"""Samples as codes of eight bits, finer where sound is quiet: a codec that needs no weights. No torch here."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos import ConfigError, Encoded, Media, SampleError
from kosmos_audio.codecs.sound_files import SoundReader, wav_of
from kosmos_audio.reading import MAX_RATE_HZ

CODES = 256
MU = CODES - 1


class MuLawCodec:
    """Each sample is a code from 0 (-1) to 255 (1), in the order of their values; silence is 128.

    The 256 codes are those of a 16-bit WAV of them, each of which comes back as it was. Source: A. van den Oord et al.,
    "WaveNet" (arXiv 1609.03499), equation 5; the codes are those of ``torchaudio.functional.mu_law_encoding``. They are
    not the bytes of mu-law files of telephones (G.711), which are the same curve in straight pieces.

    Args:
        rate_hz: samples of a second, so many codes each; sound is resampled to it.
        max_duration_s: longest sound (after ``Media.clip``) that is learned or written, in seconds.

    Raises:
        ConfigError: a number is out of range.
    """

    size = CODES
    keeps = False  # a sound is read, and that is nearly all

    def __init__(self, *, rate_hz: int = 8000, max_duration_s: float = 4.0) -> None:
        if not 1 <= rate_hz <= MAX_RATE_HZ:
            raise ConfigError(f"rate_hz: expected 1 to {MAX_RATE_HZ}, got {rate_hz}")
        self.rate_hz = rate_hz
        self.identity = f"{rate_hz} Hz"
        self.reader = SoundReader(rate_hz, max_duration_s)

    def encode(self, media: Media) -> NDArray[np.integer[Any]]:
        """Codes of the samples of a sound: int64 [S]. Raises SampleError: it is broken or over a limit."""
        samples = self.reader.read(media).astype(np.float64).clip(-1, 1)
        curved = np.copysign(np.log1p(MU * np.abs(samples)) / np.log1p(MU), samples)
        codes: NDArray[np.int64] = np.floor((curved + 1) / 2 * MU + 0.5).astype(np.int64)
        return codes

    def decode(self, codes: NDArray[np.int64]) -> Encoded:
        """A WAV of 16 bits of codes [S]. Raises SampleError: they are none, or over ``max_duration_s``."""
        if not len(codes) or not 0 <= codes.min() <= codes.max() < CODES:
            raise SampleError(f"expected codes from 0 to {CODES - 1}, and at least one")
        self.reader.check_written(len(codes))
        curved = codes / MU * 2 - 1
        samples = np.copysign(np.expm1(np.abs(curved) * np.log1p(MU)) / MU, curved)
        return wav_of(self.reader.within(samples), self.rate_hz)
