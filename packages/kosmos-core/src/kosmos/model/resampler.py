"""The perceiver resampler: any number of cells into a fixed number of slots."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from kosmos.data.slots import Fixed, SlotCount
from kosmos.data.transfer import to_device
from kosmos.errors import ConfigError
from kosmos.model.attention import attend_across
from kosmos.model.segments import Segments


class ResamplerConnector(nn.Module):
    """Learned latents attend to an item's features, and to each other, and become its slots.

    Args:
        width_in: features of a cell.
        width_out: width of the backbone.
        latents: slots that every item fills.
        layers: cross-attentions one after another.
        heads: attention heads; one for 64 features of the backbone by default.

    Source: KOSMOS-1 (arXiv 2302.14045) with 64 latents; one cross-attention over [features; latents] as in
    microsoft/unilm kosmos-2. Here each attention also has norms before it and a residual, so that ``layers`` may be
    more than one.
    """

    same_for_weights: ClassVar[tuple[str, ...]] = ("heads",)

    def __init__(
        self, width_in: int, width_out: int, *, latents: int = 64, layers: int = 1, heads: int | None = None
    ) -> None:
        super().__init__()
        heads = heads or max(1, width_out // 64)
        if latents < 1 or layers < 1:
            raise ConfigError(f"resampler: latents and layers must be 1 or more, got {latents} and {layers}")
        if width_out % heads:
            raise ConfigError(f"heads: {heads} does not divide the backbone's width {width_out}")
        self.slots: SlotCount = Fixed(latents)
        self.norm = nn.LayerNorm(width_in)
        self.linear = nn.Linear(width_in, width_out)
        self.latents = nn.Parameter(torch.randn(latents, width_out) * width_out**-0.5)
        self.layers = nn.ModuleList(_CrossAttention(width_out, heads) for _ in range(layers))

    def forward(self, features: Tensor, grids: Tensor) -> Tensor:
        """[N, width_in] -> [items * latents, width_out]; items of zero cells see the latents alone."""
        cells = Segments.of_grids(grids)
        assert features.shape[0] == cells.total, (features.shape, grids)
        features = self.linear(self.norm(features))
        count, L = len(cells.lengths), self.latents.shape[0]
        x = self.latents.to(features.dtype).expand(count, -1, -1).flatten(0, 1)
        order = to_device(_interleave(cells, L), features.device)
        keys = Segments(tuple(n + L for n in cells.lengths))
        for layer in self.layers:
            x = layer(x, features, order, keys, L)
        return x


class _CrossAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.latent_norm = nn.LayerNorm(width)
        self.feature_norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, features: Tensor, order: Tensor, keys: Segments, latents: int) -> Tensor:
        """x [items * latents, D], features [N, D] -> [items * latents, D]."""
        rows = self.latent_norm(x)
        seen = torch.cat([self.feature_norm(features), rows])
        q = self.query(rows).unflatten(-1, (self.heads, -1))
        k, v = self.key_value(seen).index_select(0, order).unflatten(-1, (2, self.heads, -1)).unbind(1)
        out: Tensor = self.output(attend_across(q, k, v, latents, keys).flatten(1))
        return x + out


def _interleave(cells: Segments, latents: int) -> Tensor:
    """Where, in [all features; all latents], each item's features and then its latents stand."""
    parts = [torch.zeros(0, dtype=torch.int64)]
    for item, (start, end) in enumerate(zip(cells.bounds, cells.bounds[1:], strict=False)):
        first = cells.total + item * latents
        parts += [torch.arange(start, end), torch.arange(first, first + latents)]
    return torch.cat(parts)
