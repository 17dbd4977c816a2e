"""What kosmos-sketch brings. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Iterator

from kosmos import CodecSpec, DatasetSpec, EncoderSpec, ModalitySpec, hookimpl

KOSMOS_API = 1
KOSMOS_TESTING = "kosmos_sketch.conditions:CONDITIONS"


@hookimpl
def kosmos_modalities() -> Iterator[ModalitySpec]:
    yield ModalitySpec(
        name="sketch",
        target="kosmos_sketch.reading:SketchProcessor",
        summary="Gray pictures of up to 64 x 64 pixels: PGM files or arrays; read by patches.",
        encoder="sketch-patches",
        connector="mlp",
        marks=("<sketch>", "</sketch>"),
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
def kosmos_codecs() -> Iterator[CodecSpec]:
    yield CodecSpec(
        name="sketch-codes",
        target="kosmos_sketch.codes:SketchCodec",
        summary="Patches of 4 x 4 pixels in four grays: 256 codes, and one that ends a row.",
        modality="sketch",
    )


@hookimpl
def kosmos_datasets() -> Iterator[DatasetSpec]:
    yield DatasetSpec(
        name="sketches",
        target="kosmos_sketch.samples:SketchesSource",
        summary="Generated shapes, which are described.",
        modalities=("sketch",),
    )
    yield DatasetSpec(
        name="drawings",
        target="kosmos_sketch.samples:DrawingsSource",
        summary="Descriptions, of which shapes are drawn; needs modalities.sketch.codec.",
        modalities=("sketch",),
    )
