"""Positions by rotation: RoPE, and xPos, which also lets far tokens fade.

Letters: T = tokens, H = heads, d = width of a head.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kosmos.errors import ConfigError
from kosmos.model import cpu_kernels
from kosmos.model.cpu_kernels import can_take, is_plain

XPOS_BASE = 512.0
"""Tokens over which a factor zeta is lost in xPos."""
XPOS_LONGEST = 32_768
"""Tokens of a document that xPos holds: its scales reach exp(80) there, and fp32 and bf16 end at exp(88)."""


class Rotation(NamedTuple):
    """Cosines and sines [T, 1, d / 2] for queries and for keys (the same for RoPE)."""

    query: tuple[Tensor, Tensor]
    key: tuple[Tensor, Tensor]


def rotation(
    position_ids: Tensor,
    head_width: int,
    kind: Literal["rope", "xpos"],
    *,
    base: float,
    middle: int,
    dtype: torch.dtype = torch.float32,
) -> Rotation:
    """Tables for the positions of a row, which may start again at each document.

    xPos multiplies the query at position n by zeta^(n / XPOS_BASE) and the key at m by zeta^(-m / XPOS_BASE), so
    that a logit carries zeta^((n - m) / XPOS_BASE), with zeta_i = (i + 0.4 d) / (1.4 d) at feature i = 0, 2, ..

    Args:
        position_ids: int [T].
        head_width: d, even.
        kind: ``"rope"`` or ``"xpos"``.
        base: of the wavelengths.
        middle: subtracted from the positions in xPos' exponents. It cancels in every logit and keeps the scales
            near one; it has to be the same for all keys and queries that meet.
        dtype: fp32 or fp64.

    Source: RoPE arXiv 2104.09864; xPos arXiv 2212.10554, compared with microsoft/torchscale, which rotates
    neighbouring features where this rotates halves: the same up to the order of a head's features.
    """
    feature = torch.arange(0, head_width, 2, device=position_ids.device, dtype=dtype)
    position = position_ids.to(dtype)[:, None]
    angle = position * base ** (-feature / head_width)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    if kind == "rope":
        return Rotation((cos, sin), (cos, sin))
    zeta = (feature + 0.4 * head_width) / (1.4 * head_width)
    scale = (zeta.log() * ((position - middle) / XPOS_BASE)).exp()[:, None]
    return Rotation((cos * scale, sin * scale), (cos / scale, sin / scale))


def rotate(x: Tensor, table: tuple[Tensor, Tensor], *, by_kernels: bool = False) -> Tensor:
    """Rotate the two halves of each head: [T, H, d] -> [T, H, d], computed in the table's type.

    On a CPU the result has that type, since attention wants short documents in it; on a GPU, whose attention takes what
    products take, that of ``x``: cast behind the compiled part of a block, it would be written and read once more. So
    it is ``by_kernels``, where they can (``kosmos.model.cpu_kernels``).
    """
    cos, sin = table
    if by_kernels and can_take(x, cos):
        return cpu_kernels.rotate(x, cos, sin)
    if is_plain(x):
        if not torch.is_grad_enabled():  # autograd's way around a function takes as long as the rotation of a token
            return _rotated(x, cos, sin)
        return cast(Tensor, _Rotate.apply(x, cos, sin))  # type: ignore[no-untyped-call]
    a, b = x.chunk(2, dim=-1)
    out = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
    return out if x.device.type == "cpu" else out.to(x.dtype)


class _Rotate(torch.autograd.Function):
    """On a CPU: half as many passes over memory, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.dtype = x.dtype
        return _rotated(x, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return _rotated(gradients[0], cos, -sin).to(ctx.dtype), None, None


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    out = torch.empty(x.shape, dtype=cos.dtype, device=x.device)
    (a, b), (first, second) = (y.chunk(2, dim=-1) for y in (x.to(cos.dtype), out))
    torch.mul(a, cos, out=first).addcmul_(b, sin, value=-1)
    torch.mul(b, cos, out=second).addcmul_(a, sin)
    return out


def check_length(kind: Literal["rope", "xpos"], longest: int) -> None:
    """Raises ConfigError where xPos would overflow."""
    if kind == "xpos" and longest > XPOS_LONGEST:
        raise ConfigError(f"positions xpos: a document of {longest} tokens, at most {XPOS_LONGEST}; use rope")
