"""The encoder of windows: a transformer over an item's patches, as in PatchTST (arXiv 2211.14730).

What differs: all channels of an item attend to each other, because a fault is often seen by comparing them; missing
values are seen as such; rows hold many items of different sizes without padding. N = cells, D = width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kosmos import ConfigError, ItemTransformer, to_device
from kosmos_timeseries.inputs import Normalization, WindowInput


class PatchEncoder(ItemTransformer):
    """One linear map of each patch, its channel and its time, then transformer blocks within each item.

    Args:
        width: features of a cell; even.
        layers: transformer blocks.
        heads: attention heads; must divide ``width``.
        feed_forward: hidden features of a block's feed-forward part, as a multiple of ``width``.
        steps_per_cell: time steps of a patch.
        max_channels: most channels of an item.
        normalization: of the values of an item: by channel, over the whole window, or none.

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
        steps_per_cell: int = 16,
        max_channels: int = 16,
        normalization: Normalization = "window",
    ) -> None:
        super().__init__(width=width, layers=layers, heads=heads, feed_forward=feed_forward)
        if width % 2:
            raise ConfigError(f"width: {width} is odd; half of it is sines and half cosines")
        self.input = WindowInput(steps_per_cell=steps_per_cell, max_channels=max_channels, normalization=normalization)
        self.lift = nn.Sequential(nn.Linear(2 * steps_per_cell, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.channel = nn.Embedding(max_channels, width)

    def forward(self, values: Tensor, grids: Tensor) -> Tensor:
        """values [N, 2, steps_per_cell], grids int64 [items, 3] (stretches, channels, 1) on the CPU -> [N, D].

        N may be 0.
        """
        time, channel = (to_device(index, values.device) for index in places(grids))
        x = self.lift(values.flatten(1).to(self.channel.weight.dtype)) + self.channel(channel)
        x = x + 0.1 * sines(time, self.width).to(x.dtype)
        return self.transform(x, grids)


def places(grids: Tensor) -> tuple[Tensor, Tensor]:
    """Of each cell, its stretch of time and its channel: two int64 [N], on the CPU like ``grids``."""
    cells = grids.prod(dim=1)
    starts = (cells.cumsum(0) - cells).repeat_interleave(cells)
    channels = grids[:, 1].repeat_interleave(cells)
    within = torch.arange(len(starts)) - starts
    return within // channels, within % channels


def sines(places: Tensor, width: int) -> Tensor:
    """float32 [N, width]: sines and cosines of ``places`` [N] at many speeds (arXiv 1706.03762, section 3.5)."""
    speeds = 10_000.0 ** (-torch.arange(0, width, 2, device=places.device).float() / width)
    angles = places[:, None].float() * speeds
    return torch.cat((angles.sin(), angles.cos()), dim=1)
