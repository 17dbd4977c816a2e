"""Sketches as they are read, and as an encoder gets them. No torch: this runs in data workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos import Grid, Media, MediaPlan, SampleError
from kosmos_sketch.patches import PATCH, in_patches
from kosmos_sketch.pgm import check_sides, read_pgm


@dataclass(frozen=True)
class SketchInput:
    """What an encoder of sketches takes: patches of 4 x 4 pixels, a byte each."""


class SketchProcessor:
    """Plans and decodes sketches: PGM files, or arrays uint8 [height, width]."""

    cell_shape: tuple[int, ...] = (PATCH * PATCH,)
    cell_dtype: np.dtype[Any] = np.dtype(np.uint8)

    def __init__(self, encoder_input: SketchInput) -> None:
        self.input = encoder_input

    def plan(self, media: Media) -> MediaPlan:
        """``<sketch>``, a grid of patches, ``</sketch>``."""
        height, width = read_sketch(media).shape
        return MediaPlan(("<sketch>", Grid(1, -(-height // PATCH), -(-width // PATCH)), "</sketch>"))

    def decode(self, media: Media, plan: MediaPlan) -> NDArray[np.uint8]:
        """uint8 [N, 16]."""
        return in_patches(read_sketch(media))


def read_sketch(media: Media) -> NDArray[np.uint8]:
    """uint8 [height, width].

    Raises:
        SampleError: it is none, broken, or larger than 64 x 64.
    """
    if media.clip is not None:
        raise SampleError("a sketch has no seconds, but a clip was asked for")
    if not isinstance(media.source, np.ndarray):
        return read_pgm(media.source)
    values = media.source
    if values.ndim != 2:
        raise SampleError(f"sketch of shape {values.shape}; expected height and width")
    check_sides(*values.shape)
    if values.dtype.kind not in "iu" or values.min() < 0 or values.max() > 255:
        raise SampleError("sketch holds what is no gray; expected whole numbers from 0 to 255")
    return values.astype(np.uint8)
