"""Norms that are computed in fp32 (fp64 for fp64), whatever the type of their input.

What they return goes into products: under autocast in its type, else in that of the input. The several products that
read it would each cast it.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from kosmos.model.cpu_kernels import WithKernels, can_take, is_plain, rms_norm
from kosmos.model.precision import exact_type, product_type


class RMSNorm(WithKernels):
    """Root-mean-square norm (arXiv 1910.07467) over the last dimension."""

    def __init__(self, width: int, *, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        exact = exact_type(x)
        weight = self.weight.to(exact)
        if self.by_kernels and can_take(x, self.weight, gives=product_type(x)):
            return rms_norm(x.to(exact), weight, self.eps, product_type(x))
        if is_plain(x):
            given = x.to(exact), weight, self.eps, product_type(x)
            if not torch.is_grad_enabled():  # autograd's way around a function takes as long as the norm of a token
                return _normed(*given)[0]
            return cast(Tensor, _RMSNorm.apply(*given))  # type: ignore[no-untyped-call]
        return F.rms_norm(x.to(exact), weight.shape, weight, self.eps).to(product_type(x))


class LayerNorm(nn.Module):
    """Layer norm with weight and bias over the last dimension."""

    def __init__(self, width: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        exact = exact_type(x)
        weight, bias = self.weight.to(exact), self.bias.to(exact)
        return F.layer_norm(x.to(exact), weight.shape, weight, bias, self.eps).to(product_type(x))


class SummedLayerNorm(nn.LayerNorm):
    """``nn.LayerNorm`` whose weight and bias get gradients that are summed in fp32, in bf16 on a CPU too.

    There PyTorch (2.11 to 2.14) sums them in the input's type, so that a thread's sum of like numbers ends at 256 of
    them: of 8,192 rows a bias got an eighth of its gradient. On a GPU autocast widens the input itself. What the norm
    gives is the same but for rounding; without gradients it is PyTorch's.
    """

    def forward(self, x: Tensor) -> Tensor:
        parts = [p for p in (self.weight, self.bias) if p is not None]
        learns = torch.is_grad_enabled() and any(p.requires_grad for p in parts)
        if not learns or x.device.type != "cpu" or x.dtype not in (torch.bfloat16, torch.float16):
            return super().forward(x)
        weight, bias = (None if p is None else p.float() for p in (self.weight, self.bias))
        return F.layer_norm(x.float(), self.normalized_shape, weight, bias, self.eps).to(x.dtype)


def sum_in_fp32(model: nn.Module) -> None:
    """Make every ``nn.LayerNorm`` of a model a ``SummedLayerNorm``, where it stands."""
    for module in model.modules():
        if type(module) is nn.LayerNorm:
            module.__class__ = SummedLayerNorm


def _normed(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The norm of ``x``, and what it was scaled by before ``weight``."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    scale = (norm.square() / x.shape[-1] + eps).rsqrt()
    return (x * scale).mul_(weight).to(dtype), scale


class _RMSNorm(torch.autograd.Function):
    """On a CPU, where ``F.rms_norm`` is a dozen operations: forward and backward of [2048, 384] in 1.2 ms, not 3.3."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        normed, scale = _normed(x, weight, eps, dtype)
        ctx.save_for_backward(x, weight, scale)
        return normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scale = ctx.saved_tensors
        gradient, width = gradients[0].to(x.dtype), x.shape[-1]
        products = (gradient * x).reshape(-1, width)  # a gradient may have any strides
        of_weight = products.T @ scale.reshape(-1)
        share = (products @ weight).view_as(scale) * scale.pow(3) / -width
        of_x = (gradient * weight).mul_(scale).addcmul_(x, share)
        return of_x, of_weight, None, None
