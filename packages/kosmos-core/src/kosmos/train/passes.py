"""What of a step's rows is computed in one pass: a row, several as one on a GPU, or a part where memory is short."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from kosmos.config import RunConfig
from kosmos.data.batch import MediaArrays, PackedBatch, packed
from kosmos.data.plan import Planner
from kosmos.data.processor import Grid
from kosmos.data.slots import SlotCount
from kosmos.errors import ConfigError
from kosmos.runtime.parallel import Parallel

WHERE = "train.lanes_at_once"
JOINED_ON = frozenset({"cuda"})
"""Devices that compute rows at once as one. A CPU gives each to a thread: ``kosmos.train.side_by_side``."""
ENOUGH = 8192
"""Tokens of a pass from which on a run is told of no longer one. On an H200, with a ViT of 22 M in front of 85 M, a
step of 8,192 tokens took 0.29 s in four rows, 0.12 in two longer ones and 0.08 in one: the CPU launches each."""


def open_passes(config: RunConfig, planner: Planner, device: torch.device, parallel: Parallel) -> Passes:
    """Those of this process."""
    slots = {route.stream: route.slots for route in planner.routes.values()}
    lanes = len(parallel.lanes(config.data.lanes)) if joins_rows(device) else None
    return Passes(config, slots, lanes=lanes, exactly=parallel.world_size > 1)


def joins_rows(device: torch.device) -> bool:
    """Whether rows at once are one row there."""
    return device.type in JOINED_ON


class Passes:
    """How rows are cut or joined. Losses and gradients sum to the same: nothing crosses documents."""

    def __init__(
        self, config: RunConfig, slots: Mapping[str, SlotCount], *, lanes: int | None, exactly: bool = False
    ) -> None:
        """
        Args:
            slots: by stream.
            lanes: of this process, whose rows can be joined; None where a device joins none.
            exactly: as of ``parts``.
        """
        self.slots, self.exactly, self._lanes = slots, exactly, lanes
        self._wanted, self._tokens = config.train.lanes_at_once, config.data.tokens_per_pack
        self._stated = "lanes_at_once" in config.train.model_fields_set
        self._at_once = min(self._wanted, lanes or 1)
        self.parts = 1
        """Into so many parts rows are cut, for want of memory; then none are joined."""

    @property
    def at_once(self) -> int:
        """Rows that are computed as one."""
        return self._at_once if self.parts == 1 else 1

    @property
    def is_short(self) -> bool:
        """Whether passes are smaller than was wanted, for want of memory."""
        return self.parts > 1 or self._at_once < min(self._wanted, self._lanes or 1)

    def told(self) -> str | None:
        """What a user should hear of it before the first step."""
        if self._lanes is None:
            return None
        if self._wanted > self._lanes:
            return f"warning: {WHERE}={self._wanted}: a process has {self._lanes} of data.lanes; raise that or lower it"
        if self._wanted > self.at_once:
            return f"warning: {WHERE}={self._wanted}: none are joined, for want of memory"
        short = min(self._lanes, ENOUGH // self._tokens)
        if self._stated or short < 2 or self.parts > 1:
            return None
        return f"a GPU computes rows one after another: {WHERE}={short} joins so many, faster, for more memory"

    def of(self, lane: int, batch: PackedBatch) -> list[tuple[int, PackedBatch]]:
        """A row, or its parts, with its lane."""
        if self.parts == 1:
            return [(lane, batch)]
        return [(lane, part) for part in parts(batch, self.parts, self.slots, exactly=self.exactly)]

    def take_up(self, parts: int) -> str | None:
        """Go on with rows in as many parts as were noted. Returns what to tell, where they are more."""
        if parts <= self.parts:
            return None
        self.parts = parts
        return f"memory did not suffice before: rows are computed in {parts} parts"

    def check_release(self, releases: bool) -> None:
        """Raises ConfigError where gradients are released and rows are computed in parts."""
        if releases and self.parts > 1:
            raise ConfigError(
                f"train.release_gradients: for want of memory this run computes rows in {self.parts} parts, each of "
                "which would take a step of its own; leave it out, or begin a run with it"
            )

    def shrink(self) -> str:
        """Take less memory for a pass. Returns how rows are computed from here on."""
        if self.at_once > 1:
            self._at_once //= 2
            return f"{self.at_once} rows are computed as one" if self.at_once > 1 else "rows are computed one by one"
        self.parts *= 2
        return f"rows are computed in {self.parts} parts"


def joined(batches: Sequence[PackedBatch]) -> PackedBatch:
    """The documents of all rows, on the CPU, one after another in one row."""
    if len(batches) == 1:
        return batches[0]
    documents, begin = [], 0
    for batch in batches:
        for document in batch.documents:
            answer = None if document.answer_start is None else document.answer_start + begin
            documents.append(document._replace(start=document.start + begin, answer_start=answer))
        begin += len(batch.token_ids)
    ids, labels, positions = (
        torch.cat([getattr(batch, name) for batch in batches]) for name in ("token_ids", "labels", "position_ids")
    )
    media = {name: _joined_media(batches, name) for name in batches[0].media}
    return packed(ids, labels, positions, tuple(documents), media)


def _joined_media(batches: Sequence[PackedBatch], name: str) -> MediaArrays:
    slots, begin = [], 0
    for batch in batches:
        slots.append(batch.media[name].slots + begin)
        begin += len(batch.token_ids)
    values = [batch.media[name].values for batch in batches]
    # A GPU takes them from pinned memory, to which they would be copied once more.
    room = torch.empty(
        sum(map(len, values)), *values[0].shape[1:], dtype=values[0].dtype, pin_memory=torch.cuda.is_available()
    )
    torch.cat(values, out=room)
    return MediaArrays(room, torch.cat([batch.media[name].grids for batch in batches]), torch.cat(slots))


def parts(
    batch: PackedBatch, number: int, slots: Mapping[str, SlotCount], *, exactly: bool = False
) -> list[PackedBatch]:
    """The row in at most ``number`` parts of about equally many tokens, cut between documents, never between the two of
    a pair.

    Args:
        exactly: fill up with empty parts; ranks that share a model must call it equally often.
    """
    total, cut, done = len(batch.token_ids), [0], 0
    pairs = [behind.is_rejected for behind in batch.documents[1:]]
    for document, is_halved in zip(batch.documents, [*pairs, False], strict=False):
        end = document.start + document.length
        if not is_halved and end - cut[-1] >= (total - cut[-1]) / (number - done) and end < total and done < number - 1:
            cut.append(end)
            done += 1
    made = [_part(batch, begin, end, slots) for begin, end in zip(cut, [*cut[1:], total], strict=True)]
    return made + [_part(batch, total, total, slots)] * (number - len(made) if exactly else 0)


def _part(batch: PackedBatch, begin: int, end: int, slots: Mapping[str, SlotCount]) -> PackedBatch:
    documents = []
    for document in batch.documents:
        if begin <= document.start < end:
            answer = None if document.answer_start is None else document.answer_start - begin
            documents.append(document._replace(start=document.start - begin, answer_start=answer))
    media = {name: _part_of_media(m, begin, end, slots[name]) for name, m in batch.media.items()}
    labels = batch.labels[begin:end]
    ids, positions = batch.token_ids[begin:end], batch.position_ids[begin:end]
    return packed(ids, labels, positions, tuple(documents), media)


def _part_of_media(media: MediaArrays, begin: int, end: int, slots: SlotCount) -> MediaArrays:
    """Items whose slots are in [begin, end); items stand in the order of their slots."""
    first, last = (int((media.slots < edge).sum()) for edge in (begin, end))
    filled, items, cells = 0, [0, 0], [0, 0]
    for grid in media.grids.tolist():
        shape = Grid(*grid)
        for side, edge in enumerate((first, last)):
            if filled < edge:
                items[side] += 1
                cells[side] += shape.cells
        filled += slots(shape)
    return MediaArrays(
        media.values[cells[0] : cells[1]], media.grids[items[0] : items[1]], media.slots[first:last] - begin
    )
