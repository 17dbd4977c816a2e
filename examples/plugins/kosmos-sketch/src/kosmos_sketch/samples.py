"""The sample set "sketches": shapes of two sizes in five places, with descriptions.

Every other document is a sketch and its description, which is learned; the others are a description and the marks that
draw it, which are learned. So one model learns to read and to draw. Sketches that are
described have noise, so that each is another. Of what is drawn a fifth of all descriptions are held out: they were
never drawn in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from kosmos import ConfigError, Document, Mark, Media, Text
from kosmos_sketch.codes import WHITE, marks_of

SPLITS = ("train", "held_out")
SIDE = 16
"""Pixels of a sketch."""
SHAPES = ("circle", "square", "triangle", "cross")
SIZES = {"small": 2.5, "large": 4.5}
"""Half of the pixels along a side."""
PLACES = {
    "top left": (8, 8),
    "top right": (8, 15),
    "bottom left": (15, 8),
    "bottom right": (15, 15),
    "middle": (12, 12),
}
"""Rows and columns of the middle of the shape."""


class Shown(NamedTuple):
    """What a sketch shows."""

    size: str
    shape: str
    place: str

    def __str__(self) -> str:
        return f"a {self.size} {self.shape}, {self.place}"


ALL = tuple(Shown(size, shape, place) for place in PLACES for size in SIZES for shape in SHAPES)
SHOWN = {
    "train": tuple(shown for number, shown in enumerate(ALL) if number % 5 != 2),
    "held_out": ALL[2::5],
}
"""What is drawn in a split."""


class SketchesSource:
    """Sketches of 16 x 16 pixels and their descriptions. A document depends on nothing but (seed, split, index).

    Args:
        split: ``"train"`` or ``"held_out"``.
        size: number of documents. None: 8,192 to train on, 256 held out.
        seed: of the random streams.

    Raises:
        ConfigError: an unknown split, or a size below 1.
    """

    def __init__(self, split: Literal["train", "held_out"], *, size: int | None = None, seed: int = 0) -> None:
        if split not in SPLITS:
            raise ConfigError(f"sketches: split {split!r} is unknown; there are {' and '.join(SPLITS)}")
        if size is not None and size < 1:
            raise ConfigError(f"size: expected at least 1, got {size}")
        self.name = "sketches"
        self.split, self.seed = split, seed
        self.size = size if size is not None else (8192 if split == "train" else 256)

    def __len__(self) -> int:
        return self.size

    def document(self, index: int) -> Document:
        """Sketch ``index``: described where the index is even, drawn where it is odd."""
        if not 0 <= index < self.size:
            raise IndexError(f"sketches: document {index} of {self.size}")
        random = np.random.default_rng([self.seed, SPLITS.index(self.split), index])
        is_read = index % 2 == 0
        shown, picture = draw(random, ALL if is_read else SHOWN[self.split])
        origin = f"sketches {self.split} {index}"
        if is_read:
            noisy = picture // 5 * 3 + random.integers(0, 100, picture.shape, np.uint8)
            return Document(origin, (Media("sketch", noisy), Text(str(shown), train=True)))
        return Document(origin, (Text(str(shown)), *(Mark(name, train=True) for name in marks_of(picture))))


def draw(random: Generator, of: Sequence[Shown] = ALL) -> tuple[Shown, NDArray[np.uint8]]:
    """One of them, and its sketch, uint8 [16, 16]: its place and its size vary by half a pixel."""
    shown = of[int(random.integers(len(of)))]
    return shown, sketch(shown, random.uniform(-0.5, 0.5, 3))


def sketch(shown: Shown, off: NDArray[np.float64] | tuple[float, ...] = (0.0, 0.0, 0.0)) -> NDArray[np.uint8]:
    """The shape in black on white.

    Args:
        off: what is added to its row, its column and its size.
    """
    row, column = PLACES[shown.place]
    half = SIZES[shown.size] + off[2]
    y, x = np.mgrid[:SIDE, :SIDE] + 0.5
    y, x = (y - row - off[0]) / half, (x - column - off[1]) / half
    inside = {
        "circle": x**2 + y**2 < 1,
        "square": np.maximum(abs(x), abs(y)) < 0.9,
        "triangle": (abs(y) < 0.9) & (2 * abs(x) < y + 0.9),
        "cross": (np.minimum(abs(x), abs(y)) < 0.3) & (np.maximum(abs(x), abs(y)) < 1),
    }[shown.shape]
    return np.where(inside, 0, WHITE).astype(np.uint8)
