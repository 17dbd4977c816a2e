"""The encoder of ``support.ticks``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from weakref import WeakMethod, finalize

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from kosmos import to_device
from kosmos.data.batch import PackedBatch

from .ticks import CELL, INFINITE


class TicksEncoder(nn.Module):
    """A linear map a cell, scaled by the mean of its item, so that a leak between items would show."""

    input = CELL

    def __init__(self, *, width: int = 8, ledger: str | None = None) -> None:
        """``ledger``: file to which every row that the model is trained on is added, with its documents."""
        super().__init__()
        self.width = width
        self.map = nn.Linear(CELL, width)
        if ledger is not None:
            # Called before any module of the process, and so gone with the encoder: a process may train dozens.
            note = WeakMethod(self._note)
            hook = register_module_forward_pre_hook(lambda *called: (alive := note()) and alive(Path(ledger), *called))
            finalize(self, hook.remove)

    def _note(self, ledger: Path, model: nn.Module, given: Any) -> None:
        """Before any module runs. Step and lane have one seed, so it says of which of them the row is."""
        batch = next(iter(given), None)
        if not isinstance(batch, PackedBatch) or not self.training or self not in list(model.modules()):
            return
        row = {"seed": torch.initial_seed(), "documents": [document.origin for document in batch.documents]}
        with ledger.open("ab", buffering=0) as file:  # one write, which no kill can halve
            file.write(json.dumps(row).encode() + b"\n")

    def forward(self, values: Tensor, grids: Tensor) -> Tensor:
        lengths = grids.prod(dim=1)
        item = to_device(torch.repeat_interleave(torch.arange(len(lengths)), lengths), values.device)
        values = values.where(values < float(INFINITE) / 2, torch.inf).to(self.map.weight.dtype)
        features = torch.tanh(self.map(values))
        sums = features.new_zeros(len(lengths), self.width).index_add(0, item, features)
        return features + (sums / to_device(lengths.unsqueeze(1).clamp(min=1), values.device))[item]
