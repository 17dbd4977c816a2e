"""What kosmos-video brings. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Iterable

from kosmos import DatasetSpec, EncoderSpec, ModalitySpec, hookimpl

KOSMOS_API = 1


@hookimpl
def kosmos_modalities() -> Iterable[ModalitySpec]:
    yield ModalitySpec(
        name="video",
        target="kosmos_video.frames:VideoProcessor",
        summary="Films: clips for a clip encoder, or frames through a picture encoder, with time marks.",
        encoder="pytorchvideo",
        encoder_options={"model": "resnet_tiny"},
        connector="mlp",
        marks=("<video>", "</video>"),
        suffixes=(
            ".mp4",
            ".mkv",
            ".webm",
            ".mov",
            ".m4v",
            ".avi",
            ".mpg",
            ".mpeg",
            ".ts",
            ".3gp",
            ".ogv",
            ".flv",
            ".wmv",
        ),
        sample_set="moving-shapes",
        has_time=True,
    )


@hookimpl
def kosmos_encoders() -> Iterable[EncoderSpec]:
    yield EncoderSpec(
        name="pytorchvideo",
        target="kosmos_video.pytorchvideo_encoder:PytorchVideoEncoder",
        summary="Clip encoders of pytorchvideo: x3d, slow, csn, r2plus1d, mvit; from scratch or from local weights.",
    )


@hookimpl
def kosmos_datasets() -> Iterable[DatasetSpec]:
    yield DatasetSpec(
        name="moving-shapes",
        target="kosmos_video.samples:MovingShapesSource",
        summary="Shapes that move, with descriptions; made on the spot, 126 different ones.",
        modalities=("video",),
    )
