"""What a rank has read for a step, as it tells the others."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

from kosmos.data.batch import IGNORED
from kosmos.data.lane import Row
from kosmos.data.quarantine import Incident, lost_media
from kosmos.model.objectives import Learning
from kosmos.train.objective import units_of


class TakenRows(NamedTuple):
    """See the module."""

    targets: int
    """Learned tokens."""
    units: int
    """What the step's loss is a mean over: these, or the units of its objective."""
    incidents: list[Incident]
    drawn: int
    useful: set[str]
    """Sources of its documents."""
    lost: list[Incident]
    """Media that were left out of its documents."""
    digest: int
    """Of the tokens of its rows: ranks that share them must have read the same."""


def taken(rows: Sequence[Row], learning: Learning | None) -> TakenRows:
    """Of the rows that a rank has read."""
    targets = sum(int((row.arrays.labels != IGNORED).sum()) for row in rows)
    units = targets if learning is None else sum(units_of(learning, row.arrays) for row in rows)
    incidents = [incident for row in rows for incident in row.incidents]
    documents = [document for row in rows for document in row.arrays.documents]
    useful = {document.source for document in documents}
    digest = 0
    for row in rows:
        digest = zlib.crc32(row.arrays.token_ids.tobytes(), digest)
    return TakenRows(targets, units, incidents, sum(row.drawn for row in rows), useful, lost_media(documents), digest)
