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

from kosmos.model.cpu_kernels import softmax as softmax_of
from kosmos.model.cpu_kernels import softmax_backward_
from kosmos.model.recurring import MULTIPLE, rounded

SHORT = 256
"""Longest documents that share products with others of their length."""
BLOCK, SCRATCH = 512 if torch.cpu.get_capabilities().get("amx_bf16") else SHORT, 2**23
"""Queries, and elements, of the shares that are held at once, but for the fewest queries, ``MULTIPLE``, of however many
heads times tokens: beyond 131,072 they are more. Blocks of 512 queries took 10 to 25 % longer backward, but with AMX a
quarter less, since a call costs more there than what its product computes behind the mask."""
WHOLE = BLOCK
"""Longest documents, of one block, whose shares are kept: 2 MB a layer of 2,048 tokens for each 80 that a document has
(6 heads, bf16)."""
SPANS = 32
"""Lengths at most that the keys have which blocks of a long document see: each costs kernels of its own. Of 32,767
tokens they kept 1 GB when every block had its own length (AMD EPYC with AVX512-BF16)."""


@dataclass(frozen=True, slots=True)
class Part:
    """Matrices of one size, within N rows. Views of it are one call each: a step asks for a thousand."""

    begin: int
    count: int
    length: int

    def of(self, x: Tensor, rows: slice) -> Tensor:
        """[N, d] -> [count, rows, d]: those rows of each matrix."""
        width = x.shape[1]
        size = self.count, rows.stop - rows.start, width
        return x.as_strided(size, (self.length * width, width, 1), self._first(x, rows))

    def turned(self, x: Tensor, rows: slice) -> Tensor:
        """[N, d] -> [count, d, rows]."""
        width = x.shape[1]
        size = self.count, width, rows.stop - rows.start
        return x.as_strided(size, (self.length * width, 1, width), self._first(x, rows))

    def _first(self, x: Tensor, rows: slice) -> int:
        begin: int = x.storage_offset() + (self.begin + rows.start) * x.shape[1]
        return begin


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
    by_kernels: bool,
) -> tuple[Tensor, Tensor]:
    """Attention within each matrix.

    Args:
        q, k, v: [N, d] of one type, contiguous.
        bias: [N] of that type, added to the logits of each key; none where ``causal``.
        counts, lengths: so many matrices of so many rows each, one after another.
        by_kernels: softmax is that of ``kosmos.model.cpu_kernels``, which computes nothing of what the mask hides.

    Returns:
        [N, d], and the shares of matrices up to ``WHOLE``, one after another.
    """
    assert bias is None or not causal
    assert all(x.is_contiguous() for x in (q, k, v))
    out, kept = torch.empty_like(v), v.new_empty(_size(counts, lengths))
    shares, softmax = _Shares(kept), _Softmax(scale, causal, bias, by_kernels)
    for part in parts_of(counts, lengths):
        given = shares.next(part)
        for block in _blocks(part, causal):
            found = softmax(block, q, k, given)
            torch.bmm(found, part.of(v, block.keys), out=part.of(out, block.queries))
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
    by_kernels: bool,
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
    by_kernels: bool,
) -> list[Tensor]:
    """Gradients of q, k and v, all contiguous [N, d]; ``kept`` are the shares of the forward pass."""
    assert all(x.is_contiguous() for x in (upstream, *given))
    outs = [torch.empty_like(x) for x in given]
    shares, softmax = _Shares(kept), _Softmax(scale, causal, bias, by_kernels)
    for part in parts_of(counts, lengths):
        _matrices_backward(part, [upstream, *given, *outs], shares.next(part), causal, softmax)
    for changed in outs[:2] if not by_kernels else ():
        changed.mul_(scale)
    return outs


def _matrices_backward(part: Part, rows: list[Tensor], kept: Tensor | None, causal: bool, softmax: _Softmax) -> None:
    upstream, q, k, v, dq, dk, dv = rows
    for number, block in enumerate(_blocks(part, causal)):
        queries, keys = block.queries, block.keys
        shares = softmax(block, q, k) if kept is None else kept
        given, asked = part.of(upstream, queries), part.of(q, queries)
        changes = torch.bmm(given, part.turned(v, keys), out=block.scratch("logits", q.dtype))
        softmax.backward(block, changes, shares)
        torch.bmm(changes, part.of(k, keys), out=part.of(dq, queries))
        of_values, of_keys = part.of(dv, keys), part.of(dk, keys)
        if number == 0:  # the last queries, which see all keys
            torch.bmm(shares.mT, given, out=of_values)
            torch.bmm(changes.mT, asked, out=of_keys)
        else:
            of_values.baddbmm_(shares.mT, given)
            of_keys.baddbmm_(changes.mT, asked)


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


class _Block(NamedTuple):
    """Queries of the matrices of a part, and the keys that they see. What it computes lies in memory that stays, until
    the next asks for it: fresh pages would take longer."""

    part: Part
    queries: slice
    keys: slice

    def scratch(self, name: str, dtype: torch.dtype) -> Tensor:
        """[matrices, queries, keys] of anything."""
        return _scratch(name, dtype, self.part.count, self.queries.stop - self.queries.start, self.keys.stop)


def _blocks(part: Part, causal: bool) -> Iterator[_Block]:
    """The last queries first."""
    count, length = part.count, part.length
    rows, step = length if length <= WHOLE else _rows(count, length), _span_step(length)
    for low in reversed(range(0, length, rows)):
        high = min(low + rows, length)
        seen = min(rounded(high, step), length) if causal else length
        yield _Block(part, slice(low, high), slice(0, seen))


class _Softmax(NamedTuple):
    """What each query of a block pays to each key."""

    scale: float
    causal: bool
    bias: Tensor | None
    """[N], where not ``causal``."""
    by_kernels: bool

    def __call__(self, block: _Block, q: Tensor, k: Tensor, out: Tensor | None = None) -> Tensor:
        """q, k [N, d] -> [matrices, queries, keys], in ``out`` where there is one."""
        queries, keys = block.part.of(q, block.queries), block.part.turned(k, block.keys)
        logits = block.scratch("logits", q.dtype)
        shares = block.scratch("shares", q.dtype) if out is None else out
        if self.by_kernels:
            torch.bmm(queries, keys, out=logits)
            return softmax_of(logits, self._bias(block), self.scale, self._first(block), shares)
        hidden = _hidden(block, q.dtype) if self.causal else self._bias(block)
        start, beta = (logits, 0) if hidden is None else (hidden, 1)
        torch.baddbmm(start, queries, keys, beta=beta, alpha=self.scale, out=logits)
        return torch._softmax(logits, -1, False, out=shares)

    def backward(self, block: _Block, changes: Tensor, shares: Tensor) -> None:
        """Make the gradients of shares those of logits: by kernels as q and k made them, else after their scale."""
        if self.by_kernels:
            softmax_backward_(changes, shares, self.scale, self._first(block))
        else:
            torch._softmax_backward_data(changes, shares, -1, changes.dtype, grad_input=changes)

    def _first(self, block: _Block) -> int | None:
        return block.queries.start if self.causal else None

    def _bias(self, block: _Block) -> Tensor | None:
        """[matrices, 1, keys]: minus infinity where a key is not seen."""
        return None if self.bias is None else block.part.turned(self.bias[:, None], block.keys)


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
        return torch.empty(shape, dtype=dtype, device="cpu")
    if (name, dtype) not in kept or kept[name, dtype].numel() < size:
        kept[name, dtype] = torch.empty(size, dtype=dtype, device="cpu")
    return kept[name, dtype].as_strided(shape, (shape[1] * shape[2], shape[2], 1))


def _span_step(length: int) -> int:
    """What the keys that a block sees are rounded up to: the least power of two that gives no more than ``SPANS``."""
    return max(MULTIPLE, 1 << (-(-length // SPANS) - 1).bit_length())


def _hidden(block: _Block, dtype: torch.dtype) -> Tensor:
    """[queries, keys]: minus infinity where a key stands behind the query."""
    low, rows = block.queries.start, block.queries.stop - block.queries.start
    kept: dict[Any, tuple[int, Tensor]] = _kept.__dict__.setdefault("hidden", {})
    longest, found = kept.get(dtype, (0, None))
    if found is None or longest < block.part.length:
        longest = block.part.length
        wide = longest + BLOCK + _span_step(longest)
        found = torch.full((BLOCK, wide), float("-inf"), dtype=dtype, device="cpu").triu_(longest + 1)
        kept[dtype] = longest, found
    return found[:rows, longest - low : longest - low + block.keys.stop]
