"""Cross entropy of logits and its gradient as one Triton kernel, which reads logits twice and writes them once.

Imported only where there is a GPU and Triton (or its interpreter, ``TRITON_INTERPRET=1``, on a CPU).

Letters: c = positions of a chunk, V = vocabulary.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor, library

from kosmos.runtime.devices import current

WIDTH = 4096
"""Logits that a program looks at at once: 16 a thread."""

ALIGNED = 16
"""Rows of logits begin at multiples of so many elements: 32 bytes of bf16, which loads and products of a GPU want."""

_LEAST = tl.constexpr(-1e38)


def padded_width(vocabulary: int) -> int:
    """From one row of logits to the next."""
    return -(-vocabulary // ALIGNED) * ALIGNED


@library.custom_op("kosmos::cross_entropy_", mutates_args=("logits", "losses", "predictions", "added"))
def cross_entropy_(
    logits: Tensor,
    targets: Tensor,
    losses: Tensor,
    predictions: Tensor | None,
    gradient: bool,
    added: Tensor | None,
    z: float,
) -> None:
    """Losses of positions and, in place of their logits, the gradients of the losses' sum.

    Args:
        logits: [c, V], fp32, bf16 or fp16, rows ``padded_width`` apart or next to each other. What is between them may
            be written.
        targets: int64 [c].
        losses: fp32 [c], written.
        predictions: int64 [c], written: the likeliest tokens.
        gradient: whether gradients are wanted; else logits stay.
        added: fp32 [c], written: ``z`` times the square of each logsumexp, of which there are gradients then too.
    """
    rows, vocabulary = logits.shape
    width = padded_width(vocabulary)
    assert logits.stride() in ((vocabulary, 1), (width, 1)), (logits.shape, logits.stride())
    assert len(targets) == len(losses) == rows, (logits.shape, targets.shape, losses.shape)
    wide = logits.stride(0) == width
    with current(logits.device):
        _cross_entropy_kernel[(rows,)](
            logits, targets, losses, predictions, added, z, VOCABULARY=vocabulary, PADDED=width if wide else vocabulary,
            WIDTH=min(WIDTH, triton.next_power_of_2(vocabulary)), GRADIENT=gradient, PREDICT=predictions is not None,
            ADD=added is not None, num_warps=8,
        )  # fmt: skip


@cross_entropy_.register_fake
def _(
    logits: Tensor,
    targets: Tensor,
    losses: Tensor,
    predictions: Tensor | None,
    gradient: bool,
    added: Tensor | None,
    z: float,
) -> None:
    """Shapes are given."""


@triton.jit  # type: ignore[untyped-decorator]
def _cross_entropy_kernel(  # type: ignore[no-untyped-def]  # Triton compiles annotations too, and knows none but its own
    logits_ptr, targets_ptr, losses_ptr, predictions_ptr, added_ptr, z,
    VOCABULARY: tl.constexpr, PADDED: tl.constexpr, WIDTH: tl.constexpr, GRADIENT: tl.constexpr, PREDICT: tl.constexpr,
    ADD: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * PADDED
    column = tl.arange(0, WIDTH)
    # Each place of the block keeps its own maximum and sum; they meet once, at the end.
    most = tl.full([WIDTH], _LEAST, tl.float32)
    total = tl.zeros([WIDTH], tl.float32)
    likeliest = tl.zeros([WIDTH], tl.int32)
    for start in range(0, VOCABULARY, WIDTH):
        place = start + column
        # A mask that ends within 16 bytes would have every logit loaded alone: what is behind the last is read too.
        logit = tl.load(logits_ptr + place, mask=place < PADDED, other=0).to(tl.float32)
        logit = tl.where(place < VOCABULARY, logit, float("-inf"))
        if PREDICT:
            likeliest = tl.where(logit > most, place, likeliest)
        higher = tl.maximum(most, logit)
        total = total * tl.exp(most - higher) + tl.exp(logit - higher)
        most = higher
    highest = tl.max(most, axis=0)
    rest = tl.log(tl.sum(total * tl.exp(most - highest), axis=0))
    logsumexp = highest + rest
    target = tl.load(targets_ptr + row)
    # What all logits have in common cancels unrounded.
    tl.store(losses_ptr + row, rest - (tl.load(logits_ptr + target).to(tl.float32) - highest))
    if ADD:
        tl.store(added_ptr + row, z * logsumexp * logsumexp)
    if PREDICT:
        first = tl.min(tl.where(most == highest, likeliest, VOCABULARY), axis=0)
        tl.store(predictions_ptr + row, first.to(tl.int64))
    if GRADIENT:
        tl.debug_barrier()  # all threads have read the target's logit before one writes there
        for start in range(0, VOCABULARY, WIDTH):
            place = start + column
            logit = tl.load(logits_ptr + place, mask=place < PADDED, other=0).to(tl.float32)
            share = tl.exp(logit - highest - rest)
            if ADD:
                share = share * (1 + 2 * z * logsumexp)
            share = tl.where(place == target, share - 1, share)
            tl.store(logits_ptr + place, share.to(logits_ptr.dtype.element_ty), mask=place < PADDED)
