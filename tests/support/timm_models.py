"""Small models of timm, and pictures for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kosmos_vision.timm_encoder import TimmEncoder

TINY = {"embed_dim": 32, "depth": 2, "num_heads": 2}
SWIN = {"embed_dim": 12, "depths": (2, 2), "num_heads": (1, 2), "window_size": 4, "drop_path_rate": 0.0}
MODELS: dict[str, dict[str, Any]] = {  # name of the case -> options of the encoder
    "vit-class-token": {"model": "test_vit", "image_size": 64},
    "vit-registers-rope": {"model": "vit_small_patch16_dinov3", "image_size": 64, "model_options": TINY},
    "siglip-map-head": {"model": "vit_base_patch16_siglip_224", "image_size": 64, "model_options": TINY},
    "resnet-nchw": {"model": "test_resnet", "image_size": 64},
    "resnet-frozen": {"model": "test_resnet", "image_size": 64, "norm": "frozen"},
    "convnext-nchw": {"model": "test_convnext", "image_size": 64},
    "efficientnet": {"model": "test_efficientnet", "image_size": 64},
    "swin-nhwc": {"model": "swin_tiny_patch4_window7_224", "image_size": 64, "model_options": SWIN},
    "naflex-fixed": {"model": "naflexvit_base_patch16_gap", "image_size": 64, "model_options": TINY},
}
SHAPES = [(1, 2, 3), (1, 4, 2), (1, 2, 3), (2, 1, 5), (1, 1, 1)]


def pictures(encoder: TimmEncoder, grids: list[tuple[int, int, int]]) -> tuple[Tensor, Tensor]:
    count = sum(t * h * w for t, h, w in grids)
    random = torch.Generator().manual_seed(3)
    values = torch.randint(0, 256, (count, 3, *encoder.input.patch_px), dtype=torch.uint8, generator=random)
    return values, torch.tensor(grids, dtype=torch.int64).view(-1, 3)


def wake(encoder: TimmEncoder) -> None:
    """Move parameters that start at zero, such as the ends of residual branches, so that gradients pass."""
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.02)


def grid(encoder: TimmEncoder) -> tuple[int, int, int]:
    h, w = (size // patch for size, patch in zip((64, 64), encoder.input.patch_px, strict=True))
    return (1, h, w)


def alone(encoder: TimmEncoder, values: Tensor, grids: Tensor) -> Tensor:
    pieces = torch.split(values, grids.prod(1).tolist())
    return torch.cat([encoder(piece, row[None]) for piece, row in zip(pieces, grids, strict=True)])
