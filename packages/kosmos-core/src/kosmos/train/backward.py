"""Forward and backward of the rows of a step: one after another, or several at once or as one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from kosmos.data.batch import PackedBatch
from kosmos.data.transfer import on_its_way
from kosmos.model.failures import raise_as_kept
from kosmos.model.own_losses import OnItsWay, on_their_way
from kosmos.model.recompute import uncompiled
from kosmos.runtime.devices import autocast, seed_here
from kosmos.train.flops import FlopMeter
from kosmos.train.passes import joined
from kosmos.train.sharding import Distributed
from kosmos.train.side_by_side import SideBySide

Piece = tuple[int, PackedBatch]
"""A row or a part of it, with its lane."""
_Told = tuple[Callable[[], Tensor], OnItsWay | None]
"""Of one pass, as of ``Computed``."""


class Computed(NamedTuple):
    """What rows came to, on its way to the CPU."""

    per_token: list[Callable[[], Tensor]]
    """What gives the losses of each piece's target tokens [n], or with those of the reference [2, n]."""
    own: list[OnItsWay]
    """The losses that parts of the model handed on, of the passes that had any."""


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
        look: Callable[[PackedBatch], PackedBatch] | None = None,
    ) -> None:
        """
        Args:
            dtype: of matrix products.
            compiled: blocks are.
            side_by_side: computes rows at once; None where they are taken one after another.
            at: told what begins: see ``kosmos.train.watch.Watch.at``.
            look: as ``kosmos.train.reference.Reference.look``, where the objective compares with one.
        """
        self.look = look
        self.distributed, self.flops, self.side_by_side, self.at = distributed, flops, side_by_side, at
        self.device, self.dtype, self.seed, self.compiled = device, dtype, seed, compiled

    @property
    def at_once(self) -> int:
        """Rows that are computed at once."""
        return self.side_by_side.at_once if self.side_by_side is not None else 1

    def add(self, step: int, pieces: Sequence[Piece], targets: int, *, as_one: int = 1) -> Computed:
        """
        Args:
            step: its number.
            pieces: rows or parts of them, each with its lane.
            targets: of the whole step, or the units of its objective; the loss is a mean over them, and 0 without any.
            as_one: so many neighbours are computed as one row, without side by side.

        Raises:
            PluginError: as of the model, or a part of it keeps tensors of an earlier row.
        """
        try:
            return self._add(step, pieces, targets, as_one)
        except RuntimeError as error:
            if isinstance(self.distributed.losses, nn.Module):
                raise_as_kept(error, self.distributed.losses)
            raise

    def _add(self, step: int, pieces: Sequence[Piece], targets: int, as_one: int) -> Computed:
        if self.side_by_side is None:
            groups = [pieces[start : start + as_one] for start in range(0, len(pieces), as_one)]
            passes = [self._alone(step, group, targets, last=group is groups[-1]) for group in groups]
            counts = [[batch.num_targets for _, batch in group] for group in groups]
            each = [one for (told, _), count in zip(passes, counts, strict=True) for one in _apart(told, count)]
            return Computed(each, [own for _, own in passes if own is not None])
        batches = [batch for _, batch in pieces]
        rows = self.side_by_side.backward(
            [partial(self._forward, step, batch, targets) for batch in batches],
            seed=seed_of(self.seed, step, pieces[-1][0], self.distributed.part),
            waits_for=lambda row: self._at(batches[row]),
            apart=any(self._counts(step, batch) for batch in batches),
        )
        return Computed([told for told, _ in rows], [own for _, own in rows if own is not None])

    def _counts(self, step: int, batch: PackedBatch) -> bool:
        """Whether to count a row's operations, which looks at all that the process computes: at what was met before,
        only where that costs no step without compilation and none without rows at once."""
        return self.flops.wants(step, batch, compiled=self.compiled or self.side_by_side is not None)

    def _alone(self, step: int, pieces: Sequence[Piece], targets: int, *, last: bool) -> _Told:
        """One pass. Dropout's seed is that of the first lane."""
        (lane, first), batch = pieces[0], joined([batch for _, batch in pieces])
        self._at(first)
        seed_here(seed_of(self.seed, step, lane, self.distributed.part), self.device)
        slow = self.compiled and self._counts(step, batch)
        with self.distributed.row(last), uncompiled() if slow else nullcontext():
            loss, told = self._forward(step, batch, targets)
            torch.autograd.backward(loss)
        return told

    def _forward(self, step: int, batch: PackedBatch, targets: int) -> tuple[Tensor, _Told]:
        """The row's share of the step's loss, and what gives the losses of its target tokens and of parts."""
        counting = self.flops.counting(batch) if self._counts(step, batch) else nullcontext()
        row = batch.to(self.device)
        with autocast(self.device, self.dtype):
            if self.look is not None:
                row = self.look(row)
            with counting:
                losses = self.distributed.losses(row)
        told = losses.per_token if losses.reference is None else torch.stack([losses.per_token, losses.reference])
        # The copy begins before the backward pass, behind which it would have to wait.
        own = on_their_way(losses.modules) if losses.modules else None
        # Without a target nothing is learned: losses of parts have nothing to be a mean over.
        share = losses.total / targets if targets else losses.total * 0
        return share, (on_its_way(told), own)

    def _at(self, batch: PackedBatch) -> None:
        self.at("forward and backward", document=batch.documents[0].origin if batch.documents else "")


def _apart(per_token: Callable[[], Tensor], counts: Sequence[int]) -> list[Callable[[], Tensor]]:
    """What gives the losses of each row, of what gives those of rows that were joined."""
    if len(counts) == 1:
        return [per_token]
    bounds = pairwise([0, *accumulate(counts)])
    return [partial(lambda start, end: per_token()[..., start:end], start, end) for start, end in bounds]


def seed_of(seed: int, step: int, lane: int, part: int) -> int:
    """Dropout's: it depends on the step and the lane alone, not on how many lanes a process has, nor on a restart; of
    rows that are joined on the lane of the first.

    Args:
        part: this rank's of a row, where ranks share rows.
    """
    text = f"{seed}/{step}/{lane}" + (f"/{part}" if part else "")
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")
