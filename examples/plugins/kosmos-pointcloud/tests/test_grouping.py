"""Farthest points and nearest neighbours, against what they are defined as."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from kosmos_pointcloud.grouping import farthest_points, nearest_points

# Whole numbers make ties, which have to be settled the same way every time.
CLOUDS = arrays(np.float64, st.tuples(st.integers(1, 30), st.just(3)), elements=st.integers(-3, 3).map(float))


@given(CLOUDS, st.integers(1, 40))
def test_each_centre_is_the_point_farthest_from_those_before_it(points: NDArray[np.float64], count: int) -> None:
    chosen = farthest_points(points, count)
    distances = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    for number in range(1, count):
        to_nearest = distances[:, chosen[:number]].min(axis=1)
        assert to_nearest[chosen[number]] == to_nearest.max()
        assert chosen[number] == np.flatnonzero(to_nearest == to_nearest.max())[0]


@given(CLOUDS, st.integers(1, 40))
def test_neighbours_are_the_nearest_points_in_order(points: NDArray[np.float64], count: int) -> None:
    found = nearest_points(points, points[0], count)
    order = np.argsort(((points - points[0]) ** 2).sum(axis=1), kind="stable")
    assert found.tolist() == [order[number % len(order)] for number in range(count)]
