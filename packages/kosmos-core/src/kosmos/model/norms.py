"""Norms that are computed in fp32 (fp64 for fp64), whatever the type of their input."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """Root-mean-square norm (arXiv 1910.07467) over the last dimension; returns the type of its input."""

    def __init__(self, width: int, *, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        exact = _exact(x)
        return F.rms_norm(x.to(exact), self.weight.shape, self.weight.to(exact), self.eps).to(x.dtype)


class LayerNorm(nn.Module):
    """Layer norm with weight and bias over the last dimension; returns the type of its input."""

    def __init__(self, width: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        exact = _exact(x)
        weight, bias = self.weight.to(exact), self.bias.to(exact)
        return F.layer_norm(x.to(exact), weight.shape, weight, bias, self.eps).to(x.dtype)


def _exact(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32
