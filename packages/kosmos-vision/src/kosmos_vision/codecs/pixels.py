"""Small pictures as their own pixels in few shades: a codec without weights. No torch here."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from kosmos import ConfigError, Encoded, Media
from kosmos_vision.codecs.squares import MAX_BYTES, MAX_PIXELS, Fit, Squares, as_png, check_codes

MOST_CODES = 4096
MOST_TOKENS = 4096
MOST_LEVELS = 256


class PixelCodec:
    """A picture as its pixels in few shades of grey or colours, row by row. What is decoded comes to the same codes.

    It needs no weights, and shows small and simple pictures alone, such as digits, signs and icons. One of 16 x 16 grey
    pixels in 4 shades is 256 of 4 codes; with ``block: 2``, a code for the shades of 2 x 2 pixels, it is 64 of 256
    codes. One of 16 x 16 pixels in 8 colours, ``levels: 2, colours: true``, is 256 of 8 codes.
    """

    def __init__(
        self,
        *,
        side: int = 16,
        block: int = 1,
        levels: int = 4,
        colours: bool = False,
        fit: Fit = "crop",
        max_pixels: int = MAX_PIXELS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """
        Args:
            side: pixels that each side of a picture is brought to.
            block: pixels of each side of a block, which is one token; ``side`` is a multiple of it.
            levels: shades of grey, or of each of red, green and blue, in even steps from none to full: 2 to 256.
            colours: whether pixels have colours.
            fit: how a picture that is no square becomes one: ``crop`` cuts what stands out around the centre,
                ``stretch`` changes its shape, ``pad`` adds white margins.
            max_pixels: pictures with more are refused before they are decoded.
            max_bytes: files with more are refused before they are read.

        Raises:
            ConfigError: a number out of range, or more than 4,096 codes, or tokens of a picture.
        """
        if not 2 <= levels <= MOST_LEVELS:
            raise ConfigError(f"levels {levels}: need 2 to {MOST_LEVELS}, which pictures of 8 bits have")
        if block < 1 or side < block or side % block:
            raise ConfigError(f"side {side}, block {block}: need a side that is a multiple of block")
        self.side, self.block, self.levels, self.colours = side, block, levels, colours
        self._values = block * block * (3 if colours else 1)
        # A power of large numbers would take long to be told that it is too large.
        size = levels**self._values if self._values <= 12 else MOST_CODES + 1
        if size > MOST_CODES:
            raise ConfigError(
                f"block {block}, levels {levels}{', colours true' if colours else ''}: a block is one of {levels} to "
                f"the power of {self._values}, over {MOST_CODES:,}; make one of them less"
            )
        self.size: int = size
        self.length = (side // block) ** 2
        if self.length > MOST_TOKENS:
            raise ConfigError(f"side {side}, block {block}: {self.length:,} tokens a picture, over {MOST_TOKENS:,}")
        self._squares = Squares(side, fit, max_pixels, max_bytes)

    def encode(self, media: Media) -> NDArray[np.integer[Any]]:
        """Codes of the blocks row by row, [(side / block) ** 2].

        Raises:
            SampleError: broken, cut short, or over a limit.
        """
        pixels = self._squares.read(media).transpose(1, 2, 0)
        values = pixels if self.colours else np.asarray(Image.fromarray(pixels).convert("L"))[..., None]
        most = self.levels - 1
        steps = (values.astype(np.int64) * most + 127) // 255  # the nearest
        count, block = self.side // self.block, self.block
        blocks = steps.reshape(count, block, count, block, -1).transpose(0, 2, 1, 3, 4).reshape(self.length, -1)
        return blocks @ self._weights()

    def decode(self, codes: NDArray[np.int64]) -> Encoded:
        """A PNG of ``side`` x ``side`` pixels.

        Raises:
            SampleError: another number of codes than a picture has, or others.
        """
        check_codes(codes, self.side, self.length, self.size)
        steps = codes[:, None] // self._weights() % self.levels
        count, block = self.side // self.block, self.block
        pixels = steps.reshape(count, count, block, block, -1).transpose(0, 2, 1, 3, 4)
        most = self.levels - 1
        shades = ((pixels.reshape(self.side, self.side, -1) * 255 + most // 2) // most).astype(np.uint8)
        return as_png(shades if self.colours else shades[..., 0])

    def _weights(self) -> NDArray[np.int64]:
        """What each value of a block counts in its code: they are the figures of a number of base ``levels``."""
        return self.levels ** np.arange(self._values, dtype=np.int64)
