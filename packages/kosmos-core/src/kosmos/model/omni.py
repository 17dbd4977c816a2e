"""The omni-modal model: streams write into the token slots of a row, the backbone reads the row.

There is no branch on modality: every stream runs on every row, with zero-length input where the row has none of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from kosmos.data.batch import IGNORED, PackedBatch
from kosmos.model.loss import TokenLosses, linear_cross_entropy
from kosmos.model.protocols import Backbone, Connector, Encoder
from kosmos.model.segments import Segments


class Stream(nn.Module):
    """An encoder with its connector."""

    def __init__(self, encoder: Encoder, connector: Connector, *, freeze: bool = False) -> None:
        """
        Args:
            freeze: train none of the encoder's parameters; it then runs in evaluation mode. The connector is trained.
        """
        super().__init__()
        self.encoder = cast(nn.Module, encoder)
        self.connector = cast(nn.Module, connector)
        self.frozen = freeze
        if freeze:
            self.encoder.requires_grad_(False)

    def train(self, mode: bool = True) -> Stream:
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
        return self

    def forward(self, values: Tensor, grids: Tensor) -> Tensor:
        """values [N, *cell], grids int64 [items, 3] on the CPU -> [M, D]."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            cells = self.encoder(values, grids)
        slots: Tensor = self.connector(cells, grids)
        return slots


class OmniModel(nn.Module):
    """A backbone and its streams."""

    def __init__(self, backbone: Backbone, streams: Mapping[str, Stream]) -> None:
        super().__init__()
        self.backbone = cast(nn.Module, backbone)
        self.streams = nn.ModuleDict(streams)

    def embed(self, batch: PackedBatch) -> Tensor:
        """The row with all slots filled: [T, D]."""
        x: Tensor = cast(Any, self.backbone).embed(batch.token_ids)
        for name, stream in self.streams.items():
            media = batch.media[name]
            x = x.index_copy(0, media.slots, stream(media.values, media.grids).to(x.dtype))
        return x

    def forward(self, batch: PackedBatch) -> Tensor:
        """Hidden states of the row: [T, D]."""
        hidden: Tensor = self.backbone(self.embed(batch), batch.position_ids, Segments(batch.lengths))
        return hidden

    def losses(self, batch: PackedBatch) -> TokenLosses:
        """Losses of the positions that the loss looks at, in the order of the row."""
        hidden = self(batch)
        trained = (batch.labels != IGNORED).nonzero().squeeze(1)
        weight = cast(Backbone, self.backbone).output_weight()
        return linear_cross_entropy(hidden[trained], weight, batch.labels[trained])
