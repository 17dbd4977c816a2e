"""What is scored of what a run was trained on: questions by their files and media, other documents by their media."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from kosmos.config import DocumentsConfig, RunConfig
from kosmos.data.choices import ChoiceSource
from kosmos.data.document import Source
from kosmos.data.media_in_common import Medium, media_of_rows
from kosmos.data.sources.chosen import are_apart
from kosmos.data.sources.opening import short_name
from kosmos.data.sources.places import Places
from kosmos.data.sources.source import RowSource
from kosmos.data.spread import spread
from kosmos.errors import KosmosError
from kosmos.plugins import Registry
from kosmos.run_sources import FOLLOW, may_be, open_sources

MOST_QUESTIONS = 1_000
"""Or other documents of each file that is scored, whose media are compared."""
MOST_LOOKED_AT = 20_000
"""Documents of each source that is trained on whose media are compared."""
MOST_BYTES = 256 << 20
"""Largest file of rows that is opened only to see what media its rows name."""


def asked_and_trained(
    config: RunConfig, questions: Sequence[ChoiceSource], paths: Sequence[str], sources: Iterable[Source]
) -> Iterator[str]:
    """Warnings of questions of which some may have been trained on.

    A file of questions is named where it is one of a source of the run, or looks like a copy of one; else where its
    questions are about media of documents that are trained on. Of these so many are looked at.

    Args:
        questions: of each of ``paths``, or none where they are not open.
        paths: of their files, as they were named.
        sources: what is trained on. They are asked for no earlier than a file of questions names media.
    """
    trained = _Trained(sources)
    for number, path in enumerate(paths):
        if found := next(_by_files(config, path), None):
            yield found
        elif questions and (found := trained.shares(_media_of_questions(questions[number]), "questions")):
            yield f"choices {path!r}: {found}"


def named_and_trained(
    config: RunConfig, scored: Sequence[Source], named: Sequence[str | DocumentsConfig], sources: Iterable[Source]
) -> Iterator[str]:
    """Likewise of other documents that are scored (``open_named``), by their media alone: that tells of the files.

    Args:
        scored: of each of ``named``. Those that the run was trained on have a part that is held out, which is no news.
        sources: as of ``asked_and_trained``.
    """
    trained = _Trained(sources)
    own = {name for entry in config.data.sources for name in (entry.path, entry.name or short_name(entry.path))}
    for one, source in zip(named, scored, strict=True):
        path, rows = (one, None) if isinstance(one, str) else (one.path, one.rows)
        is_apart = rows is not None and any(are_apart(rows, entry.rows) for entry in config.data.sources)
        if not is_apart and (path in own or next(_by_files(config, path), None)):
            continue
        if found := trained.shares(_media_of(source, MOST_QUESTIONS), "documents"):
            yield f"data {path!r}: {found}"


class _Trained:
    """Media of what is trained on, which is opened no earlier than somebody has media to compare.

    Args:
        sources: what is trained on.
    """

    def __init__(self, sources: Iterable[Source]) -> None:
        self.sources = sources
        self._media: dict[str, set[Medium]] | None = None

    def shares(self, media: set[Medium], what: str) -> str:
        """With which source, and how many; empty where there are none. ``what`` they are of."""
        if not media:
            return ""
        if self._media is None:
            self._media = {source.name: _media_of(source) for source in self.sources}
        for name, of_source in self._media.items():
            if shared := len(media & of_source):
                return (
                    f"{shared:,} of the media that its {what} are about are those of documents of the run's source "
                    f"{name}, which is trained on"
                )
        return ""


def trained_sources(config: RunConfig, registry: Registry) -> Iterator[Source]:
    """What a saved run was trained on, as far as it is there and soon opened."""
    for entry in config.data.sources:
        path = Path(entry.path)
        if path.is_dir() or (path.is_file() and path.stat().st_size <= MOST_BYTES):
            with suppress(KosmosError):  # data that are of no use any more tell nothing
                yield from open_sources(config, registry, "train", [entry])


def _by_files(config: RunConfig, path: str) -> Iterator[str]:
    places = Places()
    for other in config.data.sources:
        if places.overlap(Path(path), Path(other.path)):
            yield f"choices {path!r}: shares files with the run's source {other.path}, and may have been trained on"
        elif may_be(Path(path), Path(other.path)):
            what = f"may be the run's source {other.path}, moved or copied, which was trained on"
            yield f"choices {path!r}: {what}; {FOLLOW}"


def _media_of_questions(questions: ChoiceSource) -> set[Medium]:
    asked = spread(len(questions.rows), MOST_QUESTIONS)
    return media_of_rows(questions.source, [questions.rows[int(place)] for place in asked])


def _media_of(source: Source, most: int = MOST_LOOKED_AT) -> set[Medium]:
    """Of a source of rows; those of others may take long to be made."""
    return media_of_rows(source, spread(len(source), most).tolist()) if isinstance(source, RowSource) else set()
