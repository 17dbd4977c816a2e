"""Templates: the layout of a document as one string.

    "[image] Question: {question} Answer: → {answers.text[0]}"

``[image]`` or ``[image:column]`` is a medium, ``{column}`` a value (both with nested paths), ``→`` or ``=>`` the point
from which the loss counts; without one it counts everywhere. An object becomes its JSON, and so does a list that
holds objects or lists. ``[[``, ``{{`` and ``}}`` stand for the brackets themselves. Spaces around a medium and around
the arrow only set them apart: the text beside a medium begins and ends without one, and the answer takes one space in
front where the question does not end a line.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kosmos.data.document import Segment, Text
from kosmos.data.sources import times
from kosmos.data.sources.arrays import NO_MORE, Taken
from kosmos.data.sources.columns import (
    Row,
    did_you_mean,
    look_up,
    nested_tops,
    parse_path,
    require_column,
    top_column,
)
from kosmos.data.sources.json_written import written
from kosmos.data.sources.media import MediaRoot, holds_medium, read_media
from kosmos.data.sources.members import members_of
from kosmos.data.sources.right_answers import (
    REFERENCES,
    learned_answer,
    named_references,
    names_answers,
    reference_roles,
    right_answers,
    several,
)
from kosmos.data.sources.splits import CHOSEN, GROUP, KEPT, field_of, split_roles
from kosmos.data.sources.weights import WEIGHT, named_weight
from kosmos.data.sources.wish_names import may_wish
from kosmos.data.sources.written_media import as_written, is_learned, whole
from kosmos.errors import ConfigError, SampleError


@dataclass(frozen=True)
class Literal:
    """Text of the template itself."""

    text: str


@dataclass(frozen=True)
class Value:
    """A column's value as text."""

    path: str


@dataclass(frozen=True)
class Medium:
    """A column's media."""

    modality: str
    path: str


@dataclass(frozen=True)
class Arrow:
    """The point from which the loss counts."""


Part = Literal | Value | Medium | Arrow

_TOKEN = re.compile(
    r"(?P<escape>\[\[|\{\{|\}\})"
    r"|(?P<arrow> *(?:→|=>) *)"
    r"|(?P<medium> *\[(?P<modality>[a-z][a-z0-9_-]*)(?::(?P<column>(?:[^\[\]]|\[[^\[\]]*\])+))?\] *)"
    r"|(?P<open>\[[a-z][a-z0-9_-]*)"
    r"|\{(?P<value>[^{}]+)\}"
    r"|(?P<stray>[{}])"
    r"|(?P<text>[^\[{} →=]+|.)",
    re.DOTALL,
)


@dataclass(frozen=True)
class TemplateLayout:
    """A parsed template (a ``Layout``)."""

    parts: tuple[Part, ...]
    columns: Mapping[str, str]
    timed: tuple[str, ...] = ()
    """Modalities whose media have time."""
    suffixes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Suffix to the modalities that may be meant by it, for media whose name has none."""
    taken: Taken = NO_MORE
    """What processors take of what rows hold, beside files."""

    @property
    def spaces_answer(self) -> bool:
        """Whether what is learned begins with a space of the template."""
        arrow = next((number for number, part in enumerate(self.parts) if isinstance(part, Arrow)), len(self.parts))
        first = next(iter(self.parts[arrow + 1 :]), None)
        return isinstance(first, Literal) and first.text.startswith(" ")

    def check(self, columns: Collection[str]) -> None:
        for part in self.parts:
            if isinstance(part, Value | Medium):
                require_column(part.path, columns, "template")
        for role in (GROUP, CHOSEN, KEPT, *reference_roles(self.columns), WEIGHT):
            if role in self.columns:
                require_column(self.columns[role], columns, field_of(role))

    def used(self, columns: Collection[str]) -> set[str]:
        media = [part.path for part in self.parts if isinstance(part, Medium) and part.modality in self.timed]
        paths = [*self._paths(), *times.columns_of(self.timed, media, columns)]
        paths += [self.columns.get(role, role) for role in (*split_roles(self.columns), *times.ROLES)]
        paths += [*self._named_references, *named_weight(self.columns)]
        return {top for path in paths if (top := top_column(path, columns)) in columns}

    def _paths(self) -> list[str]:
        return [part.path for part in self.parts if isinstance(part, Value | Medium)]

    def scanned(self, columns: Collection[str], plain: Collection[str] = ()) -> tuple[list[str], list[str]]:
        paths = [self.columns.get(role, role) for role in split_roles(self.columns)]
        light = [top for path in paths if (top := top_column(path, columns)) in columns]
        return [*light, *(column for column in plain if may_wish(column) and column not in light)], []

    def nested(self, columns: Collection[str]) -> set[str]:
        media = [part.path for part in self.parts if isinstance(part, Medium)]
        answers = [
            part.path for part in self.parts if isinstance(part, Value) and names_answers(part.path, self.columns)
        ]
        named = self._named_references if len(self._named_references) < 2 else ()  # of several each holds a text
        lists = (*media, *answers, self.columns.get("clip", "clip"), *named)
        tops = {top_column(path, columns) for path in lists}
        paths = [part.path for part in self.parts if isinstance(part, Value | Medium)]
        return {top for top in tops if top in columns} | nested_tops(paths, columns)

    def needs(self, row: Row) -> frozenset[str]:
        del row  # every document of a template has the same form
        return frozenset(part.modality for part in self.parts if isinstance(part, Medium))

    def segments(self, row: Row, root: Path) -> tuple[Segment, ...]:
        segments = list(_join(self._pieces(row, MediaRoot(root, self.suffixes, self.taken, members_of(row)))))
        if not any((isinstance(s, Text) and s.train and s.text.strip()) or is_learned(s) for s in segments):
            raise SampleError("template: there is no text behind the arrow, so nothing to learn")
        return tuple(segments)

    def references(self, row: Row) -> tuple[str, ...]:
        if REFERENCES in self.columns:
            return named_references(lambda role: look_up(row, self.columns[role]), self.columns)
        path = next((part.path for part in self._learned if self._is_of_several(part)), None)
        return () if path is None else several(right_answers(look_up(row, path), path))

    @property
    def _named_references(self) -> list[str]:
        return [self.columns[role] for role in reference_roles(self.columns)]

    @property
    def _learned(self) -> Iterator[Value]:
        """What of the row is learned as text."""
        arrow = next((number for number, part in enumerate(self.parts) if isinstance(part, Arrow)), -1)
        return (part for part in self.parts[arrow + 1 :] if isinstance(part, Value))

    @property
    def learned_paths(self) -> list[str]:
        """The columns of that."""
        return [part.path for part in self._learned]

    def _is_of_several(self, part: Value) -> bool:
        """Whether it is one of several right answers, where it is learned."""
        return names_answers(part.path, self.columns)

    def _pieces(self, row: Row, root: MediaRoot) -> Iterator[Segment]:
        train, answers = not any(isinstance(part, Arrow) for part in self.parts), False
        stretches = times.RowTimes(row, self.columns, self.timed, self._paths())
        for part in self.parts:
            match part:
                case Arrow():
                    train = answers = True
                case Literal(text):
                    yield Text(text, train)
                case Value(path):
                    value, is_one_of_several = look_up(row, path), train and self._is_of_several(part)
                    yield Text(learned_answer(value, path) if is_one_of_several else written(row, path, value), train)
                case Medium(modality, path):
                    value = look_up(row, path)
                    if not holds_medium(value):
                        raise SampleError(f"{path}: holds no {modality}")
                    clip = stretches.clip(modality, value, path)
                    media = read_media(modality, value, root, clip, has_time=modality in self.timed)
                    learned = whole(media, modality, root.taken) if answers else media
                    yield from as_written(learned, root.taken, train=True) if answers else media


def _join(pieces: Iterator[Segment]) -> Iterator[Segment]:
    """Join texts that follow one another and are trained alike, so that they are tokenized as one."""
    pending: Text | None = None
    for piece in pieces:
        if isinstance(piece, Text) and pending is not None and piece.train == pending.train:
            pending = Text(pending.text + piece.text, piece.train)
            continue
        if pending is not None and pending.text:
            yield pending
        pending = piece if isinstance(piece, Text) else None
        if pending is None:
            yield piece
    if pending is not None and pending.text:
        yield pending


def _is_learned(part: Part, taken: Taken) -> bool:
    """Whether something is learned of what stands where answers do."""
    match part:
        case Literal(text):
            return bool(text.strip())
        case Medium(modality):
            return modality in taken.written
    return isinstance(part, Value)


def parse_template(
    template: str,
    modalities: Sequence[str],
    columns: Mapping[str, str],
    timed: Sequence[str] = (),
    suffixes: Mapping[str, tuple[str, ...]] | None = None,
    taken: Taken = NO_MORE,
) -> TemplateLayout:
    """Read a template.

    Args:
        modalities: those that are installed or asked for.
        columns: column names of modalities (``[image]``) and of values (``{text}``), where they are named otherwise.
        timed: modalities whose media have time.
        suffixes: suffix to the modalities that may be meant by it.
        taken: what processors take of what rows hold, beside files.

    Raises:
        ConfigError: an unknown modality, a stray brace or bracket, two arrows or what looks like one, no text, or
            nothing of the row.
    """
    parts: list[Part] = []
    for match in _TOKEN.finditer(template):
        _add(parts, match, modalities, columns)
    if sum(isinstance(part, Arrow) for part in parts) > 1:
        raise ConfigError(f"template {template!r}: more than one →; the loss counts from one point on")
    if not any(isinstance(part, Medium | Value) for part in parts):
        raise ConfigError(
            f"template {template!r}: names no column ({{column}}) and no medium ([image]), so all rows would say the "
            "same; how turns of chats are spelled stands in tokenizer.turns"
        )
    arrow = next((n for n, part in enumerate(parts) if isinstance(part, Arrow)), -1)
    if arrow < 0 and any(isinstance(part, Literal) and "->" in part.text for part in parts):
        raise ConfigError(
            f"template {template!r}: '->' is text; write → or => where the answer begins, in front of all if all is "
            "to be learned"
        )
    if not any(_is_learned(part, taken if arrow >= 0 else NO_MORE) for part in parts[arrow + 1 :]):
        raise ConfigError(
            f"template {template!r}: no text {'behind the →' if arrow >= 0 else 'in it'}: nothing to learn"
        )
    return TemplateLayout(tuple(parts), dict(columns), tuple(timed), suffixes or {}, taken)


def _add(parts: list[Part], match: re.Match[str], modalities: Sequence[str], columns: Mapping[str, str]) -> None:
    if match["medium"]:
        modality = match["modality"]
        if modality not in modalities:
            raise ConfigError(
                f"template: [{modality}] is no installed modality{did_you_mean(modality, modalities)}; "
                "write [[ for a bracket"
            )
        _strip_end(parts)
        path = match["column"] or columns.get(modality, modality)
        parse_path(path)
        parts.append(Medium(modality, path))
    elif match["arrow"]:
        _strip_end(parts)
        parts.append(Arrow())
        if match["arrow"].strip(" ") != match["arrow"] and _wants_space(parts):
            _text(parts, " ")
    elif match["open"] and match["open"][1:] in modalities:
        raise ConfigError(f"template: {match['open']!r} without its ]; write [[ for a bracket")
    elif match["value"]:
        path = columns.get(match["value"], match["value"])
        parse_path(path)
        parts.append(Value(path))
    elif match["stray"]:
        raise ConfigError(f"template: {match['stray']!r} without its partner; write {match['stray'] * 2} for a brace")
    else:
        _text(parts, match["escape"][0] if match["escape"] else match[0])


def _text(parts: list[Part], text: str) -> None:
    if parts and isinstance(last := parts[-1], Literal):
        parts[-1] = Literal(last.text + text)
    else:
        parts.append(Literal(text))


def _strip_end(parts: list[Part]) -> None:
    """Take spaces off the end of the text so far."""
    if parts and isinstance(last := parts[-1], Literal):
        parts[-1:] = [Literal(kept)] if (kept := last.text.rstrip(" ")) else []


def _wants_space(parts: Sequence[Part]) -> bool:
    """Whether the text in front of the arrow, the last part, goes on in the same line."""
    before = parts[-2] if len(parts) > 1 else None
    return isinstance(before, Value) or (isinstance(before, Literal) and not before.text.endswith("\n"))
