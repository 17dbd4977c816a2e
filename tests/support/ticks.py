"""A modality of our tests: ``ticks``, one-dimensional series in cells of four values. Plain numpy and torch."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from kosmos import (
    DataError,
    DatasetSpec,
    Document,
    EncoderSpec,
    Grid,
    Media,
    MediaPlan,
    ModalitySpec,
    SampleError,
    Text,
    hookimpl,
)
from kosmos.data.batch import PackedBatch

KOSMOS_API = 1
CELL = 4


@dataclass(frozen=True)
class TicksProcessor:
    """``lie`` plans so many cells too few."""

    encoder_input: int
    lie: int = 0
    cell_shape: tuple[int, ...] = (CELL,)
    cell_dtype: ClassVar[np.dtype] = np.dtype(np.float32)

    def plan(self, media: Media) -> MediaPlan:
        if len(media.source) == 0:
            raise SampleError("holds no values")
        cells = -(-len(media.source) // self.encoder_input) - self.lie
        return MediaPlan(("<ticks>", Grid(cells, 1, 1), "</ticks>"))

    def decode(self, media: Media, plan: MediaPlan) -> np.ndarray:
        if np.isnan(media.source).any():
            raise SampleError("holds values that are no numbers")
        padded = np.zeros((plan.cells + self.lie) * self.encoder_input, np.float32)
        padded[: len(media.source)] = media.source
        return padded.reshape(-1, self.encoder_input)


class TicksEncoder(nn.Module):
    """A linear map a cell, scaled by the mean of its item, so that a leak between items would show."""

    input = CELL

    def __init__(self, *, width: int = 8, ledger: str | None = None) -> None:
        """``ledger``: file to which every row that the model is trained on is added, with its documents."""
        super().__init__()
        self.width = width
        self.map = nn.Linear(CELL, width)
        if ledger is not None:
            register_module_forward_pre_hook(partial(self._note, Path(ledger)))

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
        item = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        features = torch.tanh(self.map(values.to(self.map.weight.dtype)))
        sums = features.new_zeros(len(lengths), self.width).index_add(0, item, features)
        return features + (sums / lengths.unsqueeze(1).clamp(min=1))[item]


@dataclass(frozen=True)
class TicksSource:
    """Series that rise or fall.

    Of the rows to train on, those in ``broken`` hold NaN, which the processor refuses, and those in ``infinite``
    infinity, which it does not; those in ``deadly`` kill the process that decodes them, those in ``refused`` are an
    error of the whole source, and those in ``odd`` hold words that no other has.
    """

    split: str
    size: int = 200
    broken: tuple[int, ...] = ()
    deadly: tuple[int, ...] = ()
    infinite: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()
    odd: tuple[int, ...] = ()
    name: str = "ticks"

    def __len__(self) -> int:
        return self.size if self.split == "train" else max(2, self.size // 10)

    def document(self, index: int) -> Document:
        random = np.random.default_rng([index, self.split == "train"])
        if index in self.deadly and self.split == "train":
            os.kill(os.getpid(), signal.SIGSEGV)
        rising = bool(random.integers(2))
        series = np.linspace(-1, 1, int(random.integers(3, 40)), dtype=np.float32) * (1 if rising else -1)
        if index in self.broken and self.split == "train":
            series[0] = np.nan
        if index in self.infinite and self.split == "train":
            series[:] = np.inf
        if index in self.refused and self.split == "train":
            raise DataError(f"{self.name}: the disk of row {index} is gone")
        words = Text("rising" if rising else "falling", train=True)
        if index in self.odd and self.split == "train":
            words = Text("QXZJKVW"[: len(words.text)], train=True)
        return Document(f"ticks {index}", (Media("ticks", series), words))


@hookimpl
def kosmos_modalities():
    yield ModalitySpec(
        name="ticks",
        target="support.ticks:TicksProcessor",
        summary="Series of numbers.",
        encoder="ticks",
        connector="mlp",
        marks=("<ticks>", "</ticks>"),
        sample_set="ticks",
    )


@hookimpl
def kosmos_encoders():
    yield EncoderSpec(name="ticks", target="support.ticks:TicksEncoder", summary="Linear with the item's mean.")


@hookimpl
def kosmos_datasets():
    target = "support.ticks:TicksSource"
    yield DatasetSpec(name="ticks", target=target, summary="Rising or falling.", modalities=("ticks",))
