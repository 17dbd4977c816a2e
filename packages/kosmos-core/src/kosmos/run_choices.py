"""The questions of a run that offer several answers: those that it is asked, and those that somebody names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kosmos.config import ChoicesConfig, RunConfig
from kosmos.data.choices import ChoiceSource
from kosmos.data.document import Source
from kosmos.data.sources.chosen import Chosen
from kosmos.data.sources.offering import Offering
from kosmos.data.sources.opening import Parts, open_parts, short_name
from kosmos.data.sources.source import RowSource, unweighed
from kosmos.errors import ConfigError, DataError, EmptySplit
from kosmos.given import MADE_BY, check_is
from kosmos.mistakes import explain
from kosmos.plugins import Registry
from kosmos.run_sources import chats_among, distinct, naming, to_score

CHOICES = "evaluate.choices"
MOST_EXAMPLES = 1_000
"""Questions among which examples are drawn: more of a file are not read."""
NAME_GIVEN = "give one another name (--choices '{path: FILE, name: other}')"
NAME_CHOICES = "give it another name (evaluate.choices.N.name=...)"


def open_choices(
    config: RunConfig,
    registry: Registry,
    paths: Sequence[str | Path | Mapping[str, Any] | ChoicesConfig],
    *,
    encode: Callable[[str], Sequence[int]],
    root: Path | None = None,
    chat: bool | None = None,
    max_rows: int = 1_000_000,
) -> list[ChoiceSource]:
    """Questions that offer several answers, of files of rows: of each the part it states as held out, or all of it.

    Args:
        paths: a path each, or a mapping such as ``{"path": "asked.jsonl", "columns": {"answer": "truth"}}``, with the
            fields of ``evaluate.choices``.
        encode: of the model's tokenizer, ``composition.tokenizer.encode``.
        root: folder of the media that rows name, where an entry names none; None is that of each file.
        chat: whether a question that is no chat is asked as one; None asks so where the run learned from a file of
            chats.
        max_rows: most questions of each.

    Raises: as ``open_sources``, and ConfigError where ``paths`` are no list of such.
    """
    check_is("config", config, RunConfig, MADE_BY)
    chat = chats_among(config.data.sources) is not None if chat is None else chat
    if not isinstance(paths, Sequence) or isinstance(paths, str | bytes):
        raise ConfigError(f"paths: expected a list of paths, got {paths!r:.100}")
    entries = [entry_of("paths", one) for one in paths]
    entries = [entry if entry.root else entry.model_copy(update={"root": root}) for entry in entries]
    sources = [_opened(config, registry, entry, chat, max_rows, encode) for entry in entries]
    return distinct(sources, "--choices", NAME_GIVEN)


def entry_of(where: str, given: Any) -> ChoicesConfig:
    """What names a file of questions, as an entry of ``evaluate.choices``. Raises ConfigError where it is none."""
    if isinstance(given, ChoicesConfig):
        return given
    if not isinstance(given, str | PathLike | Mapping):
        raise ConfigError(f"{where}: expected a list of paths, got {given!r:.100}")
    try:
        one = given if isinstance(given, Mapping) else str(given)
        [entry] = RunConfig.model_validate({"evaluate": {"choices": [one]}}).evaluate.choices
    except ValidationError as error:
        raise ConfigError(f"{where}: {explain(error).replace(f'{CHOICES}.0.', '')}") from error
    return entry


def open_own_choices(
    config: RunConfig,
    registry: Registry,
    held_out: Sequence[Source],
    *,
    encode: Callable[[str], Sequence[int]],
    max_rows: int,
) -> list[ChoiceSource]:
    """``evaluate.choices`` of a run, whose names are none of those of what is held out.

    Raises: as ``open_choices``.
    """
    chat, sources = chats_among(config.data.sources) is not None, list[ChoiceSource]()
    for number, entry in enumerate(config.evaluate.choices):
        with naming(number, 2, CHOICES):
            sources.append(_opened(config, registry, entry, chat, max_rows, encode))
    if taken := {source.name for source in held_out} & {source.name for source in sources}:
        raise ConfigError(f"{CHOICES}: what is held out has a source {min(taken)!r} too; {NAME_CHOICES}")
    return distinct(sources, CHOICES, NAME_CHOICES)


def name_of(entry: ChoicesConfig) -> str:
    """What scores call it: what is asked with examples in front is something else than what is asked without."""
    return entry.name or short_name(entry.path) + (f"_{entry.shots}_shot" if entry.shots else "")


def _opened(
    config: RunConfig,
    registry: Registry,
    entry: ChoicesConfig,
    chat: bool,
    max_rows: int,
    encode: Callable[[str], Sequence[int]],
) -> ChoiceSource:
    """Raises DataError where an entry has no questions, or too few to be examples."""
    parts, even = _parts(config, registry, entry, entry.path, entry.rows), config.evaluate.is_even
    asked = _rows(to_score(parts), entry.path)
    if not entry.shots:
        return ChoiceSource(asked, chat, max_rows, encode, even)
    path = entry.shots_from or entry.path
    try:
        trained = _parts(config, registry, entry, path, None if entry.shots_from else entry.rows).part("train", 0.0)
    except EmptySplit as error:
        raise DataError(
            f"data {path!r}: holds nothing that may be an example: all of it is held out; name a file of others "
            "(shots_from)"
        ) from error
    pool = ChoiceSource(_rows(unweighed(trained), path), chat, MOST_EXAMPLES, encode)
    if len(pool.offers) < entry.shots:
        there = f"got {len(pool.offers)}{_unusable(pool)}"
        raise DataError(f"data {path!r}: expected {entry.shots} questions to be examples (shots) or more, {there}")
    is_other = Path(path).resolve() != Path(entry.path).resolve()
    return ChoiceSource(asked, chat, max_rows, encode, even, entry.shots, pool, is_other)


def _unusable(pool: ChoiceSource) -> str:
    """How many rows are no question that could be an example, and why the first is none; empty where all are."""
    if not pool.incidents:
        return ""
    first, count = pool.incidents[0], len(pool.incidents)
    cannot = "1 row cannot be used" if count == 1 else f"{count:,} rows cannot be used, the first"
    return f"; {cannot}: {first.origin}: {first.cause.removeprefix(f'{first.origin}: ')}"


def _parts(
    config: RunConfig, registry: Registry, entry: ChoicesConfig, path: str, rows: Mapping[str, Sequence[Any]] | None
) -> Parts:
    by = Offering(entry.options.answer_is, tuple(entry.options.choices))
    return open_parts(
        path, registry=registry, modalities=list(config.modalities), name=name_of(entry), columns=entry.columns,
        written=config.written, root=entry.root, options={"base64": True} if entry.options.base64 else None,
        asked=True, choices=by, kept=None if rows is None else Chosen.of(rows, "", "rows"),
    )  # fmt: skip


def _rows(source: Source, path: str) -> RowSource:
    """Raises DataError where they are no rows."""
    if not isinstance(source, RowSource):
        raise DataError(f"data {path!r}: a registered dataset has no rows with choices; name a file or a folder")
    return source
