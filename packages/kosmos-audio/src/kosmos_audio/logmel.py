"""The default encoder of sound: log-mel frames, two convolutions, a small transformer over cells.

N = cells, R = mel frames (N * frames_per_cell), D = width.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from kosmos.model.item_transformer import ItemTransformer
from kosmos.model.segments import Segments
from kosmos_audio.inputs import AudioInput
from kosmos_audio.items import as_weights, own_neighbours, with_neighbours

HOP = 160  # samples: 10 ms at 16 kHz


class LogMelEncoder(ItemTransformer):
    """Convolutional transformer on log-mel frames; items lie packed one after another and never see each other.

    Args:
        width: features of a cell.
        layers: transformer blocks.
        heads: attention heads; must divide ``width`` into even parts.
        mels: mel bands.
        frames_per_cell: frames of 10 ms that a cell holds.
        feed_forward: hidden features of a block's feed-forward part, as a multiple of ``width``.

    Raises:
        ConfigError: the numbers do not fit each other.
    """

    takes_padding = True
    without_files: ClassVar[dict[str, Any]] = {}
    input: AudioInput

    def __init__(
        self,
        *,
        width: int = 128,
        layers: int = 4,
        heads: int = 4,
        mels: int = 80,
        frames_per_cell: int = 4,
        feed_forward: int = 4,
    ) -> None:
        super().__init__(width=width, layers=layers, heads=heads, feed_forward=feed_forward, rotary=True)
        self.input = AudioInput(num_mels=mels, samples_per_cell=frames_per_cell * HOP, hop=HOP)
        self.conv_1 = nn.Linear(3 * mels, width)
        self.conv_2 = nn.Linear(3 * width, width)
        self.merge = nn.Linear(frames_per_cell * width, width)

    def forward(self, values: Tensor, grids: Tensor) -> Tensor:
        """values [N, frames_per_cell, mels], grids int64 [items, 3] on the CPU -> [N, D]. May be empty."""
        cells = Segments.of_grids(grids)
        frames = Segments(tuple(length * values.shape[1] for length in cells.lengths))
        own = own_neighbours(frames, 1, values.device)
        x = F.gelu(self.conv_1(with_neighbours(as_weights(values, self).flatten(0, 1), own)))
        x = F.gelu(self.conv_2(with_neighbours(x, own)))
        x = self.merge(x.view(values.shape[0], self.merge.in_features))
        return self.transform(x, grids)
