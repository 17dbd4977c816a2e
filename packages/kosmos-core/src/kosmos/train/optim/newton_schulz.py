"""The orthogonal matrix nearest to another, or nearly: what Muon makes of a momentum.

Five steps of a quintic iteration bring all singular values between 0.7 and 1.2, which serves as well as exactly 1. In
bf16, as everyone takes them: the iteration forgives rounding.

Source: Keller Jordan, "Muon: An optimizer for hidden layers in neural networks" (2024).
"""

from __future__ import annotations

import torch
from torch import Tensor

STEPS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of x, of its cube and of its fifth power."""
EPS = 1e-7


def newton_schulz(matrices: Tensor, steps: int = STEPS) -> Tensor:
    """bf16 [..., m, n] with the singular vectors of ``matrices`` [..., m, n] and singular values around 1.

    There may be none. A matrix of zeros stays one.
    """
    shape = matrices.shape
    x = matrices.to(torch.bfloat16).reshape(-1, *shape[-2:])
    is_tall = shape[-2] > shape[-1]
    x = x.mT if is_tall else x
    norm = torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True, dtype=torch.float32)
    x = x / norm.clamp(min=EPS).to(x.dtype)  # no singular value is above the Frobenius norm
    first, third, fifth = COEFFICIENTS
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth), x, beta=first)
    return (x.mT if is_tall else x).reshape(shape)
