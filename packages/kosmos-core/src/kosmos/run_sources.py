"""The sources of a run: what is trained on, what is held out, and what is scored by name."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeVar, cast, get_args

from kosmos.components import DatasetSpec, ModalitySpec
from kosmos.config import DocumentsConfig, RunConfig, SourceConfig
from kosmos.data.chat import holds_chats
from kosmos.data.document import Document, Source, Text
from kosmos.data.sources.arrays import Taken
from kosmos.data.sources.chosen import Chosen, are_apart
from kosmos.data.sources.fewer import FewerToTrainOn, own_share
from kosmos.data.sources.folders import MANIFEST
from kosmos.data.sources.gathered import one_each
from kosmos.data.sources.not_read import is_empty_file
from kosmos.data.sources.opening import Parts, open_parts, short_name
from kosmos.data.sources.places import Places
from kosmos.data.sources.since import opened_before
from kosmos.data.sources.source import unweighed
from kosmos.data.sources.splits import Split
from kosmos.data.sources.template import parse_template
from kosmos.errors import ConfigError, DataError, EmptySplit, KosmosError
from kosmos.given import MADE_BY, check_is, check_list
from kosmos.patterns import first_file
from kosmos.plugins import Registry


def open_sources(
    config: RunConfig,
    registry: Registry,
    split: Literal["train", "held_out"],
    entries: Sequence[SourceConfig] | None = None,
) -> list[Source]:
    """The sources of the run, or ``entries`` in their place. No source named: the modalities' sample sets.

    Raises:
        ConfigError: an argument is something else than its type says, a modality has no sample set, two sources have
            one name, or only some have a weight.
        DataError: a source cannot be opened.
    """
    if split not in get_args(Split):  # any other name would be taken for the rows that are trained on
        raise ConfigError(f"split: expected 'train' or 'held_out', got {split!r}")
    return _parts_of(_open_all(config, registry, entries), split, config.data.held_out)


def open_held_out(config: RunConfig, registry: Registry) -> list[Source]:
    """The held-out parts of the run's sources, and ``evaluate.sources``; a source without one is left out. Raises as
    ``open_sources``."""
    return _all_held_out(config, registry, _open_all(config, registry))


def open_both(config: RunConfig, registry: Registry) -> tuple[list[Source], list[Source]]:
    """As ``open_sources`` for what is trained on, and ``open_held_out``; every row is looked at once."""
    opened = _open_all(config, registry)
    sources = _parts_of(opened, "train", config.data.held_out)
    return sources, _all_held_out(config, registry, opened, beside=sources)


def _open_all(config: RunConfig, registry: Registry, entries: Sequence[SourceConfig] | None = None) -> list[Parts]:
    """The sources of the run, or ``entries`` in their place, of which no part is chosen yet."""
    check_is("config", config, RunConfig, MADE_BY)
    entries = config.data.sources if entries is None else entries
    check_list("entries", entries, SourceConfig, "make_run({'data': {'sources': ['a.jsonl']}}).data.sources is one")
    entries = list(entries) or _sample_sets(config, registry)
    _refuse_empty(registry, entries)
    opened: list[Parts] = []
    for number, entry in enumerate(entries):
        with naming(number, len(entries)):
            parts = _open(config, registry, entry, _place_of(number))
            opened.append(parts if entry.limit is None else FewerToTrainOn(parts, entry.limit, config.data.seed))
    return opened


def _refuse_empty(registry: Registry, entries: Sequence[SourceConfig]) -> None:
    """Raises DataError of a file of 0 bytes among several sources, before one waits for the others to be opened."""
    for number, entry in enumerate(entries if len(entries) > 1 else ()):
        with naming(number, len(entries)), suppress(OSError, ValueError):
            if entry.path not in registry.specs("dataset") and is_empty_file(Path(entry.path)):
                raise DataError(f"{entry.path}: holds no rows (0 bytes), as after a copy that failed")


@contextmanager
def following(*, reads_more: bool = True, lacking: Collection[str] = ()) -> Iterator[None]:
    """Errors of a saved run's data that are not where they were say how to name their new place, and what it could
    begin with is not refused.

    Args:
        reads_more: as of ``opened_before``, and so is ``lacking``.
    """
    try:
        with opened_before(reads_more=reads_more, lacking=lacking):
            yield
    except DataError as error:
        if not any(words in str(error) for words in ("no such file", "no file or folder")):
            raise
        raise type(error)(f"{error}; {FOLLOW}") from error


@contextmanager
def naming(number: int, of: int, place: str = "data.sources") -> Iterator[None]:
    """Errors say which source of the run they are about, where it has several."""
    where = _place_of(number, place)
    try:
        yield
    except KosmosError as error:
        if of < 2 or str(error).startswith(where):
            raise
        raise type(error)(f"{where}: {error}") from error


def _place_of(number: int, place: str = "data.sources") -> str:
    return f"{place}.{number}"


def _parts_of(opened: Sequence[Parts], split: Split, share: float) -> list[Source]:
    sources = []
    for number, parts in enumerate(opened):
        with naming(number, len(opened)):
            sources.append(parts.part(split, share))
    return distinct(sources)


def _held_out_of(opened: Sequence[Parts], share: float) -> list[Source]:
    sources = []
    for number, parts in enumerate(opened):
        with suppress(EmptySplit), naming(number, len(opened)):
            sources.append(parts.part("held_out", share))
    return distinct(sources)


SCORED = "evaluate.sources"


def _all_held_out(
    config: RunConfig, registry: Registry, opened: Sequence[Parts], beside: Sequence[Source] = ()
) -> list[Source]:
    """What ``opened`` hold out, and what is only scored.

    Args:
        beside: what is trained on, where it was opened, whose names others may not have.
    """
    held_out = _held_out_of(opened, config.data.held_out)
    return [*held_out, *open_scored(config, registry, {source.name for source in (*beside, *held_out)})]


def open_scored(config: RunConfig, registry: Registry, known: Collection[str]) -> list[Source]:
    """``evaluate.sources``, which have none of the names that are ``known``."""
    scored = []
    for number, entry in enumerate(config.evaluate.sources):
        with naming(number, 2, SCORED):
            scored.append(to_score(_open(config, registry, entry, _place_of(number, SCORED))))
    if taken := {source.name for source in scored} & {*known}:
        raise ConfigError(f"{SCORED}: a source that is trained on is called {min(taken)!r} too; {NAME_SCORED}")
    return distinct(scored, SCORED, NAME_SCORED)


def to_score(parts: Parts) -> Source:
    """Of data that are not trained on: the part that they state as held out, else all of them."""
    try:
        return parts.part("held_out", 0.0)
    except EmptySplit:
        return unweighed(parts.part("train", 0.0))


def open_named(
    config: RunConfig,
    registry: Registry,
    paths: Sequence[str | DocumentsConfig],
    warn: Callable[[str], None] = lambda line: None,
    *,
    root: Path | None = None,
    own: Callable[[Sequence[Source]], None] = lambda sources: None,
    reads_more: bool = True,
    lacking: Collection[str] = (),
) -> list[Source]:
    """What a saved run is scored on when data are named, by paths or as entries of ``evaluate.sources``.

    Of a source of the run (by its path or name alone) the part that the run held out; of other data the part that they
    themselves state as held out, and where they state none, all of them: nothing of them was trained on.

    Args:
        warn: told where data share files with a source of the run, so that some of them may have been trained on.
        root: folder of the media that rows of other data name; None is that of each file.
        own: told those that are sources of the run, to be read as they were in training (``SavedRun.as_begun``).
        reads_more: whether those are opened by today's rules, and ``lacking`` which of them they are opened without
            (``kosmos.train.older_rules.rules_of``).

    Raises: as ``open_sources``, and ConfigError where a source of the run is to have another ``root``.
    """
    sources, places = [], Places()
    for one in paths:
        known, path = _known(config, one), one if isinstance(one, str) else one.path
        if known is not None:
            _refuse_root(root, known[0], path)
            with opened_before(reads_more=reads_more, lacking=lacking):
                opened = _open(config, registry, *known)
            is_trained = isinstance(known[0], SourceConfig)
            sources.append(opened.part("held_out", config.data.held_out) if is_trained else to_score(opened))
            own(sources[-1:])
            continue
        for other in config.data.sources:
            if not isinstance(one, str) and are_apart(one.rows, other.rows):
                continue
            if places.overlap(Path(path), Path(other.path)):
                warn(f"data {path!r}: shares files with the run's source {other.path}, and may have been trained on")
            elif may_be(Path(path), Path(other.path)):
                what = f"may be the run's source {other.path}, moved or copied, most of which was trained on"
                warn(f"data {path!r}: {what}; {FOLLOW} and leave --data out to score what was held out")
        sources.append(to_score(_open_as_it_is(config, registry, one, root)))
    return distinct(sources, "--data", "score them one after the other")


def open_asked(
    config: RunConfig,
    registry: Registry,
    paths: Sequence[str | DocumentsConfig],
    *,
    root: Path | None = None,
    own: Callable[[Sequence[Source]], None] = lambda sources: None,
    reads_more: bool = True,
    lacking: Collection[str] = (),
) -> list[Source]:
    """What a saved run is to continue: all documents of each, in their order, of which none needs an answer.

    Args:
        paths: as of ``open_named``, and so are ``root``, ``own``, ``reads_more`` and ``lacking``.

    Raises: as ``open_named``.
    """
    sources = []
    for one in paths:
        if (known := _known(config, one)) is None:
            sources.append(_open_as_it_is(config, registry, one, root, asked=True).whole())
            continue
        _refuse_root(root, known[0], str(one))
        with opened_before(reads_more=reads_more, lacking=lacking):
            sources.append(_open(config, registry, *known, asked=True).whole())
        own(sources[-1:])
    return distinct(sources, "--data", "name them one after the other")


def _refuse_root(root: Path | None, entry: DocumentsConfig, path: str) -> None:
    """Where the media of a source of the run are to be elsewhere than the run has them."""
    place = Path(entry.path)
    own = entry.root or (place if place.is_dir() else place.parent if place.is_file() else None)  # none if registered
    if root is not None and (own is None or root.resolve() != own.resolve()):
        where = f" ({own})" if own else ""
        raise ConfigError(
            f"--root: {path} is data of the run, whose run file says where its media are{where}; leave it out"
        )


def _open_as_it_is(
    config: RunConfig, registry: Registry, one: str | DocumentsConfig, root: Path | None, *, asked: bool = False
) -> Parts:
    """A source that is none of the run's. Where it is named by its path alone, columns are named so."""
    entry = SourceConfig(path=one) if isinstance(one, str) else one
    try:
        return _open(config, registry, entry.model_copy(update={"root": entry.root or root}), asked=asked)
    except DataError as error:
        if "columns: {" not in str(error) or not isinstance(one, str):
            raise
        named = one if re.fullmatch(r"[\w./~][\w./~+= -]*", one) else json.dumps(one, ensure_ascii=False)
        fields = shlex.quote(f"{{path: {named}, columns: ...}}")
        raise type(error)(f"{error}; on the command line that is --data {fields}") from error


def _known(config: RunConfig, path: str | DocumentsConfig) -> tuple[DocumentsConfig, str] | None:
    """Which source of the run has this path or name, and its place there; None where none has, or it is an entry."""
    if not isinstance(path, str):
        return None
    for place, entries in (("data.sources", config.data.sources), (SCORED, config.evaluate.sources)):
        for number, entry in enumerate(entries):
            known = (entry.path, entry.name or short_name(entry.path))
            if path in known or _place(Path(path)) == _place(Path(entry.path)):
                return entry, _place_of(number, place)
    return None


def _place(path: Path) -> Path:
    """A folder with a manifest is the manifest."""
    path = path.resolve()
    return path.parent if path.name == MANIFEST else path


def may_be(one: Path, other: Path) -> bool:
    """Whether a file has the name of another that is gone, or that is as long."""
    if one.name != other.name or not one.is_file():
        return False
    return not other.exists() or (other.is_file() and one.stat().st_size == other.stat().st_size)


def _open(
    config: RunConfig, registry: Registry, entry: DocumentsConfig, where: str = "", *, asked: bool = False
) -> Parts:
    """A source, which stands at ``where`` in the run file; empty where it does not."""
    share = entry.held_out if isinstance(entry, SourceConfig) and not asked else None
    parts = open_parts(
        entry.path,
        registry=registry,
        modalities=list(config.modalities),
        written=config.written,
        name=entry.name,
        template=entry.template,
        columns=entry.columns,
        root=entry.root,
        options=entry.options,
        where=where,
        asked=asked,
        chosen=Chosen.of(share, where) if isinstance(share, dict) else None,
        kept=None if entry.rows is None else Chosen.of(entry.rows, where, "rows"),
    )
    return own_share(parts, share, where) if isinstance(share, float) else parts


S = TypeVar("S", bound=Source)

FOLLOW = (
    "where data have moved, give data.sources.N.path=PATH (N from 0 on), with data.sources.N.name=NAME where they were "
    "called otherwise, or change it in the run's run.yaml"
)

NAME_SCORED = "give it another name (name: ... in the run file, evaluate.sources.N.name=... on the command line)"
NAME_THEM = "give one another name (name: ... in the run file, data.sources.N.name=... on the command line)"


def distinct(sources: list[S], where: str = "data.sources", advice: str = NAME_THEM) -> list[S]:
    """The sources. Raises ConfigError, with the advice, where two have one name."""
    names = [source.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{where}: two sources are called {name!r}; {advice}")
    return sources


def _sample_sets(config: RunConfig, registry: Registry) -> list[SourceConfig]:
    if not config.modalities:
        texts = [s.name for s in registry.specs("dataset").values() if isinstance(s, DatasetSpec) and not s.modalities]
        return [SourceConfig(path=name) for name in texts[:1]]
    sets = {name: cast(ModalitySpec, registry.get("modality", name)).sample_set for name in config.modalities}
    without = [name for name, its in sets.items() if its is None]
    if without:
        raise ConfigError(f"modality {without[0]} brings no sample set; name data with --data")
    return [SourceConfig(path=str(its)) for its in sets.values()]


def chats_among(sources: Sequence[SourceConfig]) -> str | None:
    """The first of a run's sources that is a file or folder of chats."""
    files = ((s, first_file(s.path), str(s.options.get("field", ""))) for s in sources if s.template is None)
    there = ((source, file, field) for source, file, field in files if file.exists())
    return next(
        (s.path for s, file, field in there if holds_chats(file, columns=one_each(s.columns)[0], field=field)), None
    )


def is_asked_as_learned(config: RunConfig, document: Document) -> bool:
    """Whether a prompt that is no chat may be what the run learned from: media alone, as captions have them, of a run
    some of whose sources are no chats."""
    texts = (part for part in document.segments if isinstance(part, Text))
    alone = [entry for entry in config.data.sources if chats_among([entry]) is None]
    return bool(alone) and not any(part.text.strip() for part in texts)


def spaced_answers(config: RunConfig, registry: Registry) -> bool:
    """Whether all that a run learned are answers of templates that put a space in front of them."""
    known = [*registry.specs("modality"), *config.modalities]
    templates = [source.template for source in config.data.sources]
    taken = Taken(written=tuple(config.written))  # else a template whose answer is a medium would have none
    return bool(templates) and all(
        t is not None and parse_template(t, known, {}, taken=taken).spaces_answer for t in templates
    )
