"""A modality that comes from files, with a good codec and some that each break one promise of the kit."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kosmos import (
    CodecSpec,
    Codes,
    DatasetSpec,
    Document,
    Encoded,
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
MOST = 200
"""Values of the longest series."""


def read(media: Media) -> np.ndarray:
    """The values of a series: an array, or a file of float32."""
    source = media.source
    if media.clip is not None:
        raise SampleError("a beep has no seconds")
    if not isinstance(source, np.ndarray):
        try:
            if isinstance(source, Path):
                with source.open("rb") as file:
                    source = file.read(4 * MOST + 1)
            source = np.frombuffer(source[: 4 * MOST + 1], "<f4")
        except (OSError, ValueError) as error:
            raise SampleError(f"cannot be read: {error}") from error
    if source.ndim != 1 or source.dtype.kind not in "fiu" or not 0 < len(source) <= MOST:
        raise SampleError(f"{source.dtype} {source.shape}; expected 1 to {MOST} numbers")
    values = source.astype(np.float64).clip(-9, 9).astype(np.float32)
    if not np.isfinite(values).all():
        raise SampleError("holds what is no number")
    return values


class BeepsProcessor:
    def __init__(self, encoder_input: int) -> None:
        self.cell_shape, self.cell_dtype = (encoder_input,), np.dtype(np.float32)

    def plan(self, media: Media) -> MediaPlan:
        return MediaPlan(("<beeps>", Grid(-(-len(read(media)) // self.cell_shape[0]), 1, 1), "</beeps>"))

    def decode(self, media: Media, plan: MediaPlan) -> np.ndarray:
        values = read(media)
        padded = np.zeros(plan.cells * self.cell_shape[0], np.float32)
        padded[: len(values)] = values
        return padded.reshape(-1, self.cell_shape[0])


class BeepsSource:
    """Words and a series that is written; every other one as codes."""

    name = "beeps"

    def __init__(self, split: str) -> None:
        self.split = split

    def __len__(self) -> int:
        return 12 if self.split == "train" else 6

    def document(self, index: int) -> Document:
        index = 2 * index + (self.split == "train")
        values = np.linspace(-1, 1, 3 + index, dtype=np.float32)
        said = Codes("beeps", np.arange(9) % (index + 1), train=True) if index % 4 > 1 else None
        return Document(f"beeps {index}", (Text(f"{index}: "), said or Media("beeps", values, train=True)))


class Good:
    """A series as its values from -1 to 1 in so many steps."""

    def __init__(self, *, steps: int = 9) -> None:
        self.size: Any = steps
        self.identity: Any = "steps"

    def encode(self, media: Media) -> Any:
        return np.rint((read(media).clip(-1, 1) + 1) / 2 * (self.size - 1)).astype(np.int64)

    def decode(self, codes: np.ndarray) -> Any:
        if not 0 < len(codes) <= MOST:
            raise SampleError(f"{len(codes)} values, expected 1 to {MOST}")
        return Encoded((codes / (self.size - 1) * 2 - 1).astype("<f4").tobytes(), ".beep")


class NoSize(Good):
    def __init__(self) -> None:
        super().__init__()
        self.size = "9"


class OwnIdentity(Good):
    def __init__(self) -> None:
        super().__init__()
        self.identity = str(random.random())


class NumberIdentity(Good):
    def __init__(self) -> None:
        super().__init__()
        self.identity = 3


class OneTooMany(Good):
    def encode(self, media: Media) -> Any:
        return super().encode(media) + 1


class Empty(Good):
    def encode(self, media: Media) -> Any:
        return super().encode(media)[:0]


class OddBooks(Good):
    books = 2


class OutOfTurn(Good):
    books = 3

    def encode(self, media: Media) -> Any:
        return super().encode(media)[:3]


class Odd(Good):
    """Two codes for each value, but that of the last."""

    def __init__(self) -> None:
        super().__init__(steps=18)
        self.books = 2

    def encode(self, media: Media) -> Any:
        coarse = np.rint((read(media).clip(-1, 1) + 1) * 4).astype(np.int64)
        return np.stack([coarse, coarse + 9], 1).ravel()[:-1]


class Floats(Good):
    def encode(self, media: Media) -> Any:
        return super().encode(media) / 1.0


class Refuses(Good):
    def encode(self, media: Media) -> Any:
        raise SampleError("not mine")


class Draws(Good):
    def encode(self, media: Media) -> Any:
        return (super().encode(media) + random.randrange(self.size)) % self.size


class Spoils(Good):
    def encode(self, media: Media) -> Any:
        if isinstance(media.source, np.ndarray):
            media.source[-1] = 0.5
        return super().encode(media)


class Unpicklable(Good):
    def __init__(self) -> None:
        super().__init__()
        self.check = lambda: None


class UnpicklableOnceUsed(Good):
    def encode(self, media: Media) -> Any:
        self.check = lambda: None
        return super().encode(media)


class ByHash(Good):
    """Another one in each process, as by ``hash`` of a text, which would be the same by chance in one of many runs."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.made_in = os.getpid()

    def encode(self, media: Media) -> Any:
        return (super().encode(media) + int(os.getpid() != self.made_in)) % self.size


class NoFile(Good):
    def decode(self, codes: np.ndarray) -> Any:
        return super().decode(codes).content


class NoSuffix(Good):
    def decode(self, codes: np.ndarray) -> Any:
        return Encoded(super().decode(codes).content, "/../beep")


class OtherSuffix(Good):
    def decode(self, codes: np.ndarray) -> Any:
        return Encoded(super().decode(codes).content, ".wav")


class Unreadable(Good):
    def decode(self, codes: np.ndarray) -> Any:
        return Encoded(b"beep", ".beep") if len(codes) > 99 else Encoded(super().decode(codes).content[:-1], ".beep")


class OneWay(Good):
    def encode(self, media: Media) -> Any:
        if isinstance(media.source, bytes) and len(media.source) == 16:
            raise SampleError("of four values")
        return super().encode(media)


class Fragile(Good):
    def decode(self, codes: np.ndarray) -> Any:
        return Encoded(str(1 / (len(codes) - 1)).encode(), ".beep") if len(codes) < 2 else super().decode(codes)


class Repeats(Good):
    """Fails at a place that only odd sequences reach."""

    def decode(self, codes: np.ndarray) -> Any:
        if len(codes) == 7 and not codes.any():
            raise IndexError("no peak")
        return super().decode(codes)


class Greedy(Good):
    def decode(self, codes: np.ndarray) -> Any:
        if len(codes) > 16_000:
            np.ones((len(codes), len(codes)))
        return super().decode(codes)


class Trusting(Good):
    def encode(self, media: Media) -> Any:
        if isinstance(media.source, Path):
            return np.frombuffer(media.source.read_bytes(), "<f4").astype(int)
        return super().encode(media)


class Unpickles(Good):
    def encode(self, media: Media) -> Any:
        try:
            return super().encode(media)
        except SampleError:
            if isinstance(media.source, Path) and media.source.suffix == ".npy":
                np.load(media.source, allow_pickle=True)
            raise


CODECS = {name: kind for name, kind in globals().items() if isinstance(kind, type) and issubclass(kind, Good)}


@hookimpl
def kosmos_modalities() -> Iterator[ModalitySpec]:
    yield ModalitySpec(
        name="beeps",
        target=f"{__name__}:BeepsProcessor",
        summary="Short series.",
        encoder="beeps",
        marks=("<beeps>", "</beeps>"),
        suffixes=(".beep",),
        sample_set="beeps",
    )


@hookimpl
def kosmos_encoders() -> Iterator[EncoderSpec]:
    yield EncoderSpec(name="beeps", target="support.ticks_encoder:TicksEncoder", summary="Linear.")


@hookimpl
def kosmos_datasets() -> Iterator[DatasetSpec]:
    yield DatasetSpec(name="beeps", target=f"{__name__}:BeepsSource", summary="Of words.", modalities=("beeps",))


@hookimpl
def kosmos_codecs() -> Iterator[CodecSpec]:
    for name in CODECS:
        yield CodecSpec(name=name, target=f"{__name__}:{name}", summary="In steps.", modality="beeps")
    yield CodecSpec(name="Alone", target=f"{__name__}:Good", summary="Of what is not there.", modality="bells")
