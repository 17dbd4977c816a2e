"""Groups of neighbours around centres that are far from each other. Deterministic, in numpy: no torch here.

Source: PointNet++ (arXiv 1706.02413), section 3.2. Two differences: the first centre is the point farthest from the
mean, where the paper takes any; and a group holds the nearest points, however far, so that all have one size.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]


def farthest_points(points: Points, count: int) -> NDArray[np.int64]:
    """Numbers of ``count`` of the ``points`` [n, 3], each the farthest from those before it; of equal ones the first.

    Order of the points does not matter but for ties. Once every place is taken, points repeat.
    """
    chosen = np.empty(count, np.int64)
    to_nearest = np.full(len(points), np.inf)
    following = int(np.argmax(_squared(points, points.mean(axis=0))))
    for number in range(count):
        chosen[number] = following
        to_nearest = np.minimum(to_nearest, _squared(points, points[following]))
        following = int(np.argmax(to_nearest))
    return chosen


def nearest_points(points: Points, centre: Points, count: int) -> NDArray[np.int64]:
    """Numbers of the ``count`` points nearest to ``centre``, nearest first; of equal ones the first.

    Where there are fewer points, they are repeated in turn.
    """
    distances = _squared(points, centre)
    if count < len(points):
        limit = np.partition(distances, count - 1)[count - 1]
        near = np.flatnonzero(distances <= limit)
    else:
        near = np.arange(len(points))
    return np.resize(near[np.argsort(distances[near], kind="stable")], count)


def group_points(points: Points, groups: int, size: int) -> Points:
    """[groups, 1 + size, 3]: a centre, then its ``size`` nearest points, relative to it."""
    cells = np.empty((groups, 1 + size, 3))
    for cell, number in zip(cells, farthest_points(points, groups), strict=True):
        cell[0] = points[number]
        cell[1:] = points[nearest_points(points, points[number], size)] - points[number]
    return cells


def _squared(points: Points, place: Points) -> NDArray[np.float64]:
    """Squared distances [n]; written out, because a BLAS product would start threads in data workers."""
    x, y, z = (points - place).T
    return np.asarray(x * x + y * y + z * z)
