"""The default encoder of sound: log-mel frames, two convolutions, a small transformer over cells.

N = cells, R = mel frames (N * frames_per_cell), D = width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from kosmos.errors import ConfigError
from kosmos.model.attention import attend
from kosmos.model.segments import Segments
from kosmos_audio.inputs import AudioInput
from kosmos_audio.items import gather_rows, neighbours

HOP = 160  # samples: 10 ms at 16 kHz


class LogMelEncoder(nn.Module):
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

    compiles = True

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
        super().__init__()
        if heads < 1 or width % heads or width // heads % 2:
            raise ConfigError(f"heads: {heads} does not divide width {width} into heads of an even size")
        self.input = AudioInput(num_mels=mels, samples_per_cell=frames_per_cell * HOP, hop=HOP)
        self.width = width
        self.head_dim = width // heads
        self.conv_1 = nn.Linear(3 * mels, width)
        self.conv_2 = nn.Linear(3 * width, width)
        self.merge = nn.Linear(frames_per_cell * width, width)
        self.blocks = nn.ModuleList(Block(width, heads, feed_forward * width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.recompute = False

    def set_gradient_checkpointing(self, enabled: bool) -> None:
        """Keep only the input of each block and compute it again in the backward pass."""
        self.recompute = enabled

    def forward(self, values: Tensor, grids: Tensor) -> Tensor:
        """values [N, frames_per_cell, mels], grids int64 [items, 3] on the CPU -> [N, D]. May be empty."""
        cells = Segments.of_grids(grids)
        frames = Segments(tuple(length * values.shape[1] for length in cells.lengths))
        near = neighbours(frames, 1, values.device)
        x = F.gelu(self.conv_1(gather_rows(values.flatten(0, 1), near)))
        x = F.gelu(self.conv_2(gather_rows(x, near)))
        x = self.merge(x.view(values.shape[0], self.merge.in_features))
        rotation = rotation_of(cells, self.head_dim, x)
        for block in self.blocks:
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(block, x, rotation, cells, use_reentrant=False)
            else:
                x = block(x, rotation, cells)
        out: Tensor = self.norm(x)
        return out


class Block(nn.Module):
    """Pre-norm transformer block with rotary positions, attending in both directions inside an item."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], cells: Segments) -> Tensor:
        q, k, v = self.qkv(self.norm_1(x)).unflatten(1, (3, self.heads, self.head_dim)).unbind(1)
        mixed = attend(rotate(q, rotation), rotate(k, rotation), v, cells, causal=False)
        x = x + self.out(mixed.reshape(x.shape))
        out: Tensor = x + self.down(F.gelu(self.up(self.norm_2(x))))
        return out


def rotation_of(segments: Segments, head_dim: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines [N, 1, head_dim / 2] of rotary positions that start at 0 in each segment.

    Source: Su et al., RoFormer (arXiv 2104.09864), base 10,000, in the split-half form.
    """
    lengths = torch.tensor(segments.lengths, dtype=torch.int64)
    starts = torch.tensor(segments.bounds[:-1], dtype=torch.int64).repeat_interleave(lengths)
    positions = (torch.arange(segments.total) - starts).float()
    speeds = 10_000.0 ** (-torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.outer(positions, speeds)[:, None, :].to(like.device, non_blocking=True)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """``x`` [N, heads, head_dim] turned by its position."""
    cos, sin = rotation
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)
