"""Plan and decode point clouds: sets of any size become groups of neighbours. No torch here."""

from __future__ import annotations

from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kosmos import ConfigError, Grid, Media, MediaPlan, SampleError
from kosmos_pointcloud.grouping import Points, group_points
from kosmos_pointcloud.inputs import CloudInput, Normalization
from kosmos_pointcloud.reading import Limits, count_points, read_points


class CloudRecipe(NamedTuple):
    """What was planned for how many points."""

    points: int
    groups: int


class CloudProcessor:
    """Point clouds to cells: normalized, centres by farthest-point sampling, each with its nearest points.

    The layout is ``<pointcloud>``, one grid (groups, 1, 1), ``</pointcloud>``; the groups stand from coarse to fine,
    in the order of sampling. Columns after the third (colours, normals) are left out.

    Args:
        encoder_input: what the encoder wants.
        points_per_centre: one group for so many points, rounded up. Neighbouring groups overlap where it is smaller
            than the encoder's ``points_per_group``.
        max_groups: most groups of a cloud.
        max_points: most points of a medium.
        max_bytes: largest file that is read.

    Raises:
        ConfigError: a number is below 1.
    """

    def __init__(
        self,
        encoder_input: CloudInput,
        *,
        points_per_centre: int = 24,
        max_groups: int = 64,
        max_points: int = 100_000,
        max_bytes: int = 16 << 20,
    ) -> None:
        for name, value in (("points_per_centre", points_per_centre), ("max_groups", max_groups)):
            if value < 1:
                raise ConfigError(f"{name}: expected at least 1, got {value}")
        self.input = encoder_input
        self.points_per_centre, self.max_groups = points_per_centre, max_groups
        self.limits = Limits(max_bytes, max_points)
        self.cell_shape: tuple[int, ...] = encoder_input.cell_shape
        self.cell_dtype: np.dtype[Any] = np.dtype(np.float32)

    def plan(self, media: Media) -> MediaPlan:
        """Count the groups of ``media``.

        Raises:
            SampleError: unreadable, empty, over a limit, or asked for by seconds.
        """
        if media.clip is not None:
            raise SampleError("point cloud: has no seconds, but a clip was asked for")
        points = count_points(media, self.limits)
        groups = min(ceil(points / self.points_per_centre), self.max_groups)
        return MediaPlan(("<pointcloud>", Grid(groups, 1, 1), "</pointcloud>"), CloudRecipe(points, groups))

    def decode(self, media: Media, plan: MediaPlan) -> NDArray[np.float32]:
        """float32 [N, 1 + points_per_group, 3]: centre, then points relative to it.

        Raises:
            SampleError: broken, not finite, or another medium than was planned.
        """
        recipe: CloudRecipe = plan.recipe
        points = read_points(media, self.limits)
        if len(points) != recipe.points:
            raise SampleError(
                f"point cloud changed since it was planned: {recipe.points} points then, {len(points)} now"
            )
        points = normalize(points, self.input.normalization)
        with np.errstate(over="ignore", invalid="ignore"):
            cells = group_points(points, recipe.groups, self.input.points_per_group).astype(np.float32)
        if not np.isfinite(cells).all():
            raise SampleError("point cloud: its coordinates are too large for float32 cells")
        return cells


def normalize(points: Points, how: Normalization) -> Points:
    """``points`` [n, 3] centred at their mean and scaled as ``how`` says; a cloud of one place becomes zeros."""
    if how == "none":
        return points
    with np.errstate(over="ignore", invalid="ignore"):
        centred: Points = points - points.mean(axis=0)
        largest = np.abs(centred).max()
        if how == "centre" or not largest > 0:
            return centred
        centred = centred / largest  # before squares, which could overflow
        return np.asarray(centred / np.sqrt((centred**2).sum(axis=1).max()))
