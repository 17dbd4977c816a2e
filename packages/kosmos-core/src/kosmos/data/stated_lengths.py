"""Rows that state how long a medium is, where their files are longer: the text of a piece, it may be, of the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from kosmos.data.document import Media, Source
from kosmos.data.foreign import calling
from kosmos.data.kept_plans import plan_of
from kosmos.data.plan import Route
from kosmos.data.sources.source import RowSource, columns_of
from kosmos.data.sources.time_names import seconds, states_length
from kosmos.errors import SampleError

LOOKED_AT = 8
"""Documents of a source, from all over it, that are looked at."""
GRACE_S, GRACE = 1.0, 0.05
"""By which a file may be longer, in seconds or of its length if that is more: lengths in rows are rounded, or whole."""
MINUTE_S = 60


def longer_than_stated(routes: Mapping[str, Route], sources: Sequence[Source]) -> Iterator[str]:
    """A warning of each source of which a row that means the whole of its only medium states that it is shorter.

    Args:
        routes: where the media of a run's modalities go.
    """
    for source in sources:
        if not isinstance(source, RowSource) or not source.has_time:
            continue
        looked_at, found = 0, list[tuple[int, str, float]]()
        for index in np.linspace(0, len(source) - 1, min(len(source), LOOKED_AT), dtype=np.int64).tolist():
            try:
                shorter = _stated_shorter(routes, source, index)
            except SampleError:  # which is a bad sample, and told as such
                continue
            looked_at += 1
            found += [] if shorter is None else [(index, *shorter)]
        if found and 2 * len(found) >= looked_at:
            index, name, length_s = found[0]
            named = "" if name == "duration" else f" (columns: {{offset: offset, duration: {name}}})"
            yield (
                f"{source.name}: its rows state a {name}, and files are longer ({source.origin(index)}: "
                f"{length_s:g} s): the text of each row is learned for the whole of its file; where its beginning "
                f"is meant, write offset: 0 beside {name}{named}"
            )


def _stated_shorter(routes: Mapping[str, Route], source: RowSource, index: int) -> tuple[str, float] | None:
    """Under which name a row states fewer seconds than its medium has, and how many."""
    columns = columns_of(source.table, int(source.rows[index]))
    names = [name for name in columns if states_length(name) and name not in source.layout.columns.values()]
    if not names:
        return None
    with calling(source, "document"):
        media = [*source.document(index).media]
    if len(media) != 1 or media[0].clip is not None or (route := routes.get(media[0].modality)) is None:
        return None
    for name in names:
        length_s = seconds(source.value(index, name))
        if length_s is not None and length_s > 0:
            medium = media[0].load()
            cells = plan_of(route.processor, medium).cells

            def is_longer(than_s: float, medium: Media = medium, cells: int = cells) -> bool:
                try:
                    return plan_of(route.processor, replace(medium, clip=(0.0, than_s))).cells < cells
                except SampleError:  # the clip ends behind the medium
                    return False

            most_s, minutes_s = max(length_s + GRACE_S, (1 + GRACE) * length_s), MINUTE_S * length_s
            in_minutes = is_longer((1 - GRACE) * minutes_s) and not is_longer((1 + GRACE) * minutes_s)
            if is_longer(most_s) and not in_minutes:
                return name, length_s
    return None
