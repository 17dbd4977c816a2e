"""Plan and decode windows of sensor values: any length and channel count become cells of one channel. No torch here."""

from __future__ import annotations

from math import ceil, isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kosmos import ConfigError, Grid, Media, MediaPlan, SampleError
from kosmos_timeseries.inputs import Normalization, WindowInput
from kosmos_timeseries.reading import Limits, read_shape, read_values

ROUNDING = 4 * float(np.finfo(np.float64).eps)
"""A spread below this share of the largest value is rounding: the channel is constant, and becomes zeros."""


class WindowRecipe(NamedTuple):
    """What was planned: steps ``start`` to ``stop`` of so many channels."""

    start: int
    stop: int
    channels: int


class WindowProcessor:
    """Windows to cells: normalized, cut into stretches of time, missing values as zeros beside a mask.

    The layout is ``<timeseries>``, one grid (stretches, channels, 1), ``</timeseries>``. Missing values (NaN, empty
    fields) count in no statistic. Infinite values, and windows with more than ``max_missing`` of their values
    missing, are bad samples.

    Args:
        encoder_input: what the encoder wants.
        max_values: most values (time steps times channels) of a medium.
        max_bytes: largest file that is read.
        max_missing: largest share of missing values in a window.
        rate_hz: time steps a second of media that do not say it, so that a clip in seconds can be cut. None refuses
            clips of such media.

    Raises:
        ConfigError: a limit is out of range.
    """

    def __init__(
        self,
        encoder_input: WindowInput,
        *,
        max_values: int = 100_000,
        max_bytes: int = 8 << 20,
        max_missing: float = 0.5,
        rate_hz: float | None = None,
    ) -> None:
        if not 0 <= max_missing < 1:
            raise ConfigError(f"max_missing: expected a share from 0 to below 1, got {max_missing}")
        if rate_hz is not None and not (isfinite(rate_hz) and rate_hz > 0):
            raise ConfigError(f"rate_hz: expected a positive number, got {rate_hz}")
        self.input = encoder_input
        self.limits = Limits(max_bytes, max_values, encoder_input.max_channels)
        self.max_missing, self.rate_hz = max_missing, rate_hz
        self.cell_shape: tuple[int, ...] = encoder_input.cell_shape
        self.cell_dtype: np.dtype[Any] = np.dtype(np.float32)

    def plan(self, media: Media) -> MediaPlan:
        """Count the cells of ``media``.

        Raises:
            SampleError: unreadable, empty or over a limit.
        """
        steps, channels = read_shape(media, self.limits)
        start, stop = self._extent(media, steps)
        grid = Grid(ceil((stop - start) / self.input.steps_per_cell), channels, 1)
        return MediaPlan(("<timeseries>", grid, "</timeseries>"), WindowRecipe(start, stop, channels))

    def decode(self, media: Media, plan: MediaPlan) -> NDArray[np.float32]:
        """float32 [N, 2, steps_per_cell], for each stretch of time all channels; ``[:, 1]`` is 1 where a value is.

        Raises:
            SampleError: broken, infinite or mostly missing values, or another medium than was planned.
        """
        recipe: WindowRecipe = plan.recipe
        values = read_values(media, self.limits)
        if values.shape[1] != recipe.channels or len(values) < recipe.stop:
            raise SampleError(f"time series changed since it was planned: {recipe} then, shape {values.shape} now")
        values = values[recipe.start : recipe.stop]
        missing = float(np.isnan(values).mean())
        if missing > self.max_missing:
            raise SampleError(f"time series: {missing:.0%} of its values are missing (max_missing {self.max_missing})")
        (grid,) = plan.grids
        return self._cells(values, grid.t)

    def _cells(self, values: NDArray[np.float64], stretches: int) -> NDArray[np.float32]:
        width = self.input.steps_per_cell
        planes = np.zeros((2, stretches * width, values.shape[1]), np.float32)
        with np.errstate(over="ignore"):
            planes[0, : len(values)] = normalize(values, self.input.normalization)
        planes[1, : len(values)] = ~np.isnan(values)
        if not np.isfinite(planes).all():
            what = "for float32 features" if self.input.normalization == "none" else "to be normalized"
            raise SampleError(f"time series reaches {np.nanmax(np.abs(values)):.3g}: too large {what}")
        cells = planes.reshape(2, stretches, width, -1).transpose(1, 3, 0, 2)
        return np.ascontiguousarray(cells).reshape(-1, *self.cell_shape)

    def _extent(self, media: Media, steps: int) -> tuple[int, int]:
        """The time steps that are wanted, all of which are there."""
        if media.clip is None:
            return 0, steps
        rate_hz = self.rate_hz if media.rate_hz is None else media.rate_hz
        if rate_hz is None or not (isfinite(rate_hz) and rate_hz > 0):
            raise SampleError(
                f"time series: a clip in seconds needs the steps a second, got {rate_hz}; write rate_hz into the "
                'object of the medium ({"path": FILE, "clip": [0, 1], "rate_hz": N}; beside it in the row it is not '
                "read), or set the processor's rate_hz"
            )
        begin_s, end_s = media.clip
        if not (isfinite(begin_s) and isfinite(end_s) and 0 <= begin_s < end_s):
            raise SampleError(f"time series clip: expected 0 <= start < end in seconds, got {media.clip}")
        start, stop = round(begin_s * rate_hz), min(round(end_s * rate_hz), steps)
        if stop <= start:
            raise SampleError(f"time series holds no values in the clip {begin_s:g}-{end_s:g} s")
        return start, stop


def normalize(values: NDArray[np.float64], how: Normalization) -> NDArray[np.float64]:
    """``values`` [steps, channels], NaN becoming 0: each channel with zero mean, and a spread of 1 as ``how`` says.

    What all values of a channel have in common is taken off first, and the largest is made 1, so that seconds since
    1970 and values of 1e300 keep their form. What float64 cannot span is not finite in the result.

    Source: the instance normalization of PatchTST (arXiv 2211.14730), here over the values that are there.
    """
    seen = ~np.isnan(values)
    known = np.where(seen, values, 0.0)
    if how == "none":
        return known
    axis = 0 if how == "channel" else None
    with np.errstate(over="ignore", invalid="ignore"):
        first = np.take_along_axis(known, seen.argmax(axis=0)[None], axis=0)
        moved = np.where(seen, known - first, 0.0)
        moved = np.where(np.ptp(moved, axis=0) > ROUNDING * np.abs(known).max(axis=0), moved, 0.0)
        peak = np.abs(moved).max(axis=axis)
        moved = moved / np.where(peak > 0, peak, 1.0)
        centred = np.where(seen, moved - moved.sum(axis=0) / np.maximum(seen.sum(axis=0), 1), 0.0)
        spread = np.sqrt((centred**2).sum(axis=axis) / np.maximum(seen.sum(axis=axis), 1))
        scaled: NDArray[np.float64] = centred / np.where(spread > 0, spread, 1.0)
    return scaled
