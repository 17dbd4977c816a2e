"""Small pictures as their pixels: each is one of a few grays or colours. There is nothing to train in that."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kosmos import ConfigError, Encoded, Media
from kosmos_vision.codecs.squares import Fit, SquareReader, as_png, check_count

MOST_LEVELS = {True: 16, False: 256}
"""Of each of three colours, and of gray."""


class PixelsCodec:
    """A code for each pixel, row after row: side times side of them. Decoding gives the same codes again.

    Args:
        side: pixels along each side, to which pictures are made.
        levels: of gray, or of each of red, green and blue.
        colours: whether there are any; codes are then ``levels`` to the power of three.
        fit: ``"crop"`` cuts off what is longer, at both ends; ``"stretch"`` keeps all of it.

    Raises:
        ConfigError: an option is out of range.
    """

    def __init__(self, *, side: int = 16, levels: int = 4, colours: bool = False, fit: Fit = "crop") -> None:
        if not 2 <= levels <= MOST_LEVELS[colours]:
            raise ConfigError(f"levels: expected 2 to {MOST_LEVELS[colours]}, got {levels}")
        self._squares = SquareReader(side, fit)
        self.side, self.levels, self.colours = side, levels, colours
        self.size = levels**3 if colours else levels
        self.length = side * side
        self._grays = np.rint(np.arange(levels) / (levels - 1) * 255).astype(np.uint8)

    def encode(self, media: Media) -> NDArray[np.int64]:
        """The nearest level of each pixel, [side * side]. Raises SampleError as ``SquareReader.pixels``."""
        pixels = self._squares.pixels(media).astype(np.float64)
        if not self.colours:  # by ITU-R BT.601, as Pillow
            pixels = (pixels @ np.array([0.299, 0.587, 0.114]))[..., None]
        steps = np.rint(pixels / 255 * (self.levels - 1)).astype(np.int64).reshape(self.side * self.side, -1)
        codes: NDArray[np.int64] = steps @ self.levels ** np.arange(steps.shape[1])
        return codes

    def decode(self, codes: NDArray[np.int64]) -> Encoded:
        """The pixels as a PNG file. Raises SampleError where they are not side times side."""
        check_count(codes, self.side, self.side)
        square = codes.reshape(self.side, self.side)
        if not self.colours:
            return as_png(self._grays[square])
        return as_png(self._grays[np.stack([square // self.levels**n % self.levels for n in range(3)], -1)])
