"""How a picture is brought to a given size, by each of the values of ``resize``. No torch here."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image

from kosmos_vision.resampling import GAP, Box, Planes, Resampler

Resize = Literal["squash", "crop", "pad"]
FINE_GAP = 8.0
"""``GAP`` where pixels are to be those of others: what blocks change falls with its square."""
_REACH = 2.0
"""How far bicubic resampling looks from the centre of a new pixel, in new pixels, or of an enlargement in old ones."""


class Fitter(NamedTuple):
    """How the pictures of a modality are brought to a size."""

    resize: Resize
    exact: bool
    """See the options of the processor."""
    mean: tuple[float, ...]
    """Of each colour, from 0 to 1, which margins have."""

    def fit(
        self,
        picture: Image.Image,
        part: Box,
        size_px: tuple[int, int],
        resampler: Resampler,
        recoloured: Callable[[Planes], Planes],
    ) -> Planes:
        """A part of an RGB picture in ``size_px`` (height, width).

        Args:
            recoloured: changes the colours of what is no margin.
        """
        if self.resize == "pad":
            if self.exact:
                return _padded_first(_cut_out(picture, part), size_px, self.mean, resampler, recoloured)
            return _padded(picture, part, size_px, self.mean, resampler, recoloured)
        if self.resize == "crop":
            part = middle_of_scaled(part, size_px) if self.exact else middle(part, size_px)
        return recoloured(resampler.planes(picture, size_px, part, FINE_GAP if self.exact else GAP))


def middle(part: Box, size_px: tuple[int, int]) -> Box:
    """The largest part of a part, around its centre, that has the shape of ``size_px`` (height, width)."""
    (height, width), (begin, above, end, below) = size_px, part
    scale = min((end - begin) / width, (below - above) / height)
    left, top = begin + (end - begin - scale * width) / 2, above + (below - above - scale * height) / 2
    return max(begin, left), max(above, top), min(end, left + scale * width), min(below, top + scale * height)


def middle_of_scaled(part: Box, size_px: tuple[int, int]) -> Box:
    """What ``size_px`` (height, width) are made of where a part is scaled to whole pixels that cover them, and is then
    cut at whole pixels: as by ``Resize`` and ``CenterCrop`` of torchvision."""
    (height, width), (begin, above, end, below) = size_px, part
    across, down = end - begin, below - above
    if across * height <= down * width:
        columns, rows = width, int(width * down / across)
    else:
        columns, rows = int(height * across / down), height
    left, top = (columns - width) // 2, (rows - height) // 2
    pixel = across / columns, down / rows  # of the scaled part, in those of the picture
    return (
        begin + left * pixel[0],
        above + top * pixel[1],
        min(end, begin + (left + width) * pixel[0]),
        min(below, above + (top + height) * pixel[1]),
    )


def _padded(
    picture: Image.Image,
    part: Box,
    size_px: tuple[int, int],
    mean: tuple[float, ...],
    resampler: Resampler,
    recoloured: Callable[[Planes], Planes],
) -> Planes:
    """Scaled, and then with margins."""
    (height, width), across, down = size_px, part[2] - part[0], part[3] - part[1]
    scale = min(width / across, height / down)
    rows, columns = min(height, max(1, round(down * scale))), min(width, max(1, round(across * scale)))
    top, left = (height - rows) // 2, (width - columns) // 2
    planes = _filled(size_px, tuple(round(255 * of) for of in mean))
    planes[:, top : top + rows, left : left + columns] = recoloured(resampler.planes(picture, (rows, columns), part))
    return planes


def _padded_first(
    picture: Image.Image,
    size_px: tuple[int, int],
    mean: tuple[float, ...],
    resampler: Resampler,
    recoloured: Callable[[Planes], Planes],
) -> Planes:
    """With margins of whole pixels, and then scaled, as LLaVA does it (``expand2square``): where they meet, the two
    are mixed.

    Of the margins no more is made than the new pixels at the picture reach: of 10 x 100,000 pixels all are 30 GB.
    """
    colour = tuple(int(255 * of) for of in mean)
    wanted = size_px[::-1]
    axis = 1 if picture.width * wanted[1] >= picture.height * wanted[0] else 0  # along which the margins lie
    side, other = picture.size[axis], picture.size[1 - axis]
    whole = max(side, round(other * wanted[axis] / wanted[1 - axis]))
    before, scale = (whole - side) // 2, whole / wanted[axis]
    block, reach = max(1, int(scale / FINE_GAP)), _REACH * max(1.0, scale)
    small = picture if block == 1 else picture.reduce(block)
    first = max(0, floor((before - reach) / scale))
    last = min(wanted[axis], ceil((before + side + reach) / scale))
    lead = ceil(min(before, before - first * scale + reach) / block)
    tail = ceil(min(whole - before - side, last * scale + reach - before - side) / block)
    sides, place = [*small.size], [0, 0]
    sides[axis], place[axis] = lead + small.size[axis] + tail, lead
    padded = Image.new("RGB", (sides[0], sides[1]), colour)
    padded.paste(small, (place[0], place[1]))
    ends = lead + (first * scale - before) / block, lead + (last * scale - before) / block
    lines = last - first
    planes = _filled(size_px, colour)
    begin, end = floor(before / scale) - first, ceil((before + side) / scale) - first
    if axis:
        made = resampler.planes(padded, (lines, wanted[0]), (0.0, ends[0], other / block, ends[1]), FINE_GAP)
        made[:, begin:end] = recoloured(made[:, begin:end])
        planes[:, first:last] = made
    else:
        made = resampler.planes(padded, (wanted[1], lines), (ends[0], 0.0, ends[1], other / block), FINE_GAP)
        made[:, :, begin:end] = recoloured(made[:, :, begin:end])
        planes[:, :, first:last] = made
    return planes


def _cut_out(picture: Image.Image, part: Box) -> Image.Image:
    """The whole pixels that a part touches."""
    sides = floor(part[0]), floor(part[1]), ceil(part[2]), ceil(part[3])
    return picture if sides == (0, 0, *picture.size) else picture.crop(sides)


def _filled(size_px: tuple[int, int], colour: tuple[int, ...]) -> Planes:
    planes = np.empty((3, *size_px), np.uint8)
    planes[...] = np.array(colour, np.uint8)[:, None, None]
    return planes
