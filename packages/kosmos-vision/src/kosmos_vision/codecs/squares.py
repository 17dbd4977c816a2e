"""What all codecs of pictures share: a square of RGB pixels in, a PNG file out. No torch here."""

from __future__ import annotations

import io
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from kosmos import ConfigError, Encoded, Media, SampleError
from kosmos_vision.pictures import Limits, load_rgb

Pixels = NDArray[np.uint8]
Fit = Literal["crop", "stretch"]
LIMITS = Limits(max_pixels=100_000_000, max_bytes=64 << 20)
MOST_SIDE = 2048


class SquareReader:
    """Reads pictures as the modality does: upright, RGB, within its limits; all become one size.

    Args:
        side: pixels along each side.
        fit: ``"crop"`` cuts off what is longer, at both ends; ``"stretch"`` keeps all of it.

    Raises:
        ConfigError: ``side`` is out of range.
    """

    def __init__(self, side: int, fit: Fit) -> None:
        if not 1 <= side <= MOST_SIDE:
            raise ConfigError(f"side: expected 1 to {MOST_SIDE} pixels, got {side}")
        self.side, self.fit = side, fit

    def pixels(self, media: Media) -> Pixels:
        """uint8 [side, side, 3]. Raises SampleError as ``kosmos_vision.pictures.load_rgb``."""
        size = (self.side, self.side)
        picture = load_rgb(media.source, LIMITS, None, size)
        if picture.size != size:
            if self.fit == "crop":
                picture = ImageOps.fit(picture, size, Image.Resampling.BICUBIC)
            else:
                picture = picture.resize(size, Image.Resampling.BICUBIC)
        return np.asarray(picture, np.uint8)


def as_png(pixels: Pixels) -> Encoded:
    """uint8 [H, W] or [H, W, 3] as a PNG file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    return Encoded(file.getvalue(), ".png")


def check_count(codes: NDArray[np.int64], rows: int, columns: int) -> None:
    """Raises SampleError where they are not as many as a picture has."""
    if len(codes) != rows * columns:
        raise SampleError(f"no picture: {len(codes)} codes, expected {rows} rows of {columns}")
