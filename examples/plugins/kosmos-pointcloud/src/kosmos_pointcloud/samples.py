"""The sample set "solids": generated surfaces of one or two solids of a kind, with a description.

Number of points, size, place, turn, proportions and noise vary and are not named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from kosmos import ConfigError, Document, Media, Text

Points = NDArray[np.float64]

SPLITS = ("train", "held_out")
POINTS = (240, 600)


class SolidsSource:
    """Clouds of 240 to 600 points, each followed by its description, which is what is learned.

    A document depends on nothing but (seed, split, index). The two splits draw from separate random streams.

    Args:
        split: ``"train"`` or ``"held_out"``.
        size: number of documents. None: 16,384 to train on, 256 held out.
        seed: of the random streams.

    Raises:
        ConfigError: an unknown split, or a size below 1.
    """

    def __init__(self, split: Literal["train", "held_out"], *, size: int | None = None, seed: int = 0) -> None:
        if split not in SPLITS:
            raise ConfigError(f"solids: split {split!r} is unknown; there are {' and '.join(SPLITS)}")
        if size is not None and size < 1:
            raise ConfigError(f"size: expected at least 1, got {size}")
        self.name = "solids"
        self.split, self.seed = split, seed
        self.size = size if size is not None else (16_384 if split == "train" else 256)

    def __len__(self) -> int:
        return self.size

    def document(self, index: int) -> Document:
        """Cloud ``index`` and its description."""
        if not 0 <= index < self.size:
            raise IndexError(f"solids: document {index} of {self.size}")
        random = np.random.default_rng([self.seed, SPLITS.index(self.split), index])
        points, description = draw(random)
        origin = f"solids {self.split} {index}"
        return Document(origin, (Media("pointcloud", points), Text(description, train=True)))


def draw(random: Generator) -> tuple[NDArray[np.float32], str]:
    """A cloud, float32 [points, 3] in no order, and its description."""
    kind = list(SURFACES)[int(random.integers(len(SURFACES)))]
    number = int(random.integers(1, 3))
    count = int(random.integers(POINTS[0], POINTS[1] + 1))
    apart = np.array([random.uniform(1.3, 2.0), 0, 0]) @ _turn(random).T
    parts = []
    for part in range(number):
        surface = SURFACES[kind](count // number, random) @ _turn(random).T
        parts.append(surface * random.uniform(0.8, 1.2) + (2 * part - 1) * (number - 1) * apart)
    points = np.concatenate(parts)
    points += random.normal(0, 0.015, points.shape)
    points = random.permutation(points) * 10 ** random.uniform(-2, 2) + random.normal(0, 10, 3)
    return points.astype(np.float32), f"a {kind}" if number == 1 else f"two {PLURALS.get(kind, kind + 's')}"


def _directions(count: int, random: Generator) -> Points:
    """Unit vectors [count, 3], all directions equally likely."""
    vectors = random.standard_normal((count, 3))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def _turn(random: Generator) -> Points:
    """A rotation [3, 3] about the vertical axis."""
    angle = random.uniform(0, 2 * np.pi)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])


def _circle(count: int, random: Generator) -> tuple[Points, Points]:
    angle = random.uniform(0, 2 * np.pi, count)
    return np.cos(angle), np.sin(angle)


def sphere(count: int, random: Generator) -> Points:
    """Radius 1."""
    return _directions(count, random)


def cube(count: int, random: Generator) -> Points:
    """Six faces at distance 0.75."""
    points = random.uniform(-1, 1, (count, 3))
    points[np.arange(count), random.integers(0, 3, count)] = random.choice([-1.0, 1.0], count)
    return 0.75 * points


def torus(count: int, random: Generator) -> Points:
    """A ring of radius 0.75 and a thickness that varies."""
    thickness = random.uniform(0.2, 0.35)
    (along, across), (out, up) = _circle(count, random), _circle(count, random)
    radius = 0.75 + thickness * out
    return np.stack((radius * along, radius * across, thickness * up), axis=1)


def cylinder(count: int, random: Generator) -> Points:
    """Lateral surface and both ends, longer than wide."""
    radius, half = random.uniform(0.35, 0.5), random.uniform(0.8, 1.0)
    x, y = _circle(count, random)
    ends = random.random(count) < radius / (radius + 2 * half)  # by area
    shrink = np.where(ends, np.sqrt(random.random(count)), 1.0)
    z = np.where(ends, random.choice([-1.0, 1.0], count), random.uniform(-1, 1, count))
    return np.stack((radius * shrink * x, radius * shrink * y, half * z), axis=1)


def cone(count: int, random: Generator) -> Points:
    """Lateral surface and its base."""
    radius, height = random.uniform(0.6, 0.8), random.uniform(1.4, 1.8)
    x, y = _circle(count, random)
    shrink = np.sqrt(random.random(count))
    base = random.random(count) < radius / (radius + np.hypot(radius, height))  # by area
    z = np.where(base, 0.0, (1 - shrink) * height) - height / 3
    return np.stack((radius * shrink * x, radius * shrink * y, z), axis=1)


SURFACES: dict[str, Callable[[int, Generator], Points]] = {
    "sphere": sphere,
    "cube": cube,
    "torus": torus,
    "cylinder": cylinder,
    "cone": cone,
}
PLURALS = {"torus": "tori"}
