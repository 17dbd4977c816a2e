"""What an encoder of windows wants to be fed: the value that encoder and processor agree on. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kosmos import ConfigError

Normalization = Literal["channel", "window", "none"]


@dataclass(frozen=True, kw_only=True)
class WindowInput:
    """A cell is one channel's stretch of ``steps_per_cell`` time steps.

    Raises:
        ConfigError: a number is below 1.
    """

    steps_per_cell: int = 16
    """Time steps that a cell holds; the last cell of a channel is filled with missing values."""
    max_channels: int = 16
    """Most channels that the encoder can tell apart."""
    normalization: Normalization = "window"
    """``"channel"``: zero mean and unit variance of each channel of an item, over the values that are there;
    ``"window"``: of all its channels together, which keeps their ratios; ``"none"``: as they are."""

    def __post_init__(self) -> None:
        for name in ("steps_per_cell", "max_channels"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, got {getattr(self, name)}")

    @property
    def cell_shape(self) -> tuple[int, int]:
        """Values, and 1 where a value was there or 0 where it is missing."""
        return (2, self.steps_per_cell)
