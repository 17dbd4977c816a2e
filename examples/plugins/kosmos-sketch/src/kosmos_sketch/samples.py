"""The sample sets "sketches" and "drawings": shapes of two sizes in five places, with descriptions.

Of the one a model learns to describe, of the other to draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from kosmos import ConfigError, Document, Media, Text
from kosmos_sketch.patches import WHITE

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
    """Sketches of 16 x 16 pixels and their descriptions, which are learned. They have noise, so that each is another.

    Args:
        split: ``"train"`` or ``"held_out"``.
        size: number of documents. None: 4,096 to train on, 128 held out.
        seed: of the random streams.

    Raises:
        ConfigError: an unknown split, or a size below 1.
    """

    name = "sketches"

    def __init__(self, split: Literal["train", "held_out"], *, size: int | None = None, seed: int = 0) -> None:
        self.split, self.seed, self.size = split, seed, size_of(self.name, split, size)

    def __len__(self) -> int:
        return self.size

    def document(self, index: int) -> Document:
        """Sketch ``index``. It depends on nothing but (seed, split, index)."""
        random = random_of(self, index)
        shown, picture = draw(random)
        noisy = picture // 5 * 3 + random.integers(0, 100, picture.shape, np.uint8)
        return Document(f"sketches {self.split} {index}", (Media("sketch", noisy), Text(str(shown), train=True)))


class DrawingsSource:
    """Descriptions and their sketches, which are learned. A fifth of all descriptions are held out: they are never
    drawn in training.

    Args, Raises: as of ``SketchesSource``.
    """

    name = "drawings"

    def __init__(self, split: Literal["train", "held_out"], *, size: int | None = None, seed: int = 0) -> None:
        self.split, self.seed, self.size = split, seed, size_of(self.name, split, size)

    def __len__(self) -> int:
        return self.size

    def document(self, index: int) -> Document:
        """Drawing ``index``. It depends on nothing but (seed, split, index)."""
        shown, picture = draw(random_of(self, index), SHOWN[self.split])
        return Document(f"drawings {self.split} {index}", (Text(str(shown)), Media("sketch", picture, train=True)))


def size_of(name: str, split: str, size: int | None) -> int:
    """Documents of a split. Raises ConfigError: it is unknown, or the size is below 1."""
    if split not in SPLITS:
        raise ConfigError(f"{name}: split {split!r} is unknown; there are {' and '.join(SPLITS)}")
    if size is not None and size < 1:
        raise ConfigError(f"size: expected at least 1, got {size}")
    return size if size is not None else (4096 if split == "train" else 128)


def random_of(source: SketchesSource | DrawingsSource, index: int) -> Generator:
    """What is drawn at random for a document. Raises IndexError where there is none."""
    if not 0 <= index < source.size:
        raise IndexError(f"{source.name}: document {index} of {source.size}")
    return np.random.default_rng([source.seed, SPLITS.index(source.split), index])


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
