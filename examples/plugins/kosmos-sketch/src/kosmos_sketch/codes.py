"""Pictures as tokens: a token is a patch of 4 x 4 pixels, of which each quarter has one of four grays.

There is nothing to train in that. A codec that was trained (VQGAN, Mimi) takes its place with the same two functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kosmos import SampleError

PATCH = 4
"""Pixels along a side."""
MOST = 64
"""Pixels along a side of a picture."""
BEGIN, ROW, END = "<sketch>", "<sketch-row>", "</sketch>"
CODES = tuple(f"<sketch:{code}>" for code in range(256))
MARKS = (BEGIN, ROW, END, *CODES)
WHITE = 255
_NUMBERS = {name: number for number, name in enumerate(CODES)}
_WEIGHTS = np.array([1, 4, 16, 64])


def marks_of(picture: NDArray[np.uint8]) -> list[str]:
    """Names of the marks that draw a picture, uint8 [height, width]: rows of patches, each ended by ``ROW``."""
    quarters = in_patches(picture).reshape(-1, 2, 2, 2, 2).mean((2, 4))  # [patches, 2, 2]
    grays = np.minimum(quarters / 64, 3).astype(int).reshape(-1, 4)
    codes = (grays * _WEIGHTS).sum(1)
    across = -(-picture.shape[1] // PATCH)
    names = [CODES[code] for code in codes.tolist()]
    rows = [names[begin : begin + across] for begin in range(0, len(names), across)]
    return [BEGIN, *(name for row in rows for name in (*row, ROW)), END]


def picture_of(marks: Sequence[str]) -> NDArray[np.uint8]:
    """The picture that marks draw, uint8 [height, width]; what a model wrote may be none.

    Raises:
        SampleError: it does not begin with ``BEGIN`` and end with ``END``, or its rows are not of one length.
    """
    if len(marks) < 3 or marks[0] != BEGIN or marks[-1] != END or marks[-2] != ROW:
        raise SampleError(f"no sketch: expected {BEGIN}, rows that end with {ROW}, and {END}, got {len(marks)} marks")
    rows: list[list[int]] = [[]]
    for mark in marks[1:-1]:
        if mark == ROW:
            rows.append([])
        elif mark in _NUMBERS:
            rows[-1].append(_NUMBERS[mark])
        else:
            raise SampleError(f"no sketch: {mark} stands within one")
    lengths = {len(row) for row in rows[:-1]}
    if len(lengths) != 1 or not 0 < max(lengths) <= MOST // PATCH or len(rows) - 1 > MOST // PATCH:
        raise SampleError(f"no sketch: its rows have {sorted(lengths)} patches, expected as many each, 1 to 16")
    codes = np.array(rows[:-1])
    grays = (codes[..., None] // _WEIGHTS % 4 * 85).reshape(*codes.shape, 2, 2)  # [rows, columns, 2, 2]
    whole = grays.swapaxes(1, 2).reshape(2 * codes.shape[0], 2 * codes.shape[1])
    return whole.repeat(2, 0).repeat(2, 1).astype(np.uint8)


def in_patches(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """uint8 [height, width] -> [patches, 16], row after row; white beyond the edges."""
    below, beside = (-side % PATCH for side in picture.shape)
    whole = np.pad(picture, ((0, below), (0, beside)), constant_values=WHITE)
    cut = whole.reshape(whole.shape[0] // PATCH, PATCH, whole.shape[1] // PATCH, PATCH)
    return cut.swapaxes(1, 2).reshape(-1, PATCH * PATCH)
