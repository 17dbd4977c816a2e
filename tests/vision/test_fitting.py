"""Pixels that published models have learned with: ``exact`` has those of torchvision, by which transformers prepares
pictures for CLIP, SigLIP and LLaVA."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from torchvision.transforms.v2 import functional

from kosmos import Media
from kosmos_vision.images import ImageInput, ImageProcessor

WAYS = "squash", "crop", "pad"
MEAN = (0.48145466, 0.4578275, 0.40821073)
BICUBIC = functional.InterpolationMode.BICUBIC


def published(pixels: NDArray[np.uint8], side: int, how: str) -> NDArray[np.uint8]:
    """A picture [H, W, 3] as [3, side, side], in steps of whole pixels."""
    picture = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    height, width = picture.shape[1:]
    if how == "pad":
        left, top = (max(height - width, 0)) // 2, (max(width - height, 0)) // 2
        right, bottom = max(height - width, 0) - left, max(width - height, 0) - top
        channels = [functional.pad(one[None], [left, top, right, bottom], fill=int(255 * of))
                    for one, of in zip(picture, MEAN, strict=True)]  # fmt: skip
        picture = torch.cat(channels)
    size = [side] if how == "crop" else [side, side]
    scaled = functional.resize(picture, size, interpolation=BICUBIC, antialias=True)
    top, left = ((of - side) // 2 for of in scaled.shape[1:])
    return scaled[:, top : top + side, left : left + side].numpy()


def made(source: NDArray[np.uint8] | Path, side: int, how: str, exact: bool = True) -> NDArray[np.uint8]:
    processor = ImageProcessor(ImageInput((side, side), (side, side), mean=MEAN), resize=how, exact=exact)  # type: ignore[arg-type]
    media = Media("image", source)
    return processor.decode(media, processor.plan(media))[0]


def apart(found: NDArray[np.uint8], expected: NDArray[np.uint8]) -> int:
    return int(np.abs(found.astype(int) - expected).max())


@settings(max_examples=150, deadline=None)
@given(
    height=st.integers(1, 400), width=st.integers(1, 400), side=st.integers(16, 60), how=st.sampled_from(WAYS),
    seed=st.integers(0, 5),
)  # fmt: skip
def test_pixels_of_any_shape_are_within_two_steps(height: int, width: int, side: int, how: str, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    most = 2 if max(height, width) < 16 * side else 9  # from there on blocks of pixels are one first
    assert apart(made(pixels, side, how), published(pixels, side, how)) <= most


@pytest.mark.parametrize("how", WAYS)
def test_photos_are_within_two_steps_and_are_not_without_it(how: str, shared_data: Callable[[str], Path]) -> None:
    """At 64 pixels a file of 640 would be decoded at a half otherwise, whose sides are rounded."""
    files = sorted(shared_data("images/coco").rglob("*.jp*g"))[:12]
    expected = [published(np.asarray(Image.open(file).convert("RGB")), 64, how) for file in files]
    assert max(apart(made(file, 64, how), one) for file, one in zip(files, expected, strict=True)) <= 2
    assert max(apart(made(file, 64, how, exact=False), one) for file, one in zip(files, expected, strict=True)) > 20
