"""Sound changed at random, in training alone. No torch here.

S = samples, R = mel frames of an item.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kosmos.errors import ConfigError

Samples = NDArray[np.float32]
LONGEST_MASK, LARGEST_SHARE = 100, 0.2
"""Frames of a time mask, at most, and its share of an item."""
MOST_DB = 100.0
"""What is louder by more, or in less noise, is no sound of the same kind."""
WIDEST_SHARE = 27 / 80
"""Of the mel bands, what a frequency mask takes at most."""


@dataclass(frozen=True)
class Augmentation:
    """How sounds may change.

    Source of the masks: SpecAugment (arXiv 1904.08779), with the widths of its policy LibriSpeech double, a fifth of
    the item at most, and the item's mean in place of what is masked. Nothing is warped.
    """

    gain_db: float
    """By how much a sound becomes louder or less loud, at most."""
    noise_snr_db: tuple[float, float] | None
    """Between which the sound lies above white noise that is added; None adds none."""
    time_masks: int
    """Stretches of an item's frames that are masked."""
    frequency_masks: int
    """Stretches of its mel bands that are masked."""

    def __post_init__(self) -> None:
        if self.time_masks < 0 or self.frequency_masks < 0:
            raise ConfigError("time_masks, frequency_masks: expected 0 or more")
        if not 0 <= self.gain_db <= MOST_DB:
            raise ConfigError(f"gain_db: expected 0 to {MOST_DB:g} decibels, got {self.gain_db:g}")
        low, high = self.noise_snr_db or (0.0, 0.0)
        if not -MOST_DB <= low <= high <= MOST_DB:
            raise ConfigError(
                f"noise_snr_db: expected two numbers from {-MOST_DB:g} to {MOST_DB:g} decibels, the lower first, got "
                f"[{low:g}, {high:g}]"
            )

    @property
    def is_on(self) -> bool:
        return self.changes_samples or self.masks

    @property
    def changes_samples(self) -> bool:
        return self.gain_db > 0 or self.noise_snr_db is not None

    @property
    def masks(self) -> bool:
        return self.time_masks > 0 or self.frequency_masks > 0

    def of_samples(self, samples: Samples, random: np.random.Generator) -> Samples:
        """A sound [S] in another loudness, and in noise."""
        if self.noise_snr_db is not None:
            low, high = self.noise_snr_db
            power = float(np.mean(np.square(samples, dtype=np.float64)))
            spread = np.sqrt(power / 10 ** ((low + (high - low) * random.random()) / 10))
            samples = samples + random.standard_normal(len(samples), np.float32) * np.float32(spread)
        gain_db = self.gain_db * (2 * random.random() - 1)
        return samples * np.float32(10 ** (gain_db / 20))

    def of_mel(self, mel: Samples, random: np.random.Generator) -> Samples:
        """Log-mel frames of one item [R, mels], masked."""
        mel, mean = mel.copy(), mel.mean(dtype=np.float32)
        frames, bands = mel.shape
        for _ in range(self.time_masks):
            begin, end = _stretch(frames, min(LONGEST_MASK, int(frames * LARGEST_SHARE)), random)
            mel[begin:end] = mean
        for _ in range(self.frequency_masks):
            begin, end = _stretch(bands, int(bands * WIDEST_SHARE), random)
            mel[:, begin:end] = mean
        return mel


def _stretch(length: int, most: int, random: np.random.Generator) -> tuple[int, int]:
    """Begin and end of a stretch of 0 to ``most`` places."""
    width = int(random.integers(most + 1))
    begin = int(random.integers(length - width + 1))
    return begin, begin + width
