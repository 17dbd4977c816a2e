"""torchaudio's Conformer on log-mel frames."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from kosmos.errors import ConfigError
from kosmos_audio.inputs import AudioInput
from kosmos_audio.items import by_length

HOP = 160  # samples: 10 ms at 16 kHz


class ConformerEncoder(nn.Module):
    """Conformer (arXiv 2005.08100) over cells of log-mel frames.

    Differs from the paper as torchaudio does: no relative positions, order comes from the depthwise convolutions.
    Group norm stands for batch norm, whose statistics would cross items; items of equal length share a batch.

    Args:
        width: features of a cell.
        layers: Conformer layers.
        heads: attention heads; must divide ``width``.
        feed_forward: hidden features of the feed-forward parts.
        kernel: cells that a depthwise convolution spans; odd.
        mels: mel bands.
        frames_per_cell: frames of 10 ms that a cell holds.
        dropout: fraction of features dropped in training.

    Raises:
        ConfigError: the numbers do not fit each other.
    """

    without_files: ClassVar[dict[str, Any]] = {}
    same_for_weights: ClassVar[tuple[str, ...]] = ("heads",)
    input: AudioInput

    def __init__(
        self,
        *,
        width: int = 144,
        layers: int = 4,
        heads: int = 4,
        feed_forward: int = 576,
        kernel: int = 15,
        mels: int = 80,
        frames_per_cell: int = 4,
        dropout: float = 0.0,
    ) -> None:
        from torchaudio.models import Conformer

        super().__init__()
        if heads < 1 or width % heads:
            raise ConfigError(f"heads: {heads} does not divide width {width}")
        if kernel % 2 == 0:
            raise ConfigError(f"kernel: expected an odd number of cells, got {kernel}")
        self.input = AudioInput(num_mels=mels, samples_per_cell=frames_per_cell * HOP, hop=HOP)
        self.width = width
        self.stem = nn.Linear(frames_per_cell * mels, width)
        self.model = Conformer(
            input_dim=width,
            num_heads=heads,
            ffn_dim=feed_forward,
            num_layers=layers,
            depthwise_conv_kernel_size=kernel,
            dropout=dropout,
            use_group_norm=True,
        )
        self.recompute = False

    def set_gradient_checkpointing(self, enabled: bool) -> None:
        """Keep only the input of each layer and compute it again in the backward pass."""
        self.recompute = enabled

    def forward(self, values: Tensor, grids: Tensor) -> Tensor:
        """values [N, frames_per_cell, mels], grids int64 [items, 3] on the CPU -> [N, width]. May be empty."""
        return by_length(values, grids, self.width, self._encode)

    def _encode(self, batch: Tensor) -> Tensor:
        x: Tensor = self.stem(batch.flatten(2)).transpose(0, 1)  # its layers take [time, items, width]
        for layer in self.model.conformer_layers:
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(layer, x, None, use_reentrant=False)
            else:
                x = layer(x, None)
        return x.transpose(0, 1)
