"""Sketches as codes, and back: a code is a patch of 4 x 4 pixels, of which each quarter has one of four grays.

There is nothing to train in that. A codec that was trained (VQGAN, Mimi) takes its place with the same two methods.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos import Encoded, Media, SampleError
from kosmos_sketch.patches import MOST, PATCH, in_patches
from kosmos_sketch.pgm import as_pgm
from kosmos_sketch.reading import read_sketch

ROW = 256
"""The code that ends a row of patches; those below are patches."""
_WEIGHTS = np.array([1, 4, 16, 64])


class SketchCodec:
    """256 patches, and a code that ends a row of them."""

    size = ROW + 1

    def encode(self, media: Media) -> NDArray[np.int64]:
        """[n]: rows of patches, each ended by ``ROW``. Raises SampleError as ``read_sketch``."""
        picture = read_sketch(media)
        quarters = in_patches(picture).reshape(-1, 2, 2, 2, 2).mean((2, 4))  # [patches, 2, 2]
        grays = np.minimum(quarters / 64, 3).astype(np.int64).reshape(-1, 4)
        rows = (grays * _WEIGHTS).sum(1).reshape(-1, -(-picture.shape[1] // PATCH))
        return np.pad(rows, ((0, 0), (0, 1)), constant_values=ROW).ravel()

    def decode(self, codes: NDArray[np.int64]) -> Encoded:
        """A PGM file.

        Raises:
            SampleError: they do not end with ``ROW``, or the rows are not of one length, or too many.
        """
        return Encoded(as_pgm(drawn(codes)), ".pgm")


def drawn(codes: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The picture of such codes, uint8 [height, width]. Raises SampleError as ``SketchCodec.decode``."""
    ends = np.flatnonzero(codes == ROW)
    lengths = np.diff(ends, prepend=-1) - 1
    if not len(ends) or ends[-1] != len(codes) - 1:
        raise SampleError(f"no sketch: {len(codes)} codes, of which the last does not end a row")
    if len({*lengths.tolist()}) != 1 or not 0 < lengths[0] <= MOST // PATCH or len(ends) > MOST // PATCH:
        told = f"{len(ends)} rows of {sorted({*lengths.tolist()})} patches"
        raise SampleError(
            f"no sketch: {told}; expected rows of one length, 1 to {MOST // PATCH} of 1 to {MOST // PATCH}"
        )
    rows: NDArray[Any] = codes.reshape(len(ends), -1)[:, :-1]
    grays = (rows[..., None] // _WEIGHTS % 4 * 85).reshape(*rows.shape, 2, 2)  # [rows, columns, 2, 2]
    whole = grays.swapaxes(1, 2).reshape(2 * rows.shape[0], 2 * rows.shape[1])
    return whole.repeat(2, 0).repeat(2, 1).astype(np.uint8)
