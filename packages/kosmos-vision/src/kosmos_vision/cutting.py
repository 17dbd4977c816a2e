"""Cut a picture into cells. No torch here."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_BITS = (0, 8, 16)
"""Where red, green and blue stand in a pixel of four bytes, the lowest first."""
_ITEM = np.dtype(np.complex128)
"""What numpy moves 16 bytes of at once, as they are."""


def cut_planes(planes: NDArray[np.uint8], patch_px: tuple[int, int]) -> NDArray[np.uint8]:
    """The cells of a picture [3, H, W] in reading order: uint8 [rows x columns, 3, patch height, patch width].

    Its size is a whole number of cells.
    """
    (colours, height, width), (h, w) = planes.shape, patch_px
    assert height % h == 0 and width % w == 0, (planes.shape, patch_px)
    cells = np.empty((height // h, width // w, colours, h, w), np.uint8)
    if w % _ITEM.itemsize:
        cells[...] = planes.reshape(colours, height // h, h, width // w, w).transpose(1, 3, 0, 2, 4)
    else:
        _move_items(planes, cells)
    return cells.reshape(-1, colours, h, w)


def _move_items(planes: NDArray[np.uint8], cells: NDArray[np.uint8]) -> None:
    """Rows of pixels that are whole items, item by item: a fifth of the time that single bytes take.

    Args:
        planes: [3, H, W].
        cells: [rows, columns, 3, patch height, patch width], to be filled.
    """
    rows, columns, colours, h, w = cells.shape
    there, items = cells.view(_ITEM), w // _ITEM.itemsize
    here = planes.view(_ITEM).reshape(colours, rows, h, columns, items).transpose(1, 3, 0, 2, 4)
    for item in range(items):  # one by one, since numpy's inner loop is then as long as a cell is high
        there[..., item] = here[..., item]


def colour_planes(picture: Image.Image) -> NDArray[np.uint8]:
    """[3, H, W] of an RGB picture: red, green, blue."""
    # As Pillow holds them, four bytes a pixel: numpy takes bytes out of words several at a time, and every third
    # byte of a row one by one.
    pixels = np.frombuffer(picture.tobytes("raw", "RGBX"), "<u4").reshape(picture.height, picture.width)
    planes = np.empty((len(_BITS), *pixels.shape), np.uint8)
    for plane, bits in zip(planes, _BITS, strict=True):
        np.right_shift(pixels, bits, out=plane, casting="unsafe")
    return planes
