"""Forward and backward of the rows of a step: one after another, or several at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor

from kosmos.data.batch import PackedBatch
from kosmos.data.transfer import on_its_way
from kosmos.model.recompute import uncompiled
from kosmos.names import listed
from kosmos.runtime.devices import autocast, seed_here
from kosmos.train.flops import FlopMeter
from kosmos.train.sharding import Distributed
from kosmos.train.side_by_side import SideBySide


class Backward:
    """Adds the gradients of rows to those of the parameters."""

    def __init__(
        self,
        distributed: Distributed,
        flops: FlopMeter,
        *,
        device: torch.device,
        dtype: torch.dtype,
        seed: int,
        compiled: bool,
        side_by_side: SideBySide | None,
        at: Callable[..., None],
    ) -> None:
        """
        Args:
            dtype: of matrix products.
            compiled: blocks are.
            side_by_side: computes rows at once; None where they are taken one after another.
            at: told what begins: see ``kosmos.train.watch.Watch.at``.
        """
        self.distributed, self.flops, self.side_by_side, self.at = distributed, flops, side_by_side, at
        self.device, self.dtype, self.seed, self.compiled = device, dtype, seed, compiled

    def add(self, step: int, pieces: list[tuple[int, PackedBatch]], targets: int) -> list[Callable[[], Tensor]]:
        """
        Args:
            step: its number.
            pieces: rows or parts of them, each with its lane.
            targets: of the whole step; the loss is a mean over them.

        Returns:
            What gives the losses of each piece's target tokens, on the CPU.
        """
        # Counting looks at all that the process computes, so that a step of it has no rows at once.
        skip = self.compiled or self.side_by_side is not None
        counted = [self.flops.wants(step, batch, compiled=skip) for _, batch in pieces]
        if self.side_by_side is not None:
            self._at([batch for _, batch in pieces])
            rows = [partial(self._forward, b, targets, c) for (_, b), c in zip(pieces, counted, strict=True)]
            return self.side_by_side.backward(rows, apart=any(counted))
        last = len(pieces) - 1
        return [
            self._alone(batch, targets, seed_of(self.seed, step, lane, self.distributed.part), i == last, counted[i])
            for i, (lane, batch) in enumerate(pieces)
        ]

    def _alone(self, batch: PackedBatch, targets: int, seed: int, last: bool, counted: bool) -> Callable[[], Tensor]:
        self._at([batch])
        seed_here(seed, self.device)
        with self.distributed.row(last), uncompiled() if counted and self.compiled else nullcontext():
            loss, per_token = self._forward(batch, targets, counted)
            torch.autograd.backward(loss)
        return per_token

    def _forward(self, batch: PackedBatch, targets: int, counted: bool) -> tuple[Tensor, Callable[[], Tensor]]:
        """The row's share of the step's loss, and what gives the losses of its target tokens."""
        with autocast(self.device, self.dtype), self.flops.counting(batch) if counted else nullcontext():
            losses = self.distributed.losses(batch.to(self.device))
        # The copy begins before the backward pass, behind which it would have to wait.
        return losses.total / targets, on_its_way(losses.per_token)

    def _at(self, batches: list[PackedBatch]) -> None:
        first = [batch.documents[0].origin for batch in batches if batch.documents]
        self.at("forward and backward", document=listed(first, at_most=3) if first else "")


def seed_of(seed: int, step: int, lane: int, part: int) -> int:
    """Dropout's: it depends on the step and the lane alone, not on how many lanes a process has, nor on a restart.

    Args:
        part: this rank's of a row, where ranks share rows.
    """
    text = f"{seed}/{step}/{lane}" + (f"/{part}" if part else "")
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")
