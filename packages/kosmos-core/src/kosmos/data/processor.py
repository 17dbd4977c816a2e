"""What a modality has to say: how many tokens a medium takes, and then its cells.

No torch here: plans are made in data workers and in tools that never load a model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import index
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import Media


class Grid(NamedTuple):
    """Shape of one encoder item in cells: time, height, width. An item is one picture, clip or stretch of sound."""

    t: int
    h: int
    w: int

    @property
    def cells(self) -> int:
        return self.t * self.h * self.w


@dataclass(frozen=True, slots=True)
class MediaPlan:
    """The tokens that a medium will take, known before it is decoded.

    ``layout`` holds, in order: names of the modality's marks, stretches of plain text (time marks) and grids; it is not
    changed afterwards. ``recipe`` is whatever ``decode`` needs to do what was planned; plain picklable values.

    Raises:
        TypeError: the layout holds something else, or a grid what is no whole number.
    """

    layout: tuple[str | Grid, ...]
    recipe: Any = None
    grids: tuple[Grid, ...] = field(init=False, repr=False, compare=False)
    """Those of the layout."""
    cells: int = field(init=False, repr=False, compare=False)
    """Of all of them."""

    def __post_init__(self) -> None:
        if strange := [part for part in self.layout if not isinstance(part, (str, Grid))]:
            what = f"the {type(strange[0]).__name__} {strange[0]!r:.40}"
            raise TypeError(f"the layout of a MediaPlan: expected texts and Grids, got {what}")
        grids = tuple([part for part in self.layout if isinstance(part, Grid)])
        try:
            cells: Any = sum([grid.cells for grid in grids])
        except TypeError:
            cells = None
        if type(cells) is not int:  # some are numpy's, or no whole numbers; where none is, one look costs nothing
            object.__setattr__(self, "layout", tuple([_whole(p) if isinstance(p, Grid) else p for p in self.layout]))
            grids = tuple([part for part in self.layout if isinstance(part, Grid)])
            cells = sum([grid.cells for grid in grids])
        object.__setattr__(self, "grids", grids)
        object.__setattr__(self, "cells", cells)


def _whole(grid: Grid) -> Grid:
    """The grid in Python's own numbers. Raises TypeError where they are no whole ones."""
    try:
        return Grid(*map(index, grid))
    except TypeError:
        raise TypeError(f"grid {tuple(grid)!r:.60}: expected whole numbers") from None


class Processor(Protocol):
    """Plans and decodes the media of one modality. Picklable; ``plan`` is deterministic.

    One whose plans hang on no file, because all its media take the same, has ``reads_headers = False`` beside these:
    nobody then looks whether a file has changed since it was planned, and media in archives come without their bytes.
    One that changes at random what a model is trained on (augmentation) has ``augments = True`` and ``augmented(media,
    plan, random)``, which in training stands for ``decode`` and gives as many cells; all that it draws comes from
    ``random``, a ``numpy.random.Generator`` that depends on the run's seed and the sample's place in its order alone.
    One whose options have no effect together, or that could be faster on this machine, has ``hints``, lines that say
    so; they are told as a run starts. One that can say what it makes of a medium has ``described(media, plan)``, a line
    for people, such as the size that it has and the one that the encoder gets. Training never asks; ``kosmos data``
    does, of the documents that it prints. One that can tell of a medium that can be used that it hardly comes out as it
    was meant has ``doubt(media)``, a line, empty where there is none: it may decode for that, and is asked of a few
    media of each source as a run starts, and by ``kosmos data``.
    """

    cell_shape: tuple[int, ...]
    """Shape of one cell, such as ``(3, 16, 16)``."""
    cell_dtype: np.dtype[Any]
    """Type of the cells. Small integers travel faster; encoders scale them."""

    def plan(self, media: Media) -> MediaPlan:
        """Reads no more than a header where the format allows it.

        Raises:
            SampleError: the medium is unreadable or over a limit.
        """
        ...

    def decode(self, media: Media, plan: MediaPlan) -> NDArray[Any]:
        """The cells of all grids of the plan, in order: [N, *cell_shape].

        Raises:
            SampleError: the medium is broken.
        """
        ...
