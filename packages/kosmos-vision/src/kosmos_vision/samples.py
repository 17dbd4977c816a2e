"""The sample set ``shapes``: drawn pictures of coloured shapes with captions.

Every picture is drawn from (seed, split, index) alone, so nothing is stored or downloaded, and the train and
held-out parts come from separate random streams. A caption names colour and shape; position, size, turn, shade,
background and clutter vary and are not named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi, sin
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from kosmos import ConfigError, Document, Media, Text

SHAPES = ("circle", "square", "triangle", "plus", "ring")
"""With first letters of their own, as the colours have: a name is decided where it begins."""
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (215, 35, 35),
    "green": (40, 165, 55),
    "blue": (40, 70, 215),
    "yellow": (235, 215, 40),
    "purple": (145, 45, 175),
    "white": (245, 245, 245),
}
_SPLITS = {"train": 0, "held_out": 1}
_SIZES = {"train": 16_384, "held_out": 256}


@dataclass(frozen=True, slots=True)
class ShapesSource:
    """Documents of one picture and its caption, such as "red ring"."""

    split: Literal["train", "held_out"]
    size: int
    seed: int
    picture_px: int
    name: str = "shapes"

    def __len__(self) -> int:
        return self.size

    def document(self, index: int) -> Document:
        """One picture, uint8 [picture_px, picture_px, 3], then its caption, which the loss looks at."""
        if not 0 <= index < self.size:
            raise IndexError(f"shapes: row {index} of {self.size}")
        random = np.random.default_rng([self.seed, _SPLITS[self.split], index])
        picture, caption = draw(random, self.picture_px)
        origin = f"{self.name}/{self.split}:{index}"
        return Document(origin, (Media("image", picture), Text(caption, train=True)))


def shapes(
    split: Literal["train", "held_out"], *, size: int | None = None, seed: int = 0, picture_px: int = 64
) -> ShapesSource:
    """Open the sample set.

    Args:
        split: which of the two random streams.
        size: number of documents; None takes 16,384 for training and 256 held out.
        seed: another seed gives other pictures.
        picture_px: side of a picture in pixels.

    Raises:
        ConfigError: an option out of range.
    """
    if split not in _SPLITS:
        raise ConfigError(f"shapes: split {split!r}; need one of {', '.join(_SPLITS)}")
    size = _SIZES[split] if size is None else size
    if size < 1 or seed < 0 or not 32 <= picture_px <= 1024:
        raise ConfigError(
            f"shapes: size {size}, seed {seed}, picture_px {picture_px}; need at least 1, 0, and 32 to 1024"
        )
    return ShapesSource(split, size, seed, picture_px)


def draw(random: np.random.Generator, picture_px: int) -> tuple[NDArray[np.uint8], str]:
    """One picture [picture_px, picture_px, 3] and its caption."""
    level = int(random.integers(40, 130))
    picture = Image.new("RGB", (picture_px, picture_px), (level, level, level))
    pen = ImageDraw.Draw(picture)
    _clutter(random, pen, picture_px, level)
    caption = _single(random, pen, picture_px)
    noise = random.normal(0.0, random.uniform(2, 7), (picture_px, picture_px, 3))
    return np.clip(np.asarray(picture) + noise, 0, 255).astype(np.uint8), caption


def _single(random: np.random.Generator, pen: ImageDraw.ImageDraw, side: int) -> str:
    radius = side * random.uniform(0.34, 0.42)
    x, y = random.uniform(radius, side - radius, 2)
    return _shape(random, pen, (x, y), radius)


def _shape(random: np.random.Generator, pen: ImageDraw.ImageDraw, centre: tuple[float, float], radius: float) -> str:
    """Draw one shape of a random kind, colour and turn; returns what it is."""
    kind = SHAPES[random.integers(len(SHAPES))]
    colour = list(COLOURS)[random.integers(len(COLOURS))]
    shade = np.clip(np.array(COLOURS[colour]) * random.uniform(0.88, 1.0) + random.integers(-10, 11, 3), 0, 255)
    fill = tuple(int(value) for value in shade)
    x, y = centre
    round_box = (x - 0.85 * radius, y - 0.85 * radius, x + 0.85 * radius, y + 0.85 * radius)
    if kind == "circle":
        pen.ellipse(round_box, fill=fill)
    elif kind == "ring":
        pen.ellipse(round_box, outline=fill, width=max(2, round(0.3 * radius)))
    else:
        turn = random.uniform(-0.15, 0.15)
        pen.polygon([(x + radius * a, y + radius * b) for a, b in _outline(kind, turn)], fill=fill)
    return f"{colour} {kind}"


def _outline(kind: str, turn: float) -> Sequence[tuple[float, float]]:
    """Corners in units of the radius, turned by ``turn`` radians."""
    if kind == "plus":
        arm = 0.32
        corners = [(arm, -1), (arm, -arm), (1, -arm), (1, arm), (arm, arm), (arm, 1)]
        corners += [(-x, -y) for x, y in corners]
        return [(x * cos(turn) - y * sin(turn), x * sin(turn) + y * cos(turn)) for x, y in corners]
    number = {"square": 4, "triangle": 3}[kind]
    first = turn - pi / 2 + (pi / 4 if kind == "square" else 0)
    angles = [first + 2 * pi * i / number for i in range(number)]
    return [(cos(angle), sin(angle)) for angle in angles]


def _clutter(random: np.random.Generator, pen: ImageDraw.ImageDraw, side: int, level: int) -> None:
    """Grey strokes that mean nothing."""
    for _ in range(int(random.integers(0, 3))):
        grey = int(np.clip(level + random.integers(-45, 46), 0, 190))
        x0, y0, x1, y1 = random.uniform(0, side, 4)
        pen.line((x0, y0, x1, y1), fill=(grey, grey, grey), width=int(random.integers(1, 3)))
