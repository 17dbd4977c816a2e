"""Attention of a packed row on a CPU, as one operation of autograd.

Documents are many small calls. As operations of their own each is cut out of the row, cast, padded and joined again,
forward and backward, which took as long as the short ones themselves.

Letters: T = tokens of the row, H = heads, d = width of a head; L = tokens of a document, P = places of all, with their
padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kosmos.model.attention_compiled import attend_compiled, can_attend
from kosmos.model.attention_groups import PLAIN, Group, Groups, Sharing, groups_of, tell_padding
from kosmos.model.attention_products import SHORT, attention_in_products, products_backward
from kosmos.model.cpu_kernels import knows
from kosmos.model.segments import Segments

FINE = 128
"""Documents of more tokens attend by products in bf16 alone: in fp32 torch's kernel is as fast, and keeps no shares."""
_STEP, _PAIRS = 16, 2**17
PRODUCTS = {
    torch.bfloat16: Sharing(short=SHORT, step=_STEP, long=FINE, products="all", pairs=_PAIRS),
    torch.float32: Sharing(short=FINE, step=_STEP, products="short", pairs=_PAIRS),
    torch.float64: Sharing(short=FINE, step=_STEP, products="short", pairs=_PAIRS),
}
"""Which documents share products in training."""
SCORES = Sharing(PLAIN.short, PLAIN.step, long=FINE)
"""Which share torch's kernel in bf16. It computes those up to ``FINE`` tokens in fp32, as it has a kernel for every new
length in bf16, and is slow at short ones."""

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def attend_on_cpu(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    segments: Segments,
    *,
    causal: bool,
    scale: float | None,
    dtype: torch.dtype,
    by_kernels: bool = False,
) -> Tensor:
    """q, k, v [T, H, d] each of any type, T > 0 -> [T, H, d] in ``dtype``; see ``kosmos.model.attention.attend``.

    By C++, or in training by products; else by torch's kernel. Neither C++ nor that rounds the logits.
    """
    assert q.shape == k.shape == v.shape, (q.shape, k.shape, v.shape)
    trains, heads = torch.is_grad_enabled() and dtype in PRODUCTS, q.shape[1]
    scale = q.shape[2] ** -0.5 if scale is None else scale
    if by_kernels and can_attend(q, k, v, dtype=dtype, scale=scale):
        return attend_compiled(q, k, v, segments, causal=causal, scale=scale, dtype=dtype)
    sharing = PRODUCTS[dtype] if trains else SCORES if dtype == torch.bfloat16 else PLAIN
    groups = groups_of(segments, causal=causal, device=q.device, sharing=sharing, heads=heads)
    tell_padding(groups, segments, q, v)
    settings = _Settings(causal, scale, dtype, _products_of(groups, heads), by_kernels and knows(dtype))
    return cast(Tensor, _Attention.apply(q, k, v, groups, settings))  # type: ignore[no-untyped-call]


class _Products(NamedTuple):
    """What the first groups of a row are for ``attention_in_products``."""

    groups: int
    rows: int
    """Their places, of all heads."""
    counts: list[int]
    lengths: list[int]


class _Settings(NamedTuple):
    causal: bool
    scale: float
    dtype: torch.dtype
    products: _Products
    by_kernels: bool


def _products_of(groups: Groups, heads: int) -> _Products:
    sizes: list[tuple[int, int]] = []
    taken = [group for group in groups.each if group.products]
    for group in taken:
        # Of a run one by one: together they would be shapes of their own.
        sizes += [(group.count * heads, group.length)] if group.own is None else [(heads, group.length)] * group.count
    return _Products(len(taken), sum(n * m for n, m in sizes), [n for n, _ in sizes], [m for _, m in sizes])


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, groups: Groups, settings: _Settings) -> Tensor:
        causal, scale, dtype, products, by_kernels = settings
        heads = q.shape[1]
        rows = [groups.spread(x.reshape(-1, x.shape[2])) for x in (q, k, v)]
        out: list[Tensor] = []
        saved: list[Tensor] = []
        with torch.autocast("cpu", enabled=False):
            if products.groups:
                parts, bias = [x[: products.rows].to(dtype) for x in rows], _bias_of_rows(groups, settings)
                given, shares = attention_in_products(
                    *parts, bias, products.counts, products.lengths, causal, scale, by_kernels
                )
                out.append(given)
                saved += [*parts, shares]
            for group in groups.each[products.groups :]:
                kind = _kind(group, dtype)
                parts, bias = [group.of(x, heads).to(kind) for x in rows], _bias(group, kind)
                given, logsumexp = _forward(*parts, 0.0, causal, attn_mask=bias, scale=scale)
                out.append(_rows(given, dtype))
                saved += [*parts, given, logsumexp]
        ctx.save_for_backward(*saved)
        ctx.settings = groups, settings, heads
        ctx.dtypes = q.dtype, k.dtype, v.dtype
        return groups.gathered(_joined(out)).view(q.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        groups, settings, heads = ctx.settings
        causal, scale, dtype, products, by_kernels = settings
        saved = iter(ctx.saved_tensors)
        (gradient,) = gradients
        upstream = groups.spread(gradient.reshape(-1, gradient.shape[2]), clear=True)
        outs: list[list[Tensor]] = []
        with torch.autocast("cpu", enabled=False):
            if products.groups:
                parts, bias = [next(saved) for _ in range(3)], _bias_of_rows(groups, settings)
                own, shares = upstream[: products.rows].to(dtype), next(saved)
                outs.append(
                    products_backward(
                        own, parts, bias, shares, products.counts, products.lengths, causal, scale, by_kernels
                    )
                )
            for group in groups.each[products.groups :]:
                kind = _kind(group, dtype)
                own, bias = group.of(upstream, heads).to(kind), _bias(group, kind)
                *parts, given, logsumexp = (next(saved) for _ in range(5))
                found = _backward(own, *parts, given, logsumexp, 0.0, causal, attn_mask=bias, scale=scale)
                outs.append([_rows(x, dtype) for x in found])
        whole = (groups.gathered(_joined(x)).view(gradient.shape) for x in zip(*outs, strict=True))
        return (*(x.to(own) for x, own in zip(whole, ctx.dtypes, strict=True)), None, None)


def _rows(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Of torch's kernel, [count, H, L, d] -> [count L H, d]."""
    return x.to(dtype).transpose(1, 2).reshape(-1, x.shape[3])


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _bias_of_rows(groups: Groups, settings: _Settings) -> Tensor | None:
    """For products, minus infinity for keys that are padding, where no causal mask hides them."""
    if settings.causal or groups.empty is None:
        return None
    rows = settings.products.rows
    count = int(torch.searchsorted(groups.empty, rows))  # they rise
    return torch.zeros(rows, dtype=settings.dtype, device="cpu").index_fill_(0, groups.empty[:count], float("-inf"))


def _kind(group: Group, dtype: torch.dtype) -> torch.dtype:
    """What torch's kernel takes."""
    short = group.own is None or group.own <= FINE
    return torch.float32 if dtype == torch.bfloat16 and short else dtype


def _bias(group: Group, kind: torch.dtype) -> Tensor | None:
    """[count, 1, 1, L], minus infinity for keys that are padding."""
    if group.seen is None:
        return None
    return torch.zeros(group.seen.shape, dtype=kind, device="cpu").masked_fill_(~group.seen, float("-inf"))
