"""What an encoder of point clouds wants to be fed: the value that encoder and processor agree on. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kosmos import ConfigError

Normalization = Literal["unit", "centre", "none"]


@dataclass(frozen=True, kw_only=True)
class CloudInput:
    """A cell is a group: its centre, then its points relative to it.

    Raises:
        ConfigError: a group without points.
    """

    points_per_group: int = 32
    """The centre's nearest points, itself included; a smaller cloud repeats them."""
    normalization: Normalization = "unit"
    """``"unit"``: centred, the farthest point at distance 1; ``"centre"``: centred, which keeps sizes; ``"none"``."""

    def __post_init__(self) -> None:
        if self.points_per_group < 1:
            raise ConfigError(f"points_per_group: expected at least 1, got {self.points_per_group}")

    @property
    def cell_shape(self) -> tuple[int, int]:
        return (1 + self.points_per_group, 3)
