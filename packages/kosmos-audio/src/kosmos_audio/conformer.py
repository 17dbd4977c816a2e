"""torchaudio's Conformer on log-mel frames."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F
from torchaudio.models import Conformer
from torchaudio.models.conformer import ConformerLayer

from kosmos import ConfigError, Recompute, Segments, WithKernels, attend, run_block
from kosmos_audio.inputs import AudioInput
from kosmos_audio.items import Lengths, as_weights, by_length, silent_cell

HOP = 160  # samples: 10 ms at 16 kHz


class ConformerEncoder(WithKernels):
    """Conformer (arXiv 2005.08100) over cells of log-mel frames.

    Differs from the paper as torchaudio does: no relative positions, order comes from the depthwise convolutions.
    Group norm stands for batch norm, whose statistics would cross items. Items lie packed one after another; for
    depthwise convolutions and their norms, those of equal length share a batch.

    Args:
        width: features of a cell.
        layers: Conformer layers.
        heads: attention heads; must divide ``width``.
        feed_forward: hidden features of the feed-forward parts.
        kernel: cells that a depthwise convolution spans; odd.
        mels: mel bands.
        frames_per_cell: frames of 10 ms that a cell holds.
        dropout: fraction of features dropped in training; attention drops nothing.

    Raises:
        ConfigError: the numbers do not fit each other.
    """

    takes_padding = True
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
        for layer in self.model.conformer_layers:
            layer.__class__ = PackedLayer  # whose weights keep their places and names
        self.recompute: Recompute = False

    def set_gradient_checkpointing(self, enabled: Recompute) -> None:
        """Keep only the input of each layer, or also products and attention, and compute the rest again."""
        self.recompute = enabled

    def forward(self, values: Tensor, grids: Tensor) -> Tensor:
        """values [N, frames_per_cell, mels], grids int64 [items, 3] on the CPU -> [N, width]. May be empty."""
        items, values = Segments.of_grids(grids), as_weights(values, self)
        if not items.total:
            return self._encode(*silent_cell(values))[:0]
        return self._encode(values, items)

    def _encode(self, values: Tensor, items: Segments) -> Tensor:
        x: Tensor = self.stem(values.flatten(1))
        lengths = Lengths.of(items, x.device)
        for layer in self.model.conformer_layers:
            x = run_block(layer, x, items, lengths, self.by_kernels, recompute=self.recompute)
        return x


class PackedLayer(ConformerLayer):  # type: ignore[misc]  # torchaudio has no types
    """torchaudio's layer on a packed row: the same parts in the same order, but for dropout of attention."""

    def forward(self, x: Tensor, items: Segments, lengths: Lengths, by_kernels: bool) -> Tensor:
        """[N, width] -> [N, width]."""
        assert not self.convolution_first
        x = x + 0.5 * self.ffn1(x)
        x = x + self.self_attn_dropout(self._attended(self.self_attn_layer_norm(x), items, by_kernels))
        x = x + self._convolved(x, lengths)
        x = x + 0.5 * self.ffn2(x)
        out: Tensor = self.final_layer_norm(x)
        return out

    def _attended(self, x: Tensor, items: Segments, by_kernels: bool) -> Tensor:
        attention = self.self_attn
        projected = F.linear(x, attention.in_proj_weight, attention.in_proj_bias)
        q, k, v = projected.view(len(x), 3, attention.num_heads, -1).unbind(1)
        seen = attend(q, k, v, items, causal=False, by_kernels=by_kernels)
        out: Tensor = attention.out_proj(seen.flatten(1))
        return out

    def _convolved(self, x: Tensor, lengths: Lengths) -> Tensor:
        widen, _, depthwise, norm, activation, narrow, dropout = self.conv_module.sequential

        def along(batch: Tensor) -> Tensor:  # [B, n, width]
            out: Tensor = norm(depthwise(batch.transpose(1, 2))).transpose(1, 2)
            return out

        x = F.glu(_by_cell(widen, self.conv_module.layer_norm(x)), dim=-1)
        x = activation(by_length(x, lengths, along))
        out: Tensor = dropout(_by_cell(narrow, x))
        return out


def _by_cell(convolution: nn.Conv1d, x: Tensor) -> Tensor:
    """What a convolution over one cell makes of [N, width]."""
    return F.linear(x, convolution.weight.squeeze(2), convolution.bias)
