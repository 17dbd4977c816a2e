"""When memory does not suffice: rows in smaller parts, and what a user can set."""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping

import torch

from kosmos.data.batch import MediaArrays, PackedBatch, trained_in
from kosmos.data.processor import Grid
from kosmos.data.slots import SlotCount

FIRST_STEPS = 10
"""Steps after the start in which rows are split where memory does not suffice; later something else is wrong."""


def parts(
    batch: PackedBatch, number: int, slots: Mapping[str, SlotCount], *, exactly: bool = False
) -> list[PackedBatch]:
    """The row in at most ``number`` parts of about equally many tokens, cut between documents.

    Losses and gradients of the parts sum to those of the row: nothing crosses documents.

    Args:
        exactly: fill up with empty parts; ranks that share a model must call it equally often.
    """
    total, cut, done = len(batch.token_ids), [0], 0
    for document in batch.documents:
        end = document.start + document.length
        if end - cut[-1] >= (total - cut[-1]) / (number - done) and end < total and done < number - 1:
            cut.append(end)
            done += 1
    made = [_part(batch, begin, end, slots) for begin, end in zip(cut, [*cut[1:], total], strict=True)]
    return made + [_part(batch, total, total, slots)] * (number - len(made) if exactly else 0)


def _part(batch: PackedBatch, begin: int, end: int, slots: Mapping[str, SlotCount]) -> PackedBatch:
    documents = tuple(d._replace(start=d.start - begin) for d in batch.documents if begin <= d.start < end)
    media = {name: _media(m, begin, end, slots[name]) for name, m in batch.media.items()}
    labels = batch.labels[begin:end]
    return PackedBatch(
        batch.token_ids[begin:end], labels, batch.position_ids[begin:end], documents, media, trained_in(labels)
    )


def _media(media: MediaArrays, begin: int, end: int, slots: SlotCount) -> MediaArrays:
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


def advice(batch: PackedBatch, *, at_once: int = 1) -> str:
    """What a row holds, and the settings that make it smaller.

    Args:
        at_once: rows that were being computed.
    """
    media = "".join(f", {len(m.values):,} cells of {name}" for name, m in batch.media.items() if len(m.values))
    return (
        f"out of memory in a row of {len(batch.token_ids):,} tokens in {len(batch.documents)} documents{media}. Lower "
        f"{'train.lanes_at_once, ' if at_once > 1 else ''}"
        "data.tokens_per_pack or data.cells_per_pack.STREAM (with more data.lanes the step stays as large), set "
        "train.gradient_checkpointing=true, or share the model over more processes"
    )


def peak_bytes(device: torch.device) -> int:
    """Most memory that was taken so far: of the accelerator, else of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
