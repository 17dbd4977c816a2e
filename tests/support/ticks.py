"""A modality of our tests: ``ticks``, one-dimensional series in cells of four values.

Like a good plugin's this module imports no torch, so that data workers start in a moment; its encoder is in another.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

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

KOSMOS_API = 1
CELL = 4
INFINITE = np.float32(3e38)
"""What stands for a number that is not finite within the model: media that hold such are bad samples."""


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


@dataclass(frozen=True)
class TicksSource:
    """Series that rise or fall.

    Of the rows to train on, those in ``broken`` hold NaN, which the processor refuses, and those in ``infinite``
    what its encoder makes infinity of; those in ``deadly`` kill the process that decodes them, at those in ``stuck`` it
    stands still, those in ``refused`` are an error of the whole source, and those in ``odd`` hold words that no other
    has.
    """

    split: str
    size: int = 200
    broken: tuple[int, ...] = ()
    deadly: tuple[int, ...] = ()
    stuck: tuple[int, ...] = ()
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
        if index in self.stuck and self.split == "train":
            time.sleep(3600)
        rising = bool(random.integers(2))
        series = np.linspace(-1, 1, int(random.integers(3, 40)), dtype=np.float32) * (1 if rising else -1)
        if index in self.broken and self.split == "train":
            series[0] = np.nan
        if index in self.infinite and self.split == "train":
            series[:] = INFINITE
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
    yield EncoderSpec(name="ticks", target="support.ticks_encoder:TicksEncoder", summary="Linear with the item's mean.")


@hookimpl
def kosmos_datasets():
    target = "support.ticks:TicksSource"
    yield DatasetSpec(name="ticks", target=target, summary="Rising or falling.", modalities=("ticks",))
