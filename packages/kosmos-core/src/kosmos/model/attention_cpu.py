"""Attention of a packed row on a CPU, as one operation of autograd.

Documents are many small calls. As operations of their own each is cut out of the row, cast, padded and joined again,
forward and backward, which took as long as the short ones themselves.

Letters: T = tokens of the row, H = heads, d = width of a head; L = tokens of a document, with its padding.
"""

from __future__ import annotations

import threading
from math import prod
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kosmos.model.attention_groups import Group, groups_of, tell_padding
from kosmos.model.recurring import MULTIPLE, rounded
from kosmos.model.segments import Segments

PRODUCTS_FROM = 96
"""Longer documents attend in bf16 where the row is multiplied in bf16, shorter ones in fp32. Torch's kernel for the
backward pass is slow in bf16 and is not taken. Forward and backward of 20 documents of 100 tokens, 10 of 197, 5 of 400
and 2 of 800 took 11.6, 14.5, 22.3 and 25.1 ms in fp32 and 11.0, 10.6, 13.2 and 15.8 ms in bf16 (6 heads of 64, two
cores of an Intel Xeon with AMX)."""
BLOCK, SCRATCH = 512, 2**23
"""Queries, and elements, of the shares that are held at once in the backward pass in bf16."""
SPANS = 32
"""Lengths at most that the keys have which blocks of a long document see: each costs kernels of its own. Of 32,767
tokens they kept 1 GB when every block had its own length (AMD EPYC with AVX512-BF16)."""

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def attend_on_cpu(
    q: Tensor, k: Tensor, v: Tensor, segments: Segments, *, causal: bool, scale: float | None, dtype: torch.dtype
) -> Tensor:
    """q, k, v [T, H, d] each of any type, T > 0 -> [T, H, d] in ``dtype``; see ``kosmos.model.attention.attend``."""
    long = PRODUCTS_FROM if dtype == torch.bfloat16 else None
    groups = groups_of(segments, causal=causal, device=q.device, long=long)
    tell_padding(groups, segments, q, v)
    scale = q.shape[2] ** -0.5 if scale is None else scale
    return cast(Tensor, _Attention.apply(q, k, v, groups, causal, scale, dtype))  # type: ignore[no-untyped-call]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, groups: list[Group], causal: bool, scale: float, dtype: torch.dtype
    ) -> Tensor:
        out = torch.empty(q.shape, dtype=dtype)
        saved: list[Tensor] = []
        with torch.autocast("cpu", enabled=False):
            for group in groups:
                kind = _kind(group, dtype)
                parts = [group.take(x, kind) for x in (q, k, v)]
                given, logsumexp = _forward(*parts, 0.0, causal, attn_mask=_bias(group, kind), scale=scale)
                group.put(given, out)
                if kind != torch.bfloat16:
                    saved += [logsumexp] if kind == dtype else [logsumexp, given]
                saved += parts
        ctx.save_for_backward(out, *saved)
        ctx.settings = groups, causal, scale, dtype
        ctx.dtypes = q.dtype, k.dtype, v.dtype
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        groups, causal, scale, dtype = ctx.settings
        out, *rest = ctx.saved_tensors
        saved = iter(rest)
        outs = [torch.empty(gradients[0].shape, dtype=own) for own in ctx.dtypes]
        with torch.autocast("cpu", enabled=False):
            for group in groups:
                kind = _kind(group, dtype)
                upstream = group.take(gradients[0], kind, clear=True)
                bias = _bias(group, kind)
                if kind == torch.bfloat16:
                    found = _products_backward(upstream, [next(saved) for _ in range(3)], bias, causal, scale)
                else:
                    logsumexp = next(saved)
                    given = group.take(out, kind) if kind == dtype else next(saved)
                    parts = [next(saved) for _ in range(3)]
                    found = _backward(upstream, *parts, given, logsumexp, 0.0, causal, attn_mask=bias, scale=scale)
                for x, total in zip(found, outs, strict=True):
                    group.put(x, total)
        return (*outs, None, None, None, None)


def _kind(group: Group, dtype: torch.dtype) -> torch.dtype:
    """What a group attends in."""
    short = group.tokens is not None or group.own <= PRODUCTS_FROM
    return torch.float32 if dtype == torch.bfloat16 and short else dtype


def _bias(group: Group, kind: torch.dtype) -> Tensor | None:
    """[count, 1, 1, L], minus infinity for keys that are padding."""
    if group.seen is None:
        return None
    return torch.zeros(group.seen.shape, dtype=kind).masked_fill_(~group.seen, float("-inf"))


def _products_backward(
    upstream: Tensor, given: list[Tensor], bias: Tensor | None, causal: bool, scale: float
) -> list[Tensor]:
    """Gradients of q, k and v, all [count, H, L, d] in bf16, one document after another."""
    outs = [torch.empty_like(x) for x in given]
    for number, own in enumerate(upstream):
        q, k, v, *changed = (x[number] for x in (*given, *outs))
        _document_backward(own, q, k, v, changed, None if bias is None else bias[0, 0], causal, scale)
    return outs


def _document_backward(
    upstream: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    outs: list[Tensor],
    bias: Tensor | None,
    causal: bool,
    scale: float,
) -> None:
    """Shares are made again, a block of queries at a time, in memory that stays: fresh pages would take longer."""
    heads, length, _ = q.shape
    dq, dk, dv = outs
    rows, step = _rows(heads, length), _span_step(length)
    for low in reversed(range(0, length, rows)):
        high = min(low + rows, length)
        seen = min(rounded(high, step), length) if causal else length
        queries, keys = slice(low, high), slice(0, seen)
        logits, shares = (_scratch(name, heads, high - low, seen) for name in ("logits", "shares"))
        hidden = _hidden(low, high, seen, length) if causal else bias
        start, beta = (logits, 0) if hidden is None else (hidden, 1)
        torch.baddbmm(start, q[:, queries], k[:, keys].mT, beta=beta, alpha=scale, out=logits)
        torch._softmax(logits, -1, False, out=shares)
        torch.bmm(upstream[:, queries], v[:, keys].mT, out=logits)
        changes = torch._softmax_backward_data(logits, shares, -1, torch.bfloat16, grad_input=logits)
        torch.bmm(changes, k[:, keys], out=dq[:, queries]).mul_(scale)
        if high == length:  # the first of the blocks
            torch.bmm(shares.mT, upstream[:, queries], out=dv)
            torch.bmm(changes.mT, q[:, queries], out=dk)
        else:
            dv[:, keys].baddbmm_(shares.mT, upstream[:, queries])
            dk[:, keys].baddbmm_(changes.mT, q[:, queries])
    dk.mul_(scale)


def _rows(heads: int, length: int) -> int:
    """Queries of a block: as many in each of a document's blocks, but for the last."""
    most = max(MULTIPLE, min(BLOCK, SCRATCH // (heads * length)))
    return rounded(-(-length // -(-length // most)))


_kept = threading.local()


def _scratch(name: str, *shape: int) -> Tensor:
    """Memory in bf16 that is there again at the next call of this thread."""
    kept: dict[str, Tensor] = _kept.__dict__
    size = prod(shape)
    if size > SCRATCH:
        return torch.empty(shape, dtype=torch.bfloat16)
    if name not in kept or kept[name].numel() < size:
        kept[name] = torch.empty(size, dtype=torch.bfloat16)
    return kept[name][:size].view(shape)


def _span_step(length: int) -> int:
    """What the keys that a block sees are rounded up to: the least power of two that gives no more than ``SPANS``."""
    return max(MULTIPLE, 1 << (-(-length // SPANS) - 1).bit_length())


def _hidden(low: int, high: int, seen: int, length: int) -> Tensor:
    """[high - low, seen]: minus infinity where a key stands behind the query, which begin with number ``low``."""
    kept: dict[str, Any] = _kept.__dict__
    longest, found = kept.get("hidden", (0, None))
    if longest < length:
        longest, wide = length, length + BLOCK + _span_step(length)
        found = torch.full((BLOCK, wide), float("-inf"), dtype=torch.bfloat16).triu_(longest + 1)
        kept["hidden"] = longest, found
    behind: Tensor = found[: high - low, longest - low : longest - low + seen]
    return behind
