"""The attention of timm's vision transformers by Kosmos's own, which on a CPU in bf16 holds no shares of all cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from kosmos import Segments, WithKernels, attend, attends_compiled
from kosmos_vision.lean_timm import timm

Attention: Any = timm.models.vision_transformer.Attention


def in_bf16(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether products of what is of this type, on this device, are in bf16."""
    kind = device.type
    autocast = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.bfloat16
    return autocast or dtype == torch.bfloat16


class PictureAttention(Attention, WithKernels):  # type: ignore[misc]  # timm has no types
    """timm's own, whose call of torch's attention is ours in training in bf16 by kernels."""

    def attends(self, device: torch.device, dtype: torch.dtype) -> bool:
        """Whether it is for inputs of this type on this device; ``fused_attn`` then has to be true."""
        drops = self.training and cast(nn.Dropout, self.attn_drop).p > 0
        wanted = self.by_kernels and torch.is_grad_enabled() and in_bf16(device, dtype) and not drops
        return wanted and attends_compiled(device)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if args or kwargs.get("attn_mask") is not None or not (self.fused_attn and self.attends(x.device, x.dtype)):
            return super().forward(x, *args, **kwargs)  # type: ignore[no-any-return]
        with _Attend():
            return super().forward(x, **kwargs)  # type: ignore[no-any-return]


def attend_by_kernels(model: nn.Module) -> None:
    """Have all attention of a model that is timm's plain one be able to: its weights stay where they are."""
    for module in model.modules():
        if type(module) is Attention:
            module.__class__ = PictureAttention


class _Attend(TorchFunctionMode):
    """In which torch's attention of pictures is ``kosmos.attend``."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        taken = _attended if func is F.scaled_dot_product_attention else func
        return taken(*args, **(kwargs or {}))


def _attended(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: None = None, dropout_p: float = 0.0, is_causal: bool = False
) -> Tensor:
    """[B, heads, N, width of a head] each: B pictures of N tokens."""
    assert attn_mask is None and not dropout_p, dropout_p
    count, _, length, _ = q.shape
    rows = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))
    out: Tensor = attend(*rows, Segments((length,) * count), causal=is_causal, by_kernels=True)
    return out.view(count, length, *out.shape[1:]).transpose(1, 2)
