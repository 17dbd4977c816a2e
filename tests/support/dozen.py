"""A plugin of our tests with twelve modalities, each with a stream, a dataset and tokens of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from kosmos import DatasetSpec, Document, Grid, Media, MediaPlan, ModalitySpec, hookimpl
from support.ticks import TicksProcessor, TicksSource

KOSMOS_API = 1
MODALITIES = tuple(f"sense{number}" for number in range(12))


@dataclass(frozen=True)
class SenseProcessor(TicksProcessor):
    def plan(self, media: Media) -> MediaPlan:
        cells = -(-len(media.source) // self.encoder_input)
        return MediaPlan((f"<{media.modality}>", Grid(cells, 1, 1)))


@dataclass(frozen=True)
class SenseSource(TicksSource):
    """The series of ticks as another modality."""

    modality: str = ""

    def document(self, index: int) -> Document:
        found = super().document(index)
        series, words = found.segments
        assert isinstance(series, Media)
        return replace(found, segments=(replace(series, modality=self.modality), words))


globals().update({name: partial(SenseSource, name=name, modality=name) for name in MODALITIES})


@hookimpl
def kosmos_modalities() -> Iterator[ModalitySpec]:
    for name in MODALITIES:
        yield ModalitySpec(
            name=name,
            target="support.dozen:SenseProcessor",
            summary="Series of numbers.",
            encoder="ticks",
            marks=(f"<{name}>",),
            sample_set=name,
        )


@hookimpl
def kosmos_datasets() -> Iterator[DatasetSpec]:
    for name in MODALITIES:
        yield DatasetSpec(
            name=name,
            target=f"support.dozen:{name}",
            summary="Rising or falling.",
            modalities=(name,),
        )
