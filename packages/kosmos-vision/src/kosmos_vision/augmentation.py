"""Pictures changed at random, in training alone. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from kosmos import ConfigError
from kosmos_vision.resampling import Box

GREY = np.array([0.299, 0.587, 0.114], np.float32)
"""Weights of red, green and blue in the brightness of a pixel (ITU-R BT.601, as Pillow has it)."""


@dataclass(frozen=True)
class Change:
    """What becomes of one picture."""

    mirrored: bool
    share: float
    """Of its area that is taken."""
    place: tuple[float, float]
    """Where that lies in it, across and down: 0 is at the left and the top, 1 at the right and the bottom."""
    brightness: float
    contrast: float
    saturation: float
    """Factors; 1 changes nothing."""

    def needed(self, size_px: tuple[int, int]) -> tuple[int, int]:
        """(height, width) of the whole picture where the part that is taken has ``size_px``."""
        scale = 1 / sqrt(self.share)
        return ceil(size_px[0] * scale), ceil(size_px[1] * scale)

    def part(self, width: int, height: int) -> Box:
        """What is taken of a picture: it has the picture's own shape."""
        side = sqrt(self.share)
        left, top = (whole * (1 - side) * at for whole, at in zip((width, height), self.place, strict=True))
        return left, top, left + width * side, top + height * side

    def turned(self, planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The part [3, H, W], mirrored where it is to be."""
        return np.ascontiguousarray(planes[:, :, ::-1]) if self.mirrored else planes

    def recoloured(self, planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The part [3, H, W] in other colours."""
        if (self.brightness, self.contrast, self.saturation) == (1, 1, 1):
            return planes
        mean = planes.mean(dtype=np.float32)
        levels = np.arange(256, dtype=np.float32)
        found = (((levels - mean) * self.contrast + mean) * self.brightness)[planes]
        grey = np.tensordot(GREY, found, 1)
        found = grey + (found - grey) * np.float32(self.saturation)
        rounded: NDArray[np.uint8] = np.rint(np.clip(found, 0, 255)).astype(np.uint8)
        return rounded


UNCHANGED = Change(mirrored=False, share=1.0, place=(0.0, 0.0), brightness=1.0, contrast=1.0, saturation=1.0)


@dataclass(frozen=True)
class Augmentation:
    """How pictures may change."""

    flip: float
    """Probability that one is mirrored, left to right."""
    crop: float
    """Least share of its area that is taken."""
    colour: float
    """By how much, at most, brightness, contrast and saturation go up or down."""

    def __post_init__(self) -> None:
        if not 0 <= self.flip <= 1:
            raise ConfigError(f"flip: expected a probability from 0 to 1, got {self.flip:g}")
        if not 0 < self.crop <= 1:
            raise ConfigError(f"crop: expected a share of the area, above 0 and at most 1, got {self.crop:g}")
        if not 0 <= self.colour < 1:
            raise ConfigError(f"colour: expected a share from 0 to below 1, got {self.colour:g}")

    @property
    def is_on(self) -> bool:
        return (self.flip, self.crop, self.colour) != (0, 1, 0)

    def draw(self, random: np.random.Generator) -> Change:
        """What becomes of the next picture. It takes as many numbers of ``random`` whatever is on."""
        flip, share, *place = random.random(4).tolist()
        brightness, contrast, saturation = (1 + self.colour * (2 * random.random(3) - 1)).tolist()
        return Change(
            mirrored=flip < self.flip, share=self.crop + (1 - self.crop) * share, place=(place[0], place[1]),
            brightness=brightness, contrast=contrast, saturation=saturation,
        )  # fmt: skip
