"""What codecs have in common: the samples of a medium, and a file of samples. No torch here."""

from __future__ import annotations

import io
from math import ceil, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos import ConfigError, Encoded, Media, SampleError
from kosmos_audio.extent import Limits, Samples, read_samples
from kosmos_audio.reading import open_header, open_sound
from kosmos_audio.resample import resample

MAX_BYTES = 256 << 20
"""Largest file or array; as of sounds that are read by default."""
MAX_SAMPLES = 64 << 20
"""Most samples that are decoded; likewise."""
FULL_SCALE = 1 << 15
"""Of 16-bit samples."""


class SoundReader:
    """Samples of media at one rate: mono, the mean of the channels. Picklable.

    Args:
        rate_hz: to which everything is resampled.
        max_duration_s: longest sound (after ``Media.clip``).

    Raises:
        ConfigError: the limit is no positive number.
    """

    def __init__(self, rate_hz: int, max_duration_s: float) -> None:
        if not (isfinite(max_duration_s) and max_duration_s > 0):
            raise ConfigError(f"max_duration_s: expected a positive number, got {max_duration_s}")
        self.rate_hz, self.max_duration_s = rate_hz, max_duration_s
        self.limits = Limits(max_duration_s, MAX_SAMPLES, "modalities.audio.codec.max_duration_s")

    def read(self, media: Media) -> Samples:
        """float32 [S], at least one.

        Raises:
            SampleError: unreadable, empty, over a limit, or it holds values that are not finite.
        """
        with open_header(media, MAX_BYTES) as header:
            extent = self.limits.extent(header, media)
        with open_sound(media, MAX_BYTES) as sound:  # anew, since counting may have decoded it to its end
            samples = read_samples(sound, extent)
        return resample(samples, extent.rate_hz, self.rate_hz)

    def check_written(self, samples: int) -> None:
        """Raises SampleError where a model wrote more samples than the limit, which decoding has to hold."""
        if samples > ceil(self.max_duration_s * self.rate_hz):  # as many as a sound of another rate may become
            lasts = f"{samples / self.rate_hz:,.2f} s"
            raise SampleError(f"its codes stand for {lasts}, over max_duration_s {self.max_duration_s:g}")

    def within(self, samples: NDArray[Any]) -> NDArray[Any]:
        """What ``read`` takes again of samples [S] at this rate: what the last code has over the limit is cut off."""
        return samples[: max(1, int(self.max_duration_s * self.rate_hz))]


def wav_of(samples: NDArray[Any], rate_hz: int) -> Encoded:
    """A WAV file of 16-bit samples; what is beyond -1 to 1 is cut off.

    Args:
        samples: floats [S].
        rate_hz: theirs.
    """
    import soundfile

    whole = np.rint(np.asarray(samples, np.float64) * FULL_SCALE).clip(-FULL_SCALE, FULL_SCALE - 1).astype(np.int16)
    file = io.BytesIO()
    soundfile.write(file, whole, rate_hz, format="WAV", subtype="PCM_16")
    return Encoded(file.getvalue(), ".wav")
