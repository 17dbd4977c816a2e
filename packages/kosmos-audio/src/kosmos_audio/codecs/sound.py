"""What all codecs of sound share: samples of one rate in, a WAV file out. No torch here."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from kosmos import ConfigError, Encoded, Media, SampleError
from kosmos_audio.inputs import AudioInput
from kosmos_audio.waveform import AudioProcessor, AudioRecipe

Samples = NDArray[np.float32]
LONGEST_S = 3600.0
"""Longest sound that any codec takes: its codes have to fit into a row of tokens."""


class SoundReader:
    """Reads sounds as the modality does: mono, resampled, within its limits.

    Args:
        rate_hz: of the samples.
        hop: their number is a multiple of this, by zeros at the end.
        max_seconds: longest sound.

    Raises:
        ConfigError: ``max_seconds`` is out of range.
    """

    def __init__(self, rate_hz: int, hop: int, max_seconds: float) -> None:
        if not 0 < max_seconds <= LONGEST_S:
            raise ConfigError(f"max_seconds: expected a number above 0 and up to {LONGEST_S:g}, got {max_seconds!r}")
        wants = AudioInput(features="waveform", sample_rate_hz=rate_hz, samples_per_cell=hop, normalization="none")
        self.max_seconds = max_seconds
        self._processor = AudioProcessor(wants, max_duration_s=LONGEST_S, span_s=2 * LONGEST_S)

    def samples(self, media: Media) -> Samples:
        """The samples of a sound, float32 [n], n a multiple of the hop. Raises SampleError as ``AudioProcessor``."""
        plan = self._processor.plan(media)
        recipe: AudioRecipe = plan.recipe
        seconds = (recipe.stop - recipe.start) / recipe.rate_hz
        if seconds > self.max_seconds:
            raise SampleError(
                f"audio is {seconds:,.1f} s, over max_seconds {self.max_seconds:g} of its codec; cut it by a clip in "
                "its row, or raise modalities.audio.codec.max_seconds"
            )
        return self._processor.decode(media, plan).reshape(-1)


def as_wav(samples: Samples, rate_hz: int) -> Encoded:
    """Samples [n], or [n, channels], as a WAV file of 16 bits; what is beyond -1 to 1 is cut off."""
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, np.clip(samples, -1, 1), rate_hz, format="WAV", subtype="PCM_16")
    return Encoded(file.getvalue(), ".wav")
