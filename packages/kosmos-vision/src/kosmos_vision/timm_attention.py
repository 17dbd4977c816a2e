"""The attention of timm's vision transformers by Kosmos's own, which on a CPU holds no shares of all cells."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from kosmos import Segments, WithKernels, attends_compiled, within_items
from kosmos_vision.lean_timm import timm

Attention: Any = timm.models.vision_transformer.Attention


def of_products(device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """In which type products of what is of this type, on this device, are."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else dtype


class PictureAttention(Attention, WithKernels):  # type: ignore[misc]  # timm has no types
    """timm's own, which by kernels is given all pictures as one row."""

    def attends(self, device: torch.device, dtype: torch.dtype) -> bool:
        """Whether it is for inputs of this type on this device; ``fused_attn`` then has to be true."""
        drops = self.training and cast(nn.Dropout, self.attn_drop).p > 0
        return self.by_kernels and not drops and attends_compiled(device, of_products(device, dtype))

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if args or kwargs.get("attn_mask") is not None or not (self.fused_attn and self.attends(x.device, x.dtype)):
            return super().forward(x, *args, **kwargs)  # type: ignore[no-any-return]
        pictures, tokens, width = x.shape
        row = x.reshape(1, -1, width)
        mask = within_items(Segments((tokens,) * pictures), row, by_kernels=True)
        out: Tensor = super().forward(row, **{**kwargs, "attn_mask": mask})
        return out.view(pictures, tokens, out.shape[2])  # of no pictures too


def attend_by_kernels(model: nn.Module) -> None:
    """Have all attention of a model that is timm's plain one be able to: its weights stay where they are."""
    for module in model.modules():
        if type(module) is Attention:
            module.__class__ = PictureAttention
