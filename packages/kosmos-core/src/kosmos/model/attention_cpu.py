"""Attention of a packed row on a CPU, as one operation of autograd.

Documents are many small calls. As operations of their own each is cut out of the row, cast, padded and joined again,
forward and backward, which took as long as the short ones themselves.

Letters: T = tokens of the row, H = heads, d = width of a head; L = tokens of a document, with its padding.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, library
from torch.autograd.function import once_differentiable

from kosmos.model.attention_groups import Group, Groups, groups_of, tell_padding
from kosmos.model.recurring import MULTIPLE, rounded
from kosmos.model.segments import Segments

PRODUCTS_FROM = 128
"""Longer documents attend by products in bf16 where the row is multiplied in bf16, shorter ones by torch's kernels in
fp32, as those for bf16 are slow. Forward and backward of 15 documents of 128 tokens, 10 of 197, 5 of 400 and 2 of 800
took 15.9, 20.6, 32.7 and 37.6 ms in fp32 and 20.5, 21.7, 24.2 and 28.1 ms by products (6 heads of 64, two cores of an
AMD EPYC with AVX512-BF16); with AMX products were ahead from 100 tokens on."""
BLOCK, SCRATCH = 256, 2**23
"""Queries, and elements, of the shares that are held at once. Blocks of 512 took 10 to 25 % longer backward."""
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
    assert q.shape == k.shape == v.shape, (q.shape, k.shape, v.shape)
    settings = _Settings(causal, q.shape[2] ** -0.5 if scale is None else scale, dtype, torch.is_grad_enabled())
    return cast(Tensor, _Attention.apply(q, k, v, groups, settings))  # type: ignore[no-untyped-call]


class _Settings(NamedTuple):
    causal: bool
    scale: float
    dtype: torch.dtype
    trains: bool
    """Whether gradients are wanted. Else torch's kernel is taken in bf16 too, whose logits are not rounded."""


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, groups: Groups, settings: _Settings) -> Tensor:
        causal, scale, dtype, trains = settings
        rows = [groups.spread(x) for x in (q, k, v)]
        out = torch.empty(rows[0].shape, dtype=dtype)
        saved: list[Tensor] = []
        with torch.autocast("cpu", enabled=False):
            for group in groups.each:
                kind = _kind(group, dtype)
                parts, bias = [group.of(x).to(kind) for x in rows], _bias(group, kind)
                if kind == torch.bfloat16 and trains:
                    given = attention_in_products(*parts, bias, causal, scale)
                else:
                    given, logsumexp = _forward(*parts, 0.0, causal, attn_mask=bias, scale=scale)
                    saved += [given, logsumexp]
                group.of(out).copy_(given)
                saved += parts
        ctx.save_for_backward(*saved)
        ctx.settings = groups, settings
        ctx.dtypes = q.dtype, k.dtype, v.dtype
        return groups.gathered(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        groups, (causal, scale, dtype, _) = ctx.settings
        saved = iter(ctx.saved_tensors)
        upstream = groups.spread(gradients[0], clear=True)
        outs = [torch.empty(upstream.shape, dtype=own) for own in ctx.dtypes]
        with torch.autocast("cpu", enabled=False):
            for group in groups.each:
                kind = _kind(group, dtype)
                own, bias = group.of(upstream).to(kind), _bias(group, kind)
                if kind == torch.bfloat16:
                    found = _products_backward(own, [next(saved) for _ in range(3)], bias, causal, scale)
                else:
                    given, logsumexp, *parts = (next(saved) for _ in range(5))
                    found = _backward(own, *parts, given, logsumexp, 0.0, causal, attn_mask=bias, scale=scale)
                for x, total in zip(found, outs, strict=True):
                    group.of(total).copy_(x)
        return (*(groups.gathered(x) for x in outs), None, None)


def _kind(group: Group, dtype: torch.dtype) -> torch.dtype:
    """What a group attends in."""
    short = group.own is None or group.own <= PRODUCTS_FROM
    return torch.float32 if dtype == torch.bfloat16 and short else dtype


def _bias(group: Group, kind: torch.dtype) -> Tensor | None:
    """[count, 1, 1, L], minus infinity for keys that are padding."""
    if group.seen is None:
        return None
    return torch.zeros(group.seen.shape, dtype=kind).masked_fill_(~group.seen, float("-inf"))


# Of its own, so that it is counted and kept as attention, and not as products.
@library.custom_op("kosmos::attention_in_products", mutates_args=())
def attention_in_products(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool, scale: float) -> Tensor:
    """Of q, k and v, all [count, H, L, d] in bf16, one document after another; ``bias`` is [1, 1, 1, L]."""
    count, heads, length, _ = q.shape
    assert bias is None or bias.shape == (1, 1, 1, length), bias.shape
    out = v.new_empty(count, length, heads, v.shape[3]).transpose(1, 2)
    for queries, keys, values, own in zip(q, k, v, out, strict=True):
        for block in _blocks(queries, None if bias is None else bias[0, 0], causal):
            torch.bmm(block.shares(queries, keys, scale), values[:, block.keys], out=own[:, block.queries])
    return out


@attention_in_products.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool, scale: float) -> Tensor:
    return v.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[3]).transpose(1, 2)


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
    dq, dk, dv = outs
    for number, block in enumerate(_blocks(q, bias, causal)):
        queries, keys = block.queries, block.keys
        shares = block.shares(q, k, scale)
        changes = torch.bmm(upstream[:, queries], v[:, keys].mT, out=block.scratch("logits", q))
        torch._softmax_backward_data(changes, shares, -1, torch.bfloat16, grad_input=changes)
        torch.bmm(changes, k[:, keys], out=dq[:, queries]).mul_(scale)
        if number == 0:  # the last queries, which see all keys
            torch.bmm(shares.mT, upstream[:, queries], out=dv)
            torch.bmm(changes.mT, q[:, queries], out=dk)
        else:
            dv[:, keys].baddbmm_(shares.mT, upstream[:, queries])
            dk[:, keys].baddbmm_(changes.mT, q[:, queries])
    dk.mul_(scale)


class _Block(NamedTuple):
    """Queries of a document, and the keys that they see. What it computes lies in memory that stays, until the next
    asks for it: fresh pages would take longer."""

    queries: slice
    keys: slice
    hidden: Tensor | None
    """[queries, keys] or [1, keys]: minus infinity where a key is not seen."""

    def shares(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        """q, k [H, L, d] -> softmax [H, queries, keys]."""
        logits, shares = (self.scratch(name, q) for name in ("logits", "shares"))
        start, beta = (logits, 0) if self.hidden is None else (self.hidden, 1)
        torch.baddbmm(start, q[:, self.queries], k[:, self.keys].mT, beta=beta, alpha=scale, out=logits)
        return torch._softmax(logits, -1, False, out=shares)

    def scratch(self, name: str, q: Tensor) -> Tensor:
        """[H, queries, keys] of anything."""
        return _scratch(name, len(q), self.queries.stop - self.queries.start, self.keys.stop)


def _blocks(q: Tensor, bias: Tensor | None, causal: bool) -> Iterator[_Block]:
    """Of a document with queries [H, L, d], its last queries first."""
    heads, length, _ = q.shape
    rows, step = _rows(heads, length), _span_step(length)
    for low in reversed(range(0, length, rows)):
        high = min(low + rows, length)
        seen = min(rounded(high, step), length) if causal else length
        yield _Block(slice(low, high), slice(0, seen), _hidden(low, high, seen, length) if causal else bias)


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
