"""The encoder of point clouds: a small PointNet for each group, then a transformer over an item's groups.

Source: PointNet (arXiv 1612.00593) and the tokens of Point-BERT (arXiv 2111.14819), without their batch norms: those
would mix items. N = groups, K = points of a group, D = width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kosmos import ItemTransformer
from kosmos_pointcloud.inputs import CloudInput, Normalization

NEAR = 4.0
"""Points of a group lie within about a quarter of the cloud's radius; by this they come to about 1."""


class GroupEncoder(ItemTransformer):
    """PointNet in each group, a map of its centre, transformer blocks within each item.

    Args:
        width: features of a cell.
        layers: transformer blocks.
        heads: attention heads; must divide ``width``.
        feed_forward: hidden features of a block's feed-forward part, as a multiple of ``width``.
        hidden: features of a point.
        points_per_group: nearest points that a group holds.
        normalization: of the points of a cloud.

    Raises:
        ConfigError: the numbers do not fit each other.
    """

    def __init__(
        self,
        *,
        width: int = 128,
        layers: int = 2,
        heads: int = 4,
        feed_forward: int = 2,
        hidden: int = 64,
        points_per_group: int = 32,
        normalization: Normalization = "unit",
    ) -> None:
        super().__init__(width=width, layers=layers, heads=heads, feed_forward=feed_forward)
        self.input = CloudInput(points_per_group=points_per_group, normalization=normalization)
        self.points = PointNet(hidden, width)
        self.place = nn.Sequential(nn.Linear(3, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, values: Tensor, grids: Tensor) -> Tensor:
        """values [N, 1 + K, 3], grids int64 [items, 3] (groups, 1, 1) on the CPU -> [N, D]. N may be 0."""
        values = values.to(self.norm.weight.dtype)
        x = self.points(NEAR * values[:, 1:]) + self.place(values[:, 0])
        return self.transform(x, grids)


class PointNet(nn.Module):
    """One feature vector of a set of points: maps of each point and largest values over them, twice."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.lift = nn.Sequential(nn.Linear(3, hidden), nn.GELU(), nn.Linear(hidden, hidden))
        self.out = nn.Sequential(nn.Linear(2 * hidden, 2 * hidden), nn.GELU(), nn.Linear(2 * hidden, width))

    def forward(self, points: Tensor) -> Tensor:
        """[N, K, 3] -> [N, width], whatever the order of the points."""
        x = self.lift(points)
        whole = x.amax(dim=1, keepdim=True).expand_as(x)
        features: Tensor = self.out(torch.cat((x, whole), dim=2)).amax(dim=1)
        return features
