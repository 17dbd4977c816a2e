"""Lets a model write series of ``support.ticks``: a codec of whole numbers, and documents that are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from kosmos import CodecSpec, ConfigError, DatasetSpec, Document, Encoded, Media, SampleError, Text, hookimpl

KOSMOS_API = 1


@dataclass
class StepCodec:
    """A series as its values from -1 to 1 in ``size`` steps; ``weights`` stands for what lies in a file."""

    size: int = 9
    weights: str = ""
    identity: str = ""
    books: int = 1
    length: int | None = None
    keeps: bool = True
    suffix: str = ".ticks"
    encoded: int = field(default=0, compare=False)
    """Series that were encoded."""

    def __post_init__(self) -> None:
        if self.weights == "gone":
            raise ConfigError("weights gone: no such folder")

    def encode(self, media: Media) -> np.ndarray:
        self.encoded += 1
        series = media.source if isinstance(media.source, np.ndarray) else np.frombuffer(_bytes(media), "<f4")
        if not len(series) or not np.isfinite(series).all():
            raise SampleError("holds values that are no numbers")
        return np.rint((series.clip(-1, 1) + 1) / 2 * (self.size - 1)).astype(np.int64)

    def decode(self, codes: np.ndarray) -> Encoded:
        if len(codes) > 40:
            raise SampleError(f"{len(codes)} values, expected 40 at most")
        return Encoded((codes / (self.size - 1) * 2 - 1).astype("<f4").tobytes(), self.suffix)


def _bytes(media: Media) -> bytes:
    return media.source if isinstance(media.source, bytes) else media.source.read_bytes()


@dataclass(frozen=True)
class SpokenSource:
    """Words, and the series that is to be written."""

    split: str
    size: int = 40
    name: str = "spoken"

    def __len__(self) -> int:
        return self.size

    def document(self, index: int) -> Document:
        rising = index % 2 == 0
        series = np.linspace(-1, 1, 5, dtype=np.float32) * (1 if rising else -1)
        words = Text("rising: " if rising else "falling: ")
        return Document(f"spoken {index}", (words, Media("ticks", series, train=True)))


@hookimpl
def kosmos_codecs() -> Iterator[CodecSpec]:
    yield CodecSpec(name="steps", target="support.spoken_ticks:StepCodec", summary="Values in steps.", modality="ticks")


@hookimpl
def kosmos_datasets() -> Iterator[DatasetSpec]:
    target = "support.spoken_ticks:SpokenSource"
    yield DatasetSpec(name="spoken", target=target, summary="Series that are written.", modalities=("ticks",))
