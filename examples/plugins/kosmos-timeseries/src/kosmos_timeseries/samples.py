"""The sample set "machines": generated vibrations of a rotating machine, with what is wrong and on which axis.

Each channel is a sensor with a gain and an offset of its own: noise, and a trace of the rotation. One channel may show
a fault: imbalance (the rotation is strong), a bearing fault (ringing knocks, several a turn), or drift (a slow change
of level). Length, number of channels, speed, phase, strength, noise and gaps vary and are not named.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from kosmos import ConfigError, Document, Media, Text

SPLITS = ("train", "held_out")
HEALTHY = "healthy"
FAULTS = ("imbalance", "bearing fault", "drift")
AXES = "xyz"
STEPS = (48, 128)


class MachinesSource:
    """Windows of 64 to 192 steps and 2 to 4 channels, each followed by its description, which is what is learned.

    A document depends on nothing but (seed, split, index). The two splits draw from separate random streams.

    Args:
        split: ``"train"`` or ``"held_out"``.
        size: number of documents. None: 16,384 to train on, 256 held out.
        seed: of the random streams.

    Raises:
        ConfigError: an unknown split, or a size below 1.
    """

    def __init__(self, split: Literal["train", "held_out"], *, size: int | None = None, seed: int = 0) -> None:
        if split not in SPLITS:
            raise ConfigError(f"machines: split {split!r} is unknown; there are {' and '.join(SPLITS)}")
        if size is not None and size < 1:
            raise ConfigError(f"size: expected at least 1, got {size}")
        self.name = "machines"
        self.split, self.seed = split, seed
        self.size = size if size is not None else (16_384 if split == "train" else 256)

    def __len__(self) -> int:
        return self.size

    def document(self, index: int) -> Document:
        """Window ``index`` and its description."""
        if not 0 <= index < self.size:
            raise IndexError(f"machines: document {index} of {self.size}")
        random = np.random.default_rng([self.seed, SPLITS.index(self.split), index])
        values, description = draw(random)
        origin = f"machines {self.split} {index}"
        return Document(origin, (Media("timeseries", values), Text(description, train=True)))


def draw(random: Generator) -> tuple[NDArray[np.float32], str]:
    """A window, float32 [steps, channels] with NaN in its gaps, and its description."""
    steps = int(random.integers(STEPS[0], STEPS[1] + 1))
    channels = int(random.integers(2, len(AXES) + 1))
    turns = np.arange(steps) / random.uniform(8, 16)
    values = random.standard_normal((steps, channels))
    values += random.uniform(0.1, 0.5, channels) * np.sin(2 * np.pi * (turns[:, None] + random.random(channels)))
    description = HEALTHY
    if random.random() < 0.85:
        fault, channel = FAULTS[int(random.integers(len(FAULTS)))], int(random.integers(channels))
        values[:, channel] += _fault(fault, turns, random)
        description = f"{AXES[channel]} {fault}"
    values = values * 10 ** random.uniform(-2, 2) * random.uniform(0.8, 1.25, channels) + random.normal(0, 20, channels)
    if random.random() < 0.5:
        values[_gaps(steps, channels, random)] = np.nan
    return values.astype(np.float32), description


def _fault(fault: str, turns: NDArray[Any], random: Generator) -> NDArray[Any]:
    """What a fault adds to the values of its channel, in units of the noise."""
    strength = random.uniform(5, 9)
    if fault == "imbalance":
        return np.asarray(strength * np.sin(2 * np.pi * (turns + random.random())))
    if fault == "drift":
        ramp = np.linspace(-1, 1, len(turns))
        return np.asarray(strength * random.choice([-1, 1]) * np.sign(ramp) * np.abs(ramp) ** random.uniform(0.7, 1.5))
    knocks = turns * random.uniform(1.3, 1.9) + random.random()
    since = (knocks % 1) * (len(turns) - 1) / (knocks[-1] - knocks[0])  # steps since the last knock
    return np.asarray(2 * strength * np.exp(-since / 1.5) * np.cos(np.pi * since * random.uniform(0.7, 0.95)))


def _gaps(steps: int, channels: int, random: Generator) -> NDArray[np.bool_]:
    """bool [steps, channels]: one to three stretches that a sensor did not send, and single values."""
    gaps = random.random((steps, channels)) < 0.02
    for _ in range(int(random.integers(1, 4))):
        begin = int(random.integers(steps))
        gaps[begin : begin + int(random.integers(4, 17)), int(random.integers(channels))] = True
    return gaps
