"""Ranks that share rows train as one process does, whatever the documents, media and targets of their parts."""

from __future__ import annotations

import pytest
import torch
from torch.distributed import ProcessGroup

from kosmos.model.sequence import SequenceGroup, part_of
from support.sharing import ROWS, composed, row


def group(rank: int, size: int) -> SequenceGroup:
    """As one rank sees it; nothing is exchanged here."""
    return SequenceGroup(ProcessGroup(rank, size), rank, size)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("kind", ROWS)
def test_the_embeddings_of_the_parts_are_those_of_the_row(kind: str, size: int) -> None:
    parts = composed("plain", 1, 1)
    batch = row(parts, kind)
    slots = {"ticks": parts.planner.routes["ticks"].slots}
    cut = [part_of(batch, group(rank, size), slots) for rank in range(size)]
    with torch.no_grad():
        whole = parts.model.embed(batch)
        pieces = [parts.model.embed(part.seen)[part.own] for part in cut]
    assert max(len(p) for p in pieces) - min(len(p) for p in pieces) <= 1
    torch.testing.assert_close(torch.cat(pieces), whole, rtol=0, atol=1e-6)  # fp32; measured 2.4e-7
    assert torch.equal(torch.cat([part.labels for part in cut]), batch.labels)
    assert torch.equal(torch.cat([part.position_ids for part in cut]), batch.position_ids)
    assert {part.segments.lengths for part in cut} == {batch.lengths}
    items = len(batch.media["ticks"].grids)
    assert items <= sum(len(part.seen.media["ticks"].grids) for part in cut) < items + size


def test_a_rank_embeds_no_media_of_other_parts() -> None:
    parts = composed("plain", 1, 1)
    batch = row(parts, "untrained")  # its one item stands at the beginning
    slots = {"ticks": parts.planner.routes["ticks"].slots}
    first, second = (part_of(batch, group(rank, 2), slots).seen.media["ticks"] for rank in range(2))
    assert len(first.values) == len(batch.media["ticks"].values)
    assert len(second.values) == len(second.grids) == len(second.slots) == 0
