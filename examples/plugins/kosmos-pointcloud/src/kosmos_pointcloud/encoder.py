"""The encoder of point clouds: a small PointNet for each group, then a transformer over an item's groups.

Source: PointNet (arXiv 1612.00593) and the tokens of Point-BERT (arXiv 2111.14819), without their batch norms: those
would mix items. N = groups, K = points of a group, D = width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from kosmos import ConfigError, Segments, attend
from kosmos_pointcloud.inputs import CloudInput, Normalization

NEAR = 4.0
"""Points of a group lie within about a quarter of the cloud's radius; by this they come to about 1."""


class GroupEncoder(nn.Module):
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
        super().__init__()
        if heads < 1 or width % heads:
            raise ConfigError(f"heads: {heads} does not divide width {width}")
        self.input = CloudInput(points_per_group=points_per_group, normalization=normalization)
        self.width = width
        self.points = PointNet(hidden, width)
        self.place = nn.Sequential(nn.Linear(3, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.blocks = nn.ModuleList(Block(width, heads, feed_forward * width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.recompute = False

    def set_gradient_checkpointing(self, enabled: bool) -> None:
        """Keep only the input of each block and compute it again in the backward pass."""
        self.recompute = enabled

    def forward(self, values: Tensor, grids: Tensor) -> Tensor:
        """values [N, 1 + K, 3], grids int64 [items, 3] (groups, 1, 1) on the CPU -> [N, D]. N may be 0."""
        values = values.to(self.norm.weight.dtype)
        x = self.points(NEAR * values[:, 1:]) + self.place(values[:, 0])
        items = Segments.of_grids(grids)
        for block in self.blocks:
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(block, x, items, use_reentrant=False)
            else:
                x = block(x, items)
        features: Tensor = self.norm(x)
        return features


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


class Block(nn.Module):
    """Pre-norm transformer block; a cell sees all cells of its item and nothing else."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        for last in (self.out, self.down):
            nn.init.normal_(last.weight, std=0.02)  # a block begins close to passing its input on

    def forward(self, x: Tensor, items: Segments) -> Tensor:
        q, k, v = self.qkv(self.norm_1(x)).unflatten(1, (3, self.heads, -1)).unbind(1)
        x = x + self.out(attend(q, k, v, items, causal=False).flatten(1).to(x.dtype))
        out: Tensor = x + self.down(F.gelu(self.up(self.norm_2(x))))
        return out
