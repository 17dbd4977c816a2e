"""What kosmos-sketch brings. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Iterator

from kosmos import CommandSpec, DatasetSpec, EncoderSpec, ModalitySpec, hookimpl
from kosmos_sketch.codes import MARKS

KOSMOS_API = 1
KOSMOS_TESTING = "kosmos_sketch.conditions:CONDITIONS"


@hookimpl
def kosmos_modalities() -> Iterator[ModalitySpec]:
    yield ModalitySpec(
        name="sketch",
        target="kosmos_sketch.reading:SketchProcessor",
        summary="Gray pictures of up to 64 x 64 pixels: PGM files or arrays; read by patches, drawn by 256 tokens.",
        encoder="sketch-patches",
        connector="mlp",
        marks=MARKS,
        suffixes=(".pgm",),
        sample_set="sketches",
        arrays=(2,),
    )


@hookimpl
def kosmos_encoders() -> Iterator[EncoderSpec]:
    yield EncoderSpec(
        name="sketch-patches",
        target="kosmos_sketch.encoder:SketchEncoder",
        summary="Transformer over patches of 4 x 4 pixels, to train from scratch.",
    )


@hookimpl
def kosmos_datasets() -> Iterator[DatasetSpec]:
    yield DatasetSpec(
        name="sketches",
        target="kosmos_sketch.samples:SketchesSource",
        summary="Generated shapes with descriptions: every other one is described, the others are drawn.",
        modalities=("sketch",),
    )


@hookimpl
def kosmos_commands() -> Iterator[CommandSpec]:
    yield CommandSpec(
        name="draw", target="kosmos_sketch.drawing:draw", summary="Draw what a text describes, as a PGM file."
    )
