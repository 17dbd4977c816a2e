"""Bring a picture to a size: bicubic resampling as Pillow has it, and the same by C++ once that pays. No torch here.

Pillow takes one value at a time, ``resampling.cpp`` many, in a quarter to a half of the time, and they come to the same
bytes. So a process that has spent half a second on it has the C++ compiled beside what it does, where there is a
compiler.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from kosmos import ConfigError, CppCompilation
from kosmos_vision.cutting import colour_planes

SOURCE = Path(__file__).with_name("resampling.cpp")
WHERE = "modalities.image.processor.compile"
PAYS_S = 0.5
"""Seconds of a process's resampling by Pillow, from which on it compiles: what compiling takes."""
GAP = 2.0
"""Of a picture that becomes much smaller, blocks of pixels are one first, their mean, as long as that leaves as many
times what is wanted along a side."""
BLOCKS_REACH, REACH = 1.5, 2.0
"""How far beyond a box what is in it is made of, in new pixels, or of an enlargement in old ones."""

Box = tuple[float, float, float, float]
"""Left, top, right and bottom of what is taken of a picture, in pixels."""
Planes = NDArray[np.uint8]
"""[3, H, W]: red, green, blue."""


class Resampler:
    """Resamples the pictures of a process, in one thread."""

    def __init__(self, compiles: bool = True, pays_s: float = PAYS_S) -> None:
        """
        Args:
            compiles: whether C++ is compiled for it once that pays.
            pays_s: seconds of resampling by Pillow from which on it does.
        """
        self._wanted, self._pays_s = compiles, pays_s
        self._by_pillow_s = 0.0
        self._compilation: CppCompilation | None = None
        self._function: Callable[..., int] | None = None

    def __reduce__(self) -> tuple[type[Resampler], tuple[bool, float]]:
        return Resampler, (self._wanted, self._pays_s)  # another process compiles for itself

    @property
    def is_compiled(self) -> bool:
        """Whether it is C++ by now that resamples here."""
        return self._function is not None

    @property
    def hints(self) -> tuple[str, ...]:
        """What would make it faster here."""
        reason = CppCompilation.missing(WHERE) if self._wanted else None
        return () if reason is None else (f"pictures are resized by Pillow, in two to four times the time: {reason}",)

    def planes(
        self, picture: Image.Image, size_px: tuple[int, int], box: Box | None = None, gap: float = GAP
    ) -> Planes:
        """An RGB picture, or what is in ``box`` of it, in ``size_px`` (height, width).

        Args:
            gap: see ``GAP``.
        """
        whole = (0.0, 0.0, float(picture.width), float(picture.height))
        if (picture.height, picture.width) == size_px and box in (None, whole):
            return colour_planes(picture)
        picture, box = _around(picture, size_px, whole if box is None else box, gap)
        if self._function is not None:
            return _by_function(self._function, picture, size_px, box)
        begin = perf_counter()
        found = colour_planes(_by_pillow(picture, size_px, box))
        self._by_pillow_s += perf_counter() - begin
        if self._wanted and self._by_pillow_s >= self._pays_s:
            try:
                self._compile(picture, size_px, box, found)
            except Exception as error:  # whatever it is, the picture is not to blame for it
                self._give_up(error)
        return found

    def _compile(self, picture: Image.Image, size_px: tuple[int, int], box: Box, expected: Planes) -> None:
        """Begin to compile, or where that is done take what came of it, if it makes of the picture what Pillow does.

        Raises:
            ConfigError: the compiler fails, or what it gives is another picture.
        """
        if self._compilation is None or self._compilation.owner != os.getpid():
            self._wanted = CppCompilation.missing(WHERE) is None  # else it was told as the run began
            self._compilation = CppCompilation(SOURCE, WHERE) if self._wanted else None
        elif not self._compilation.is_running():
            function = self._compilation.load().resample
            size, place = [ctypes.c_int64] * 2, ctypes.c_void_p
            function.argtypes, function.restype = [ctypes.c_char_p, *size, place, place, *size], ctypes.c_int
            if not np.array_equal(_by_function(function, picture, size_px, box), expected):
                raise ConfigError(f"{WHERE}: it gives other values than Pillow; set {WHERE}=false, and report it")
            self._function, self._compilation = function, None

    def _give_up(self, error: Exception) -> None:
        self._wanted, self._compilation = False, None
        text = f"pictures go on to be resized by Pillow, in two to four times the time: {error or type(error).__name__}"
        with suppress(OSError, ValueError, AttributeError):  # it may be closed, or None
            sys.stderr.write(f"warning: {text}\n")


def _around(picture: Image.Image, size_px: tuple[int, int], box: Box, gap: float) -> tuple[Image.Image, Box]:
    """The part of a picture that what is in ``box`` is made of, and where the box lies in it.

    In blocks of pixels where it becomes much smaller, as by Pillow's ``reducing_gap``.
    """
    scales = (box[2] - box[0]) / size_px[1], (box[3] - box[1]) / size_px[0]
    blocks = max(1, int(scales[0] / gap)), max(1, int(scales[1] / gap))
    if blocks != (1, 1):
        reaches = [BLOCKS_REACH * scale for scale in scales]
    elif box == (0.0, 0.0, float(picture.width), float(picture.height)):
        return picture, box
    else:
        reaches = [REACH * max(1.0, scale) for scale in scales]
        # Rounded as it is for either way, so that to move it by whole pixels changes nothing.
        box = (*np.array(box, np.float32).tolist(),)
    left, top = (max(0, int(begin - reach)) for begin, reach in zip(box[:2], reaches, strict=True))
    ends = (ceil(end + reach) for end, reach in zip(box[2:], reaches, strict=True))
    right, bottom = (min(side, end) for side, end in zip(picture.size, ends, strict=True))
    part = (left, top, right, bottom)
    x0, y0, x1, y1 = ((at - begin) / block for at, begin, block in zip(box, (left, top) * 2, blocks * 2, strict=True))
    return (picture.crop(part) if blocks == (1, 1) else picture.reduce(blocks, part)), (x0, y0, x1, y1)


def _by_pillow(picture: Image.Image, size_px: tuple[int, int], box: Box) -> Image.Image:
    """Across and then down. Pillow did so of itself before version 13, which takes what is less work first; the two
    differ by roundings."""
    height, width = size_px
    rows = (0.0, float(picture.height))
    across = picture.resize((width, picture.height), Image.Resampling.BICUBIC, (box[0], rows[0], box[2], rows[1]))
    return across.resize((width, height), Image.Resampling.BICUBIC, (0.0, box[1], float(width), box[3]))


def _by_function(function: Callable[..., int], picture: Image.Image, size_px: tuple[int, int], box: Box) -> Planes:
    sides, out = np.array(box, np.float32), np.empty((3, *size_px), np.uint8)
    status = function(picture.tobytes(), picture.height, picture.width, sides.ctypes.data, out.ctypes.data, *size_px)
    if status:
        raise MemoryError("no memory is left to resize a picture")
    return out
