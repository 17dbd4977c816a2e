"""What kosmos-vision brings. Light: the components themselves are imported when a run asks for them."""

from __future__ import annotations

from collections.abc import Iterator

from kosmos import CodecSpec, DatasetSpec, EncoderSpec, LayoutSpec, ModalitySpec, hookimpl

KOSMOS_API = 1


@hookimpl
def kosmos_modalities() -> Iterator[ModalitySpec]:
    yield ModalitySpec(
        name="image",
        target="kosmos_vision.images:ImageProcessor",
        summary="Pictures: JPEG, PNG, WebP, GIF, TIFF, BMP, AVIF, at one size or each in its own shape.",
        encoder="timm",
        encoder_options={"model": "test_efficientnet", "image_size": 64},
        connector="mlp",
        marks=("<image>", "</image>"),
        suffixes=(
            *(".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".webp", ".gif", ".bmp", ".dib"),
            *(".tif", ".tiff", ".avif", ".jp2", ".j2k", ".ppm", ".pgm", ".pbm"),
        ),
        sample_set="shapes",
    )


@hookimpl
def kosmos_encoders() -> Iterator[EncoderSpec]:
    yield EncoderSpec(
        name="timm",
        target="kosmos_vision.timm_encoder:TimmEncoder",
        summary="Any timm model by name, from scratch or from weights, at a fixed or a variable picture size.",
    )


@hookimpl
def kosmos_codecs() -> Iterator[CodecSpec]:
    at = "kosmos_vision.codecs"
    for name, target, summary in (
        ("pixels", f"{at}.pixels:PixelCodec", "Small pictures as pixels in few shades of grey or colours; no weights."),
        ("janus-vq", f"{at}.vq:JanusCodec", "The VQ model of Janus, as transformers saves it; local weights."),
        ("emu3-vq", f"{at}.vq:Emu3Codec", "The VQ model of Emu3, as transformers saves it; local weights."),
    ):
        yield CodecSpec(name=name, target=target, summary=summary, modality="image")


@hookimpl
def kosmos_datasets() -> Iterator[DatasetSpec]:
    yield DatasetSpec(
        name="shapes",
        target="kosmos_vision.samples:shapes",
        summary="Drawn pictures of one or two coloured shapes with captions; generated, nothing to download.",
        modalities=("image",),
    )


@hookimpl
def kosmos_layouts() -> Iterator[LayoutSpec]:
    yield LayoutSpec(
        name="llava",
        target="kosmos_vision.layouts.llava:LlavaLayout",
        summary="LlavaForConditionalGeneration of transformers: CLIP or SigLIP, two linear maps, a language model.",
    )
