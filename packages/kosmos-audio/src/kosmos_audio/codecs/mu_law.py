"""Sound as its samples in 256 steps, finer where it is quiet (ITU-T G.711's mu-law, as WaveNet has it)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kosmos import ConfigError, Encoded, Media
from kosmos_audio.codecs.sound import SoundReader, as_wav

STEPS = 256
_MU = STEPS - 1
RATES_HZ = (100, 48_000)


class MuLawCodec:
    """A code for each sample: it needs no weights, and takes ``rate_hz`` tokens a second.

    Args:
        rate_hz: samples a second, to which sounds are resampled.
        max_seconds: longest sound.

    Raises:
        ConfigError: an option is out of range.
    """

    size = STEPS
    keeps = False  # it is read, and that is nearly all

    def __init__(self, *, rate_hz: int = 8000, max_seconds: float = 1.0) -> None:
        if not RATES_HZ[0] <= rate_hz <= RATES_HZ[1]:
            raise ConfigError(f"rate_hz: expected {RATES_HZ[0]} to {RATES_HZ[1]}, got {rate_hz}")
        self.rate_hz = rate_hz
        self._sounds = SoundReader(rate_hz, 1, max_seconds)

    def encode(self, media: Media) -> NDArray[np.int64]:
        """A code of each sample, [n]. Raises SampleError as ``SoundReader.samples``."""
        samples = self._sounds.samples(media).clip(-1, 1)
        folded = np.sign(samples) * np.log1p(_MU * np.abs(samples)) / np.log1p(_MU)
        codes: NDArray[np.int64] = ((folded + 1) / 2 * _MU + 0.5).astype(np.int64)
        return codes

    def decode(self, codes: NDArray[np.int64]) -> Encoded:
        """The samples as a WAV file, which has the same codes again."""
        folded = codes / _MU * 2 - 1
        samples = np.sign(folded) * np.expm1(np.abs(folded) * np.log1p(_MU)) / _MU
        return as_wav(samples.astype(np.float32), self.rate_hz)
