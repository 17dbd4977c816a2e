"""Pictures of one size, as codecs take them, and the files that they give. No torch here."""

from __future__ import annotations

import io
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from kosmos import ConfigError, Encoded, Media, SampleError
from kosmos_vision.fitting import middle
from kosmos_vision.pictures import MOST_PIXELS, Limits, load_rgb
from kosmos_vision.resampling import Box, Planes, Resampler

Fit = Literal["crop", "stretch", "pad"]
MAX_PIXELS, MAX_BYTES = 72_000_000, 64 * 1024 * 1024
OPTIONS = "modalities.image.codec"
_MARGIN = 255
"""White, on which transparency is laid, too."""


class Squares:
    """Brings pictures to ``side_px`` x ``side_px``. Picklable.

    Args:
        side_px: of each picture.
        fit: see the codecs' options.
        max_pixels: pictures with more are refused before they are decoded.
        max_bytes: files with more are refused before they are read.

    Raises:
        ConfigError: another ``fit``, or a limit out of range.
    """

    def __init__(self, side_px: int, fit: Fit, max_pixels: int, max_bytes: int) -> None:
        if fit not in get_args(Fit):
            raise ConfigError(f"fit {fit!r}: expected one of {', '.join(get_args(Fit))}")
        if not 1 <= max_pixels <= MOST_PIXELS or max_bytes < 1:
            raise ConfigError(
                f"max_pixels {max_pixels}, max_bytes {max_bytes}: need at least 1, and {MOST_PIXELS} pixels at most"
            )
        self.side_px, self.fit = side_px, fit
        self.limits = Limits(max_pixels, max_bytes, OPTIONS)
        self._resampler = Resampler(compiles=False)

    def read(self, media: Media) -> Planes:
        """uint8 [3, side_px, side_px].

        Raises:
            SampleError: it is given a time range, broken, cut short, or over a limit.
        """
        if media.clip is not None:
            raise SampleError(f"a picture has no time, but a clip of {media.clip} s was asked for")
        size_px = self.side_px, self.side_px
        picture = load_rgb(media.source, self.limits, None, size_px)
        whole: Box = (0.0, 0.0, float(picture.width), float(picture.height))
        if self.fit == "pad":
            return self._padded(picture, whole)
        return self._resampler.planes(picture, size_px, middle(whole, size_px) if self.fit == "crop" else whole)

    def _padded(self, picture: Image.Image, whole: Box) -> Planes:
        side, longer = self.side_px, max(picture.size)
        rows, columns = (max(1, round(side * px / longer)) for px in (picture.height, picture.width))
        top, left = (side - rows) // 2, (side - columns) // 2
        planes = np.full((3, side, side), _MARGIN, np.uint8)
        planes[:, top : top + rows, left : left + columns] = self._resampler.planes(picture, (rows, columns), whole)
        return planes


def check_codes(codes: NDArray[np.int64], side_px: int, tokens: int, size: int) -> None:
    """Raises SampleError where they are no picture's: another number of them than it has, or one beyond ``size``."""
    if len(codes) != tokens:
        raise SampleError(f"{len(codes)} codes, a picture of {side_px} x {side_px} pixels has {tokens}")
    if codes.min() < 0 or codes.max() >= size:
        raise SampleError(f"codes from {codes.min()} to {codes.max()}, there are 0 to {size - 1}")


def as_png(pixels: NDArray[np.uint8]) -> Encoded:
    """A file of a picture uint8 [H, W], grey, or [H, W, 3]."""
    with io.BytesIO() as file:
        Image.fromarray(pixels).save(file, "PNG")
        return Encoded(file.getvalue(), ".png")
