"""A sample set that needs no download: shapes that move, with descriptions.

One description in 126 is right (6 colours x 3 shapes x 7 motions); no single frame shows the motion.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kosmos import DataError, Document, Media, SampleError, Text

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (220, 40, 40),
    "green": (40, 190, 60),
    "blue": (50, 80, 230),
    "yellow": (230, 210, 40),
    "white": (240, 240, 240),
    "purple": (170, 50, 200),
}
SHAPES = ("square", "ring", "cross")
MOTIONS: dict[str, tuple[float, float, float]] = {
    "moving left": (0.0, -1.0, 0.0),
    "moving right": (0.0, 1.0, 0.0),
    "moving up": (-1.0, 0.0, 0.0),
    "moving down": (1.0, 0.0, 0.0),
    "growing": (0.0, 0.0, 1.0),
    "shrinking": (0.0, 0.0, -1.0),
    "standing still": (0.0, 0.0, 0.0),
}
"""Motion to the directions of row, column and radius."""

SPLITS = ("train", "held_out")
SIDE_PX = 48
RATE_HZ = 8.0


class MovingShapesSource:
    """Short films of one shape on a noisy ground, and what a viewer would call them.

    Sample ``index`` depends on (seed, split, index) alone: the same on every machine and in every worker, and
    train and held_out draw from disjoint random streams.

    Args:
        split: ``train`` or ``held_out``.
        size: number of samples; by default 16,384 to train on and 256 held out.
        seed: of all the random choices.
    """

    name = "moving-shapes"

    def __init__(self, split: Literal["train", "held_out"], *, size: int | None = None, seed: int = 0) -> None:
        if split not in SPLITS:
            raise DataError(f"moving-shapes: split {split!r} is not one of {', '.join(SPLITS)}")
        self.split = split
        self.size = size if size is not None else (16384 if split == "train" else 256)
        self.seed = seed
        if self.size < 0 or seed < 0:
            raise DataError(f"moving-shapes: size {self.size} and seed {seed} must not be negative")

    def __len__(self) -> int:
        return self.size

    def document(self, index: int) -> Document:
        if not 0 <= index < self.size:
            raise SampleError(f"moving-shapes/{self.split}: row {index} of {self.size}")
        rng = np.random.default_rng(np.random.SeedSequence([self.seed, SPLITS.index(self.split), index]))
        colour, shape, motion = (str(rng.choice(list(names))) for names in (COLOURS, SHAPES, MOTIONS))
        film = draw_film(colour, shape, motion, rng)
        return Document(
            origin=f"moving-shapes/{self.split}:{index}",
            segments=(
                Media("video", film, rate_hz=RATE_HZ),
                Text(f"a {colour} {shape} {motion}", train=True),
            ),
        )


def draw_film(colour: str, shape: str, motion: str, rng: np.random.Generator) -> NDArray[np.uint8]:
    """uint8 [T, 48, 48, 3], T = 8 to 16 frames. Start, size, speed, tone and noise come from ``rng``."""
    num_frames = int(rng.integers(8, 17))
    rows, columns, radii = _path(MOTIONS[motion], num_frames, rng)
    y, x = np.mgrid[:SIDE_PX, :SIDE_PX].astype(np.float32)
    ink = np.clip(np.array(COLOURS[colour]) * rng.uniform(0.9, 1.05), 0, 255)
    film = np.full((num_frames, SIDE_PX, SIDE_PX, 3), rng.uniform(10, 70), np.float32)
    for frame, row, column, radius in zip(film, rows, columns, radii, strict=True):
        frame[_inside(shape, y - row, x - column, radius)] = ink
    film += rng.uniform(2, 8) * rng.standard_normal(film.shape, np.float32)
    return np.clip(film, 0, 255).astype(np.uint8)


def _path(
    direction: tuple[float, float, float], num_frames: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Row, column and radius of the shape in each frame; it starts anywhere from where it stays in view."""
    phase = np.linspace(-0.5, 0.5, num_frames)
    travel_px, swell_px = rng.uniform(12, 20), rng.uniform(6, 9)
    mean_radius = rng.uniform(10, 12) if direction[2] else rng.uniform(8, 13)
    radii = mean_radius + direction[2] * swell_px * phase
    margin = radii.max() + 1
    centres = []
    for step in direction[:2]:
        reach = margin + abs(step) * travel_px / 2
        centres.append(
            rng.uniform(min(reach, SIDE_PX / 2), max(SIDE_PX - reach, SIDE_PX / 2)) + step * travel_px * phase
        )
    return centres[0], centres[1], radii


def _inside(shape: str, dy: NDArray[np.float32], dx: NDArray[np.float32], radius: float) -> NDArray[np.bool_]:
    """Which pixels, by their distance from the centre, the shape covers."""
    if shape == "square":
        return np.asarray((abs(dy) <= 0.85 * radius) & (abs(dx) <= 0.85 * radius))
    if shape == "ring":
        distance = np.hypot(dy, dx)
        return np.asarray((distance <= radius) & (distance >= 0.55 * radius))
    arm = 0.33 * radius
    return np.asarray(((abs(dy) <= arm) & (abs(dx) <= radius)) | ((abs(dx) <= arm) & (abs(dy) <= radius)))
