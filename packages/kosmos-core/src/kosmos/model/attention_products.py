"""Attention by products of matrices, which a CPU in training does faster than PyTorch's own kernels.

Documents of one length stand one after another, each with its heads: [matrices, L, d]. Up to ``WHOLE`` tokens several
are taken at once and what each pays to each is kept for the backward pass; longer ones are taken block of queries by
block, and their shares are computed again.

Letters: N = rows of all matrices, L = rows of a matrix, padding included, d = width of a head.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, library

from kosmos.model.recurring import MULTIPLE, rounded

BLOCK, SCRATCH = 256, 2**23
"""Queries, and elements, of the shares that are held at once, but for the fewest queries, ``MULTIPLE``, of however many
heads times tokens: beyond 131,072 they are more. Blocks of 512 queries took 10 to 25 % longer backward."""
WHOLE = BLOCK
"""Longest documents, of one block, whose shares are kept: 2 MB a layer of 2,048 tokens for each 80 that a document has
(6 heads, bf16)."""
SPANS = 32
"""Lengths at most that the keys have which blocks of a long document see: each costs kernels of its own. Of 32,767
tokens they kept 1 GB when every block had its own length (AMD EPYC with AVX512-BF16)."""


@dataclass(frozen=True, slots=True)
class Part:
    """Matrices of one size, within N rows."""

    begin: int
    count: int
    length: int

    def of(self, x: Tensor) -> Tensor:
        """[N, d] -> [count, L, d]."""
        return x[self.begin : self.begin + self.count * self.length].view(self.count, self.length, x.shape[1])


def parts_of(counts: list[int], lengths: list[int]) -> Iterator[Part]:
    begin = 0
    for count, length in zip(counts, lengths, strict=True):
        yield Part(begin, count, length)
        begin += count * length


# Of its own, so that it is counted and kept as attention, and not as products.
@library.custom_op("kosmos::attention_in_products", mutates_args=())
def attention_in_products(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    counts: list[int],
    lengths: list[int],
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Attention within each matrix.

    Args:
        q, k, v: [N, d] of one type.
        bias: [N] of that type, added to the logits of each key; none where ``causal``.
        counts, lengths: so many matrices of so many rows each, one after another.

    Returns:
        [N, d], and the shares of matrices up to ``WHOLE``, one after another.
    """
    assert bias is None or not causal
    out, kept = torch.empty_like(v), v.new_empty(_size(counts, lengths))
    shares = _Shares(kept)
    for part in parts_of(counts, lengths):
        queries, keys, values, own = (part.of(x) for x in (q, k, v, out))
        given = shares.next(part)
        for block in _blocks(queries, _bias(bias, part), causal):
            found = block.shares(queries, keys, scale, given)
            torch.bmm(found, values[:, block.keys], out=own[:, block.queries])
    return out, kept


@attention_in_products.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    counts: list[int],
    lengths: list[int],
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(v), v.new_empty(_size(counts, lengths))


def products_backward(
    upstream: Tensor,
    given: list[Tensor],
    bias: Tensor | None,
    kept: Tensor,
    counts: list[int],
    lengths: list[int],
    causal: bool,
    scale: float,
) -> list[Tensor]:
    """Gradients of q, k and v, all [N, d]; ``kept`` are the shares of the forward pass."""
    outs = [torch.empty_like(x) for x in given]
    shares = _Shares(kept)
    for part in parts_of(counts, lengths):
        of_part = [part.of(x) for x in (upstream, *given, *outs)]
        _matrices_backward(of_part, _bias(bias, part), shares.next(part), causal, scale)
    for changed in outs[:2]:
        changed.mul_(scale)
    return outs


def _matrices_backward(
    of_part: list[Tensor], bias: Tensor | None, kept: Tensor | None, causal: bool, scale: float
) -> None:
    upstream, q, k, v, dq, dk, dv = of_part
    for number, block in enumerate(_blocks(q, bias, causal)):
        queries, keys = block.queries, block.keys
        shares = block.shares(q, k, scale) if kept is None else kept
        changes = torch.bmm(upstream[:, queries], v[:, keys].mT, out=block.scratch("logits", q))
        torch._softmax_backward_data(changes, shares, -1, q.dtype, grad_input=changes)
        torch.bmm(changes, k[:, keys], out=dq[:, queries])
        if number == 0:  # the last queries, which see all keys
            torch.bmm(shares.mT, upstream[:, queries], out=dv)
            torch.bmm(changes.mT, q[:, queries], out=dk)
        else:
            dv[:, keys].baddbmm_(shares.mT, upstream[:, queries])
            dk[:, keys].baddbmm_(changes.mT, q[:, queries])


def _size(counts: list[int], lengths: list[int]) -> int:
    return sum(count * length**2 for count, length in zip(counts, lengths, strict=True) if length <= WHOLE)


class _Shares:
    """Those that are kept, part by part."""

    def __init__(self, kept: Tensor) -> None:
        self._kept, self._at = kept, 0

    def next(self, part: Part) -> Tensor | None:
        """[count, L, L]; None of matrices of which they are not kept."""
        if part.length > WHOLE:
            return None
        size = part.count * part.length**2
        self._at += size
        return self._kept[self._at - size : self._at].view(part.count, part.length, part.length)


def _bias(bias: Tensor | None, part: Part) -> Tensor | None:
    """[count, 1, L]."""
    return None if bias is None else part.of(bias[:, None]).mT


class _Block(NamedTuple):
    """Queries of some matrices, and the keys that they see. What it computes lies in memory that stays, until the next
    asks for it: fresh pages would take longer."""

    queries: slice
    keys: slice
    hidden: Tensor | None
    """[queries, keys] or [matrices, 1, keys]: minus infinity where a key is not seen."""

    def shares(self, q: Tensor, k: Tensor, scale: float, out: Tensor | None = None) -> Tensor:
        """q, k [matrices, L, d] -> softmax [matrices, queries, keys], in ``out`` where there is one."""
        logits, shares = self.scratch("logits", q), self.scratch("shares", q) if out is None else out
        start, beta = (logits, 0) if self.hidden is None else (self.hidden, 1)
        torch.baddbmm(start, q[:, self.queries], k[:, self.keys].mT, beta=beta, alpha=scale, out=logits)
        return torch._softmax(logits, -1, False, out=shares)

    def scratch(self, name: str, q: Tensor) -> Tensor:
        """[matrices, queries, keys] of anything."""
        return _scratch(name, q.dtype, len(q), self.queries.stop - self.queries.start, self.keys.stop)


def _blocks(q: Tensor, bias: Tensor | None, causal: bool) -> Iterator[_Block]:
    """Of matrices with queries [matrices, L, d], their last queries first."""
    count, length, _ = q.shape
    rows, step = length if length <= WHOLE else _rows(count, length), _span_step(length)
    for low in reversed(range(0, length, rows)):
        high = min(low + rows, length)
        seen = min(rounded(high, step), length) if causal else length
        yield _Block(slice(low, high), slice(0, seen), _hidden(low, high, seen, q) if causal else bias)


def _rows(count: int, length: int) -> int:
    """Queries of a block: as many in each of a matrix's blocks, but for the last."""
    most = max(MULTIPLE, min(BLOCK, SCRATCH // (count * length)))
    return rounded(-(-length // -(-length // most)))


_kept = threading.local()


def _scratch(name: str, dtype: torch.dtype, *shape: int) -> Tensor:
    """Memory that is there again at the next call of this thread."""
    kept: dict[Any, Tensor] = _kept.__dict__.setdefault("scratch", {})
    size = prod(shape)
    if size > SCRATCH:
        return torch.empty(shape, dtype=dtype)
    if (name, dtype) not in kept or kept[name, dtype].numel() < size:
        kept[name, dtype] = torch.empty(size, dtype=dtype)
    return kept[name, dtype][:size].view(shape)


def _span_step(length: int) -> int:
    """What the keys that a block sees are rounded up to: the least power of two that gives no more than ``SPANS``."""
    return max(MULTIPLE, 1 << (-(-length // SPANS) - 1).bit_length())


def _hidden(low: int, high: int, seen: int, q: Tensor) -> Tensor:
    """[high - low, seen]: minus infinity where a key stands behind the query, which begin with number ``low``."""
    kept: dict[Any, tuple[int, Tensor]] = _kept.__dict__.setdefault("hidden", {})
    longest, found = kept.get(q.dtype, (0, q))
    if longest < q.shape[1]:
        longest = q.shape[1]
        wide = longest + BLOCK + _span_step(longest)
        found = torch.full((BLOCK, wide), float("-inf"), dtype=q.dtype).triu_(longest + 1)
        kept[q.dtype] = longest, found
    behind: Tensor = found[: high - low, longest - low : longest - low + seen]
    return behind
