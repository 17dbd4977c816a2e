"""The sample set "tones": generated sounds with descriptions, for trying and for showing that sound is heard.

Eleven descriptions: low, middle and high tones; rising and falling sweeps; two, three or four beats, slow or fast.
Frequency, phase, loudness, duration, rate, timbre and noise vary, so that no example is like another and a wrong
answer is possible.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from kosmos.data.document import Document, Media, Text
from kosmos.errors import ConfigError

Samples = NDArray[np.float32]

SPLITS = ("train", "held_out")
RATES_HZ = (8_000, 16_000)
BANDS_HZ = {"low": (180.0, 320.0), "middle": (500.0, 800.0), "high": (1300.0, 2200.0)}
SWEEPS = ("rising", "falling")
NUMBERS = {"two": 2, "three": 3, "four": 4}
GAPS_S = {"slow": (0.24, 0.32), "fast": (0.09, 0.13)}
DESCRIPTIONS: tuple[str, ...] = (
    *(f"a {band} tone" for band in BANDS_HZ),
    *(f"a {sweep} sweep" for sweep in SWEEPS),
    *(f"{number} {pace} beats" for number in NUMBERS for pace in GAPS_S),
)


class TonesSource:
    """Sounds of 0.4 to 1.2 s at 8 or 16 kHz, each followed by its description, which is what is learned.

    A document depends on nothing but (seed, split, index). The two splits draw from separate random streams.

    Args:
        split: ``"train"`` or ``"held_out"``.
        size: number of documents. None: 16,384 to train on, 256 held out.
        seed: of the random streams.

    Raises:
        ConfigError: an unknown split, or a size below 1.
    """

    def __init__(self, split: str, *, size: int | None = None, seed: int = 0) -> None:
        if split not in SPLITS:
            raise ConfigError(f"tones: split {split!r} is unknown; there are {' and '.join(SPLITS)}")
        if size is not None and size < 1:
            raise ConfigError(f"size: expected at least 1, got {size}")
        self.name = "tones"
        self.split, self.seed = split, seed
        self.size = size if size is not None else (16_384 if split == "train" else 256)

    def __len__(self) -> int:
        return self.size

    def document(self, index: int) -> Document:
        """Sound ``index`` and its description."""
        if not 0 <= index < self.size:
            raise IndexError(f"tones: document {index} of {self.size}")
        rng = np.random.default_rng([self.seed, SPLITS.index(self.split), index])
        description = DESCRIPTIONS[int(rng.integers(len(DESCRIPTIONS)))]
        rate_hz = int(rng.choice(RATES_HZ))
        samples = draw(description, rate_hz, rng)
        return Document(
            origin=f"tones {self.split} {index}",
            segments=(Media("audio", samples, rate_hz=float(rate_hz)), Text(description, train=True)),
        )


def draw(description: str, rate_hz: int, rng: Generator) -> Samples:
    """A sound of that description: float32 [samples], within -1 .. 1."""
    first, second, _ = description.split()
    if first in NUMBERS:
        clean = _beats(NUMBERS[first], GAPS_S[second], rate_hz, rng)
    else:
        clean = _voice(_frequencies(second, rate_hz, rng), rate_hz, rng)
        clean *= _envelope(len(clean), rate_hz)
    loudness = 10 ** rng.uniform(-1.3, -0.2)
    noise = rng.standard_normal(len(clean)) * 10 ** rng.uniform(-2.5, -1.2)
    return np.clip(loudness * (clean + noise), -1, 1).astype(np.float32)


def _frequencies(kind: str, rate_hz: int, rng: Generator) -> NDArray[Any]:
    """Frequency in Hz at each sample of a tone or sweep."""
    count = int(rng.uniform(0.4, 1.2) * rate_hz)
    if kind in BANDS_HZ:
        return np.full(count, rng.uniform(*BANDS_HZ[kind]))
    low = rng.uniform(200, 900)
    sweep = np.geomspace(low, low * rng.uniform(1.7, 3.5), count)
    return sweep if kind == "rising" else sweep[::-1]


def _voice(frequencies: NDArray[Any], rate_hz: int, rng: Generator) -> NDArray[Any]:
    """A tone that follows ``frequencies``, with an overtone of random strength where the rate can hold it."""
    phase = 2 * np.pi * np.cumsum(frequencies) / rate_hz + rng.uniform(0, 2 * np.pi)
    overtone = rng.uniform(0, 0.3) * (frequencies < rate_hz / 5)
    voice: NDArray[Any] = (np.sin(phase) + overtone * np.sin(2 * phase)) / 1.3
    return voice


def _beats(number: int, gap_s: tuple[float, float], rate_hz: int, rng: Generator) -> NDArray[Any]:
    """``number`` short fading strokes at even distances, with silence of random length before and after."""
    gap = rng.uniform(*gap_s)
    before, after = rng.uniform(0.02, 0.1, size=2)
    length_s = max(before + (number - 1) * gap + 0.08 + after, 0.4)
    clean = np.zeros(int(length_s * rate_hz) + 1)
    stroke = np.full(int(0.07 * rate_hz), rng.uniform(250, 1800))
    fade = np.exp(-np.arange(len(stroke)) / (0.02 * rate_hz))
    for beat in range(number):
        start = int((before + beat * gap) * rate_hz)
        clean[start : start + len(stroke)] += _voice(stroke, rate_hz, rng) * fade
    return clean


def _envelope(count: int, rate_hz: int) -> NDArray[Any]:
    """Fades in and out within 20 ms."""
    edge = np.arange(count) / (0.02 * rate_hz)
    envelope: NDArray[Any] = np.minimum(1, np.minimum(edge, edge[::-1]))
    return envelope
