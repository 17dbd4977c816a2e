"""Pictures as patches of 4 x 4 pixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PATCH = 4
"""Pixels along a side."""
MOST = 64
"""Pixels along a side of a picture."""
WHITE = 255


def in_patches(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """uint8 [height, width] -> [patches, 16], row after row; white beyond the edges."""
    below, beside = (-side % PATCH for side in picture.shape)
    whole = np.pad(picture, ((0, below), (0, beside)), constant_values=WHITE)
    cut = whole.reshape(whole.shape[0] // PATCH, PATCH, whole.shape[1] // PATCH, PATCH)
    return cut.swapaxes(1, 2).reshape(-1, PATCH * PATCH)
