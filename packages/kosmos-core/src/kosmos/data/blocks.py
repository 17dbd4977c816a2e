"""Cut arrays into the equal blocks that encoders call cells."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def cut_blocks(frames: NDArray[Any], block: tuple[int, int, int]) -> NDArray[Any]:
    """Cut ``frames`` [T, H, W, C] into blocks of ``block`` = (t, h, w), in the order time, row, column.

    Returns:
        [N, C, t, h, w], contiguous; N = (T / t) (H / h) (W / w).
    """
    (t, h, w), (T, H, W, C) = block, frames.shape
    assert T % t == 0 and H % h == 0 and W % w == 0, (frames.shape, block)
    cells = frames.reshape(T // t, t, H // h, h, W // w, w, C)
    return np.ascontiguousarray(cells.transpose(0, 2, 4, 6, 1, 3, 5).reshape(-1, C, t, h, w))
