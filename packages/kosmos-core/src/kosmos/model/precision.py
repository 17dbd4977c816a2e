"""In which types numbers are computed: what products take, and what has to be exact beside them."""

from __future__ import annotations

import torch
from torch import Tensor


def exact_type(x: Tensor) -> torch.dtype:
    """Of norms, positions and losses of ``x``: fp32, or fp64 for fp64."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def product_type(x: Tensor) -> torch.dtype:
    """Of products with ``x``, and of what goes into several of them: that of autocast where it is on, else its own."""
    if torch.is_autocast_enabled(x.device.type) and x.dtype != torch.float64:
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype
