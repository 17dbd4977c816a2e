"""Rows that say in which order their texts and media stand.

``segments`` is a list of objects that hold one thing each. Or lists of one length have text or a medium at each place,
as OBELICS, MINT-1T and OmniCorpus have them: ``{"texts": ["A cat.", null], "images": [null, "cat.jpg"]}``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kosmos.data.document import Segment, Text
from kosmos.data.sources import times
from kosmos.data.sources.columns import checked_text, kind_of
from kosmos.data.sources.media import MediaRoot, holds_medium, read_media
from kosmos.data.sources.since import is_read_before
from kosmos.data.sources.time_names import stretches
from kosmos.data.sources.written_media import as_written, whole
from kosmos.errors import SampleError


def segment_kinds(parts: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each segment with its kind: ``text`` or a modality.

    Raises:
        SampleError: not a list of objects that hold one thing each.
    """
    if not isinstance(parts, list | tuple) or not parts:
        raise SampleError(f"segments: expected a list that is not empty, got {kind_of(parts)}")
    for number, part in enumerate(parts):
        if not isinstance(part, Mapping):
            raise SampleError(f"segments[{number}]: expected an object, got {kind_of(part)}")
        # Columns of a parquet table give every segment every key, null (or of nulls) where it does not apply.
        kinds = [
            k
            for k, v in part.items()
            if k != "train" and not times.is_beside(k, part) and (v is not None if k == "text" else holds_medium(v))
        ]
        if len(kinds) > 1:
            kinds = [kind for kind in kinds if not _is_blank(part[kind])]
        if len(kinds) != 1:
            got = f"got {', '.join(kinds) or 'nothing'}{_as_rows(part)}"
            raise SampleError(f"segments[{number}]: expected text or one medium, {got}")
        yield kinds[0], part


def _is_blank(value: Any) -> bool:
    """Whether it is how a table of bytes writes that there is nothing, where something else is there. Alone it is a
    medium of zero bytes: its file may have been empty."""
    several = value.values() if isinstance(value, Mapping) else (value,)
    return all(one is None or (isinstance(one, bytes) and not one) for one in several) and not is_read_before()


def _as_rows(part: Mapping[str, Any]) -> str:
    """What to write in place of what is said when, as Whisper's results have it; empty of other parts."""
    found = next(stretches(part, ()), None) if isinstance(part.get("text"), str) else None
    if found is None or len(found.names) < 2:
        return ""
    row = json.dumps({"clip": list(found.times), "text": part["text"].strip()}, ensure_ascii=False)
    return (
        f"; texts with their times are a row each beside the file that they are of ({row:.120}); to learn the whole "
        "text leave segments out"
    )


def read_segments(parts: Any, root: MediaRoot, row_times: times.RowTimes) -> Iterator[Segment]:
    """Segments of the ``segments`` form; text is trained unless ``"train": false``.

    Raises:
        SampleError: a part is malformed.
    """
    for number, (kind, part) in enumerate(segment_kinds(parts)):
        if kind != "text":
            clip, has_time = row_times.beside(kind, part), kind in row_times.timed
            if clip is None and has_time:
                clip = row_times.clip(kind, part[kind])
            media = read_media(kind, part[kind], root, clip, has_time=has_time)
            is_said = part.get("train") is True
            yield from as_written(whole(media, kind, root.taken), root.taken, train=True) if is_said else media
            continue
        train = part.get("train")
        if train is not None and not isinstance(train, bool):
            raise SampleError(f"segments[{number}].train: expected true or false, got {kind_of(train)}")
        if text := checked_text(part["text"], f"segments[{number}].text"):
            yield Text(text, train=train is not False)


def is_interleaved(texts: Any) -> bool:
    """Whether ``texts`` of a row is of this form; else it holds turns, or something else."""
    return (
        isinstance(texts, list | tuple)
        and len(texts) > 0
        and all(text is None or isinstance(text, str) for text in texts)
    )


def read_interleaved(
    texts: list[str | None],
    name: str,
    media: Mapping[str, tuple[str, Any]],
    read: Callable[[str, Any], Iterable[Segment]],
    between: str = "\n",
) -> Iterator[Segment]:
    """The segments of a row; all texts are learned. A place of nothing is passed over: a medium that was never there.
    Of two texts with no medium between them the second begins a line, unless ``between`` is something else.

    Args:
        texts: of each place, null where it holds a medium.
        name: of that column.
        media: modality to its column and what that holds.
        read: a modality and what a place holds of it to its segments.
        between: what begins a text behind another one.

    Raises:
        SampleError: a column holds no list, or one of another length; a place holds several things; none holds text.
    """
    for column, held in media.values():
        if not isinstance(held, list | tuple):
            raise SampleError(f"{column}: beside lists of texts and media expected one too, got {kind_of(held)}")
        if len(held) != len(texts):
            raise SampleError(
                f"{name} has {len(texts)} places and {column} {len(held)}; at each place one of the lists has "
                "text or a medium, and the others null"
            )
    if not any(text and text.strip() for text in texts):
        raise SampleError(f"{name} holds no text")
    behind_text = False
    for place, text in enumerate(texts):
        there = [
            (modality, column, held[place]) for modality, (column, held) in media.items() if holds_medium(held[place])
        ]
        if len(there) + bool(text) > 1:
            there = [found for found in there if not _is_blank(found[2])]
        if len(there) + bool(text) > 1:
            both = [*([name] if text else []), *(column for _, column, _ in there)]
            raise SampleError(f"{' and '.join(both)} both hold something at place {place}; expected one of them")
        if text:
            yield Text((between if behind_text else "") + checked_text(text, f"{name}[{place}]"), train=True)
        found = [segment for modality, _, medium in there for segment in read(modality, medium)]
        behind_text = bool(text) or (behind_text and not found)
        yield from found
