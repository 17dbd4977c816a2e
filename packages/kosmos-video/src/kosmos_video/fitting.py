"""Bring frames to the encoder's size: stretched, cut, or with margins (PyAV). As kosmos-vision does with pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import av
import numpy as np
from numpy.typing import NDArray

Resize = Literal["squash", "crop", "pad"]
MOST_CUT_OFF = 16
"""Of how many times the size that is wanted a scaled frame may be, to be cut. A longer one is cut before it is scaled:
that takes 11 ms of a frame of 1920 x 1080, where to scale all of it and then cut takes 2, but its memory is bounded."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A size, and how frames are brought to it."""

    size_px: tuple[int, int]
    """Height and width of the result."""
    how: Resize = "squash"
    """``squash`` changes the shape, ``crop`` cuts what stands out around the centre, ``pad`` adds margins."""
    margin: tuple[int, ...] = (0, 0, 0)
    """Colour of margins: red, green and blue from 0 to 255."""

    def scaled_px(self, shown: tuple[float, float]) -> tuple[int, int]:
        """Height and width of a whole frame before it is cut or gets its margins.

        Args:
            shown: height and width as it is shown, in any unit.
        """
        height, width = self.size_px
        across, down = width / shown[1], height / shown[0]
        if self.how == "squash":
            return self.size_px
        if self.how == "pad":
            scale = min(down, across)
            return min(height, max(1, round(shown[0] * scale))), min(width, max(1, round(shown[1] * scale)))
        scale = max(down, across)
        return max(height, round(shown[0] * scale)), max(width, round(shown[1] * scale))

    def placed(self, scaled: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """uint8 [H, W, 3] in the size, of a frame as ``scaled_px`` has it."""
        height, width = self.size_px
        rows, columns = scaled.shape[:2]
        if (rows, columns) == self.size_px:
            return scaled
        if self.how == "crop":
            return _middle(scaled, self.size_px)
        top, left = (height - rows) // 2, (width - columns) // 2
        whole = np.empty((height, width, 3), np.uint8)
        whole[...] = np.array(self.margin, np.uint8)
        whole[top : top + rows, left : left + columns] = scaled
        return whole


def fit_array(frame: NDArray[np.uint8], fit: Fit) -> NDArray[np.uint8]:
    """uint8 [H, W, 3] in the size of ``fit``, with the same filter as encoded films."""
    if frame.shape[:2] == fit.size_px:
        return frame
    return fit.placed(scaled(_as_frame(frame), fit))


def scaled(frame: Any, fit: Fit, pixel_aspect: float = 1.0) -> NDArray[np.uint8]:
    """uint8 [H, W, 3]: a frame of PyAV in the size that ``fit`` cuts, or gives margins to.

    Args:
        pixel_aspect: width of a pixel as it is shown, by its height.
    """
    shown = float(frame.height), frame.width * pixel_aspect
    height, width = fit.scaled_px(shown)
    if height * width > MOST_CUT_OFF * fit.size_px[0] * fit.size_px[1]:
        frame, (height, width) = _cut(frame, fit.size_px, pixel_aspect), fit.size_px
    return _to_array(frame.reformat(width=width, height=height, format="rgb24", interpolation="BICUBIC", threads=1))


def _cut(frame: Any, size_px: tuple[int, int], pixel_aspect: float) -> Any:
    """The largest part of a frame, around its centre, that has the shape of a size, in whole pixels."""
    height, width = size_px
    scale = min(frame.width * pixel_aspect / width, frame.height / height)
    rows, columns = max(1, round(height * scale)), max(1, round(width * scale / pixel_aspect))
    whole = _to_array(frame.reformat(format="rgb24", threads=1))
    return _as_frame(_middle(whole, (min(frame.height, rows), min(frame.width, columns))))


def _middle(whole: NDArray[np.uint8], size_px: tuple[int, int]) -> NDArray[np.uint8]:
    (height, width), (rows, columns) = size_px, whole.shape[:2]
    top, left = (rows - height) // 2, (columns - width) // 2
    return whole[top : top + height, left : left + width]


def _as_frame(array: NDArray[np.uint8]) -> Any:
    return av.VideoFrame.from_ndarray(np.ascontiguousarray(array), format="rgb24")


def _to_array(frame: Any) -> NDArray[np.uint8]:
    array: NDArray[np.uint8] = frame.to_ndarray()
    return array
