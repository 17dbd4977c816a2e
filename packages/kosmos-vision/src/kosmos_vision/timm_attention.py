"""The attention of timm's vision transformers by Kosmos's own, which on a CPU in bf16 holds no shares of all cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from timm.layers import Attention
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from kosmos import Segments, WithKernels, attend, attends_compiled


class PictureAttention(Attention, WithKernels):  # type: ignore[misc]  # timm has no types
    """timm's own, whose call of torch's attention is ours in training by kernels."""

    def attends(self, device: torch.device) -> bool:
        """Whether it is, as ``fused_attn`` then has to be."""
        drops = self.training and cast(nn.Dropout, self.attn_drop).p > 0
        wanted = self.by_kernels and torch.is_grad_enabled() and not drops
        return wanted and attends_compiled(device)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not (self.fused_attn and self.attends(x.device)):
            return super().forward(x, *args, **kwargs)  # type: ignore[no-any-return]
        with _Attend():
            return super().forward(x, *args, **kwargs)  # type: ignore[no-any-return]


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
        own = kwargs or {}
        if func is F.scaled_dot_product_attention and own.get("attn_mask") is None and not own.get("is_causal"):
            return _attended(*args)
        return func(*args, **own)


def _attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """[B, heads, N, width of a head] each: B pictures of N tokens."""
    count, _, length, _ = q.shape
    rows = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))
    out: Tensor = attend(*rows, Segments((length,) * count), causal=False, by_kernels=True)
    return out.view(count, length, *out.shape[1:]).transpose(1, 2)
