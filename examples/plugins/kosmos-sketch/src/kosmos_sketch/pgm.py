"""Gray pictures as PGM files (P5): a line of text in front of the bytes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kosmos import SampleError
from kosmos_sketch.patches import MOST

_HEAD = re.compile(rb"P5\s+(?:#[^\n]*\n\s*)*(\d{1,4})\s+(\d{1,4})\s+(\d{1,5})\s")
MAX_BYTES = 4096 + MOST * MOST


def read_pgm(source: bytes | Path) -> NDArray[np.uint8]:
    """uint8 [height, width].

    Raises:
        SampleError: no such file, no PGM of one byte a pixel, or larger than 64 x 64.
    """
    try:
        if isinstance(source, Path):
            with source.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        else:
            data = source[: MAX_BYTES + 1]
    except OSError as error:
        raise SampleError(f"sketch cannot be read: {error}") from error
    head = _HEAD.match(data)
    if head is None:
        raise SampleError("no PGM: expected P5, width, height and 255 in front of the pixels")
    width, height, white = map(int, head.groups())
    check_sides(height, width)
    if white != 255:
        raise SampleError(f"white is {white}; expected 255, a byte a pixel")
    pixels = data[head.end() : head.end() + width * height]
    if len(pixels) < width * height:
        raise SampleError(f"breaks off: {len(pixels)} of {width * height} pixels are there")
    return np.frombuffer(pixels, np.uint8).reshape(height, width)


def as_pgm(picture: NDArray[np.uint8]) -> bytes:
    """The file of a picture, uint8 [height, width]."""
    height, width = picture.shape
    return b"P5\n%d %d\n255\n" % (width, height) + picture.tobytes()


def check_sides(height: int, width: int) -> None:
    """Raises SampleError where a picture has no pixels, or more than ``MOST`` along a side."""
    if not (0 < height <= MOST and 0 < width <= MOST):
        raise SampleError(f"sketch of {height} x {width} pixels; expected 1 to {MOST} along each side")
