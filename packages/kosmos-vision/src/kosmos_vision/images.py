"""Pictures: how many cells one takes, known from its header at most, and then those cells. No torch here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from kosmos import ConfigError, Grid, Media, MediaPlan, SampleError
from kosmos_vision.augmentation import UNCHANGED, Augmentation, Change
from kosmos_vision.cutting import cut_planes
from kosmos_vision.fitting import Fitter, Resize
from kosmos_vision.grey import check_range
from kosmos_vision.own_shape import fit_cells
from kosmos_vision.pictures import MOST_PAGES, MOST_PIXELS, Limits, count_frames, doubt_of, load_rgb, read_header
from kosmos_vision.resampling import Planes, Resampler
from kosmos_vision.tiles import WHOLE, Tiling, choose_tiling, cut_tiles

BEGIN, END = "<image>", "</image>"
"""Marks before and behind the cells of a picture."""
MAX_CELLS = 256
OPTIONS = "modalities.image.processor"


@dataclass(frozen=True, slots=True)
class ImageInput:
    """What an encoder of pictures takes. A cell is the square of pixels behind one output position."""

    patch_px: tuple[int, int]
    """(height, width) of a cell."""
    size_px: tuple[int, int] | None
    """(height, width) of every picture; None where the encoder takes any whole number of cells."""
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    """Of each channel, for pixels from 0 to 1. The encoder normalises; the processor pads with it."""
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    """Of each channel, for pixels from 0 to 1."""
    min_cells: tuple[int, int] = (1, 1)
    """Fewest (rows, columns) that a variable encoder takes."""
    max_cells: tuple[int, int] | None = None
    """Most (rows, columns) that a variable encoder takes; None where there is no limit."""
    channels: int = 3

    def __post_init__(self) -> None:
        if self.size_px is not None and any(
            size % patch for size, patch in zip(self.size_px, self.patch_px, strict=True)
        ):
            raise ConfigError(
                f"pictures of {_by(self.size_px)} px are no whole number of {_by(self.patch_px)} px cells"
            )


class ImageRecipe(NamedTuple):
    """How a planned picture is decoded."""

    orientation: int | None
    """As EXIF counts it; None where the header was not read."""
    height_px: int
    """Of the whole, and of each tile."""
    width_px: int
    tiling: Tiling = WHOLE


class ImageProcessor:
    """Plans pictures and decodes them to uint8 cells.

    Where all have one size and none is split, a plan needs no look at the file: each is opened once, as it is decoded,
    and by the data worker that decodes it alone. What is wrong with a picture is then found there. Else the header is
    read.
    """

    def __init__(
        self,
        encoder_input: ImageInput,
        *,
        size_px: int | tuple[int, int] | None = None,
        resize: Resize = "squash",
        exact: bool = False,
        max_cells: int = MAX_CELLS,
        max_tiles: int = 1,
        max_pixels: int = 72_000_000,
        max_bytes: int = 64 * 1024 * 1024,
        compile: bool = True,
        flip: float = 0.0,
        crop: float = 1.0,
        colour: float = 0.0,
        gray_range: tuple[float, float] | None = None,
        marks: bool | tuple[str, str] = True,
    ) -> None:
        """
        Args:
            encoder_input: the encoder's ``input``.
            size_px: side, or (height, width), that every picture is brought to. None takes the encoder's size; with an
                encoder of variable size, each picture then keeps its own shape.
            resize: how a picture is brought to a given size: ``squash`` changes its shape, ``crop`` cuts what stands
                out around the centre, ``pad`` adds margins of the encoder's mean colour.
            exact: whether the pixels are those that published models have learned with, to 2 of 255: ``crop`` scales
                first, and cuts at whole pixels (torchvision's ``Resize`` and ``CenterCrop``, CLIP), ``pad`` adds its
                margins first, and scales then (LLaVA), and no JPEG is decoded at a half. It takes longer where pictures
                are four times as large as they are fed, or more.
            max_cells: budget of one picture that keeps its own shape. Its sides are rounded up to whole cells; one that
                takes more is made smaller.
            max_tiles: most tiles of the given size that a larger picture is split into, so that small print stays
                legible. They follow a view of the whole, row by row, and each takes as many tokens as that. No picture
                has more than its pixels fill. 1 splits none.
            max_pixels: pictures with more are refused before they are decoded; phones take some of 50 and 64 million.
                While it is decoded a picture takes 4 to 12 bytes a pixel (most if it is transparent, or grey of many
                bits), in each data worker. Pillow's own limit, of 89 million, is raised with it in the process.
            max_bytes: files with more are refused before they are read.
            compile: whether a process that has resized for half a second compiles C++ for it, where there is a
                compiler (``$CXX``, else g++ or clang++): the same bytes in a quarter to a half of the time.
            flip: in training, the probability that a picture is mirrored, left to right.
            crop: in training, the least share of a picture's area that is taken: at random one between it and 1, of the
                picture's own shape, anywhere in it. 1 takes all of it.
            colour: in training, by how much brightness, contrast and saturation go up or down at most: 0.2 is between
                0.8 and 1.2 times.
            gray_range: [low, high], the values that become black and white in pictures of grey of more than 8 bits,
                with a sign or of floats, in the units of their files: [0, 4095] for 12 bits in 16, [-160, 240] in HU
                for soft tissue. What is below or above is clipped. None takes 16 bits from 0 to 65,535 and refuses
                what has no agreed range.
            marks: whether ``<image>`` stands before a picture and ``</image>`` behind it; published models that have
                learned without them want none. Two texts stand there in their place: ["", "\\n"] is a line end behind.

        Raises:
            ConfigError: a size that the encoder cannot take, or a limit, an augmentation or a range that is none.
        """
        self.input = encoder_input
        self.cell_shape = (encoder_input.channels, *encoder_input.patch_px)
        self.cell_dtype: np.dtype[Any] = np.dtype(np.uint8)
        self.size_px = _checked_size(encoder_input, size_px)
        self.resize, self.exact, self.max_tiles, self.marks = resize, exact, max_tiles, marks
        self._fitter = Fitter("squash" if self.size_px is None else resize, exact, encoder_input.mean)
        self.around = {True: (BEGIN, END), False: ("", "")}[marks] if isinstance(marks, bool) else tuple(marks)
        self._check_tiles()
        self.reads_headers = self.size_px is None or max_tiles > 1
        self._one_plan = None if self.reads_headers or self.size_px is None else self._plan_of(None, self.size_px)
        self.max_cells = max_cells
        self.resampler = Resampler(compile)
        self.augmentation = Augmentation(flip, crop, colour)
        self.augments = self.augmentation.is_on
        self.limits = Limits(max_pixels, max_bytes, OPTIONS)
        self.gray_range = check_range(gray_range)
        fewest = encoder_input.min_cells[0] * encoder_input.min_cells[1]
        if max_cells < fewest:
            raise ConfigError(f"max_cells {max_cells}: the encoder takes no fewer than {fewest} cells of a picture")
        if not 1 <= max_pixels <= MOST_PIXELS or max_bytes < 1:
            raise ConfigError(
                f"max_pixels {max_pixels}, max_bytes {max_bytes}: need at least 1, and {MOST_PIXELS} pixels at most"
            )

    def plan(self, media: Media) -> MediaPlan:
        """Layout ``<image>``, one grid, ``</image>``; where a picture is split, the grids of its tiles stand behind the
        first, with a line break in front of each row. Reads the header, or where all have one plan nothing.

        Raises:
            SampleError: it is given a time range; where the header is read: unreadable, of size zero, or over a limit.
        """
        if media.clip is not None:
            raise SampleError(
                f"a picture has no time, but a clip of {media.clip} s was asked for; write the row as segments and put "
                "the clip on the medium that has time"
            )
        if self._one_plan is not None:
            return self._one_plan
        header = read_header(media.source, self.limits, self.gray_range)
        own = header.height, header.width
        if self.size_px is not None:
            return self._plan_of(header.orientation, self.size_px, choose_tiling(own, self.size_px, self.max_tiles))
        patch, least, most = self.input.patch_px, self.input.min_cells, self.input.max_cells
        rows, columns = fit_cells(own, patch, self.max_cells, least=least, most=most)
        return self._plan_of(header.orientation, (rows * patch[0], columns * patch[1]))

    def _plan_of(self, orientation: int | None, size_px: tuple[int, int], tiling: Tiling = WHOLE) -> MediaPlan:
        rows, columns = (size // patch for size, patch in zip(size_px, self.input.patch_px, strict=True))
        before, behind = ((text,) if text else () for text in self.around)
        layout = (*before, *tiling.layout(Grid(1, rows, columns)), *behind)
        return MediaPlan(layout, ImageRecipe(orientation, *size_px, tiling))

    def decode(self, media: Media, plan: MediaPlan) -> NDArray[np.uint8]:
        """Cells of each grid in reading order: uint8 [N, 3, patch height, patch width].

        Raises:
            SampleError: broken, cut short, or not within the limits.
        """
        return self._cells(media, plan, UNCHANGED)

    def augmented(self, media: Media, plan: MediaPlan, random: np.random.Generator) -> NDArray[np.uint8]:
        """As ``decode``, of the picture as it is changed in training."""
        return self._cells(media, plan, self.augmentation.draw(random))

    def described(self, media: Media, plan: MediaPlan) -> str:
        """The size of a picture and the one that is fed, for people.

        Raises:
            SampleError: as of ``plan`` where the header is read.
        """
        recipe: ImageRecipe = plan.recipe
        header, tiling = read_header(media.source, self.limits, self.gray_range), recipe.tiling
        fed = _by((recipe.height_px, recipe.width_px))
        tiles = f" and as {tiling.rows} x {tiling.columns} tiles of that" if tiling.is_split else ""
        how = f", resize {self.resize}" if self.size_px is not None else ""
        frames = count_frames(media.source, self.limits)
        count = f"over {MOST_PAGES:,}" if frames > MOST_PAGES else frames
        first = f", the first of {count} pages or frames" if frames > 1 else ""
        return f"height x width in px: {header.height} x {header.width}{first}, fed as {fed}{tiles}{how}"

    def doubt(self, media: Media) -> str:
        """That a picture comes out nearly black, by the range that its grey is read over; else empty.

        Raises:
            SampleError: as of ``decode``, where it has to be decoded.
        """
        return "" if self.gray_range is not None else doubt_of(media.source, self.limits)

    def _cells(self, media: Media, plan: MediaPlan, change: Change) -> NDArray[np.uint8]:
        """Each grid is resized from what was decoded: the tiles as one picture, of which they are cut."""
        recipe: ImageRecipe = plan.recipe
        tiling, size_px = recipe.tiling, (recipe.height_px, recipe.width_px)
        full_px = size_px[0] * tiling.rows, size_px[1] * tiling.columns
        needed = (MOST_PIXELS, MOST_PIXELS) if self.exact else change.needed(full_px)  # the former is never at a half
        picture = load_rgb(media.source, self.limits, recipe.orientation, needed, self.gray_range)
        views = [change.turned(self._planes(picture, size_px, change))]
        if tiling.is_split:
            views += cut_tiles(change.turned(self._planes(picture, full_px, change)), tiling)
        cells = [cut_planes(view, self.input.patch_px) for view in views]
        return cells[0] if len(cells) == 1 else np.concatenate(cells)

    def _planes(self, picture: Image.Image, size_px: tuple[int, int], change: Change) -> Planes:
        return self._fitter.fit(picture, change.part(*picture.size), size_px, self.resampler, change.recoloured)

    def _check_tiles(self) -> None:
        """Raises ConfigError where pictures cannot be split so."""
        if self.max_tiles < 1:
            raise ConfigError(f"max_tiles {self.max_tiles}: need at least 1, which splits no picture")
        if self.max_tiles > 1 and self.size_px is None:
            raise ConfigError(
                f"max_tiles {self.max_tiles}: pictures keep their own shape here, in max_cells cells; raise that, or "
                "set size_px, the size of a tile"
            )
        if self.max_tiles > 1 and self.resize == "crop":
            raise ConfigError(
                f"max_tiles {self.max_tiles}: resize crop would show other parts in the tiles than in the whole; set "
                "resize to squash or pad"
            )

    @property
    def hints(self) -> tuple[str, ...]:
        """Options that change nothing here, and what would make it faster."""
        return *self._idle_options(), *self.resampler.hints

    def _idle_options(self) -> Iterator[str]:
        """Runs have begun with them, so they are no mistake that stops one."""
        if self.size_px is None and self.resize != "squash":
            yield (
                f"resize {self.resize} has no effect: each picture keeps its own shape here; leave it out, or set "
                "size_px, the size that all are brought to"
            )
        if self.size_px is not None and self.max_cells != MAX_CELLS:
            yield (
                f"max_cells {self.max_cells} has no effect: every picture is brought to {_by(self.size_px)} px here "
                "(height x width); leave it out, or let pictures keep their own shape, with an encoder that can and no "
                "size_px"
            )


def _checked_size(encoder_input: ImageInput, size_px: int | tuple[int, int] | None) -> tuple[int, int] | None:
    wanted = (size_px, size_px) if isinstance(size_px, int) else size_px
    fixed, patch = encoder_input.size_px, encoder_input.patch_px
    if wanted is None or wanted == fixed:
        return fixed
    if fixed is not None:
        raise ConfigError(f"size_px {_by(wanted)}: the encoder takes {_by(fixed)} px; set its image_size instead")
    least = tuple(cells * side for cells, side in zip(encoder_input.min_cells, patch, strict=True))
    if any(size % side or size < low for size, side, low in zip(wanted, patch, least, strict=True)):
        raise ConfigError(f"size_px {_by(wanted)}: need multiples of {_by(patch)} px, no less than {_by(least)}")
    return wanted


def _by(size: tuple[int, ...]) -> str:
    return " x ".join(map(str, size))
