"""How the row of a table becomes the segments of a document, where no template says it.

Four forms: ``segments`` (text and media in order), ``messages`` or ``conversations`` (a chat), media keys and ``text``
(the media first, then the text, trained), and ``text`` alone (trained). Those of other trainers are in ``forms``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from kosmos.data.document import Segment, Text
from kosmos.data.sources import chat_turns, forms, matched, messages, preferences, row_media, times, tools
from kosmos.data.sources.arrays import NO_MORE, Taken
from kosmos.data.sources.columns import (
    BY_TEMPLATE,
    Row,
    did_you_mean,
    is_empty,
    look_up,
    nested_tops,
    parse_path,
    require_column,
    text_value,
    top_column,
)
from kosmos.data.sources.file_column import FILE_NAME, named_file
from kosmos.data.sources.media import MediaRoot, holds_medium, missing_file, read_media
from kosmos.data.sources.media_columns import both_hold, in_order
from kosmos.data.sources.members import members_of
from kosmos.data.sources.ordered import is_interleaved, read_interleaved, read_segments, segment_kinds
from kosmos.data.sources.right_answers import (
    ANSWERS,
    REFERENCES,
    named_references,
    names_answers,
    reference_roles,
    right_answers,
    several,
)
from kosmos.data.sources.since import is_read_before
from kosmos.data.sources.splits import advice_on, field_of, split_roles, with_meaning
from kosmos.data.sources.token_numbers import told_of_columns
from kosmos.data.sources.weights import WEIGHT
from kosmos.data.sources.well_known import WELL_KNOWN, differ, is_medium
from kosmos.data.sources.wish_names import may_wish
from kosmos.errors import DataError, SampleError
from kosmos.names import nearest

CHATS = ("messages", "conversations")
"""Roles that a chat may stand under; the first that a row has."""
LISTS = ("clip", "segments", *CHATS, forms.TEXTS, "history", ANSWERS, REFERENCES)
"""Roles of lists."""
ROLES = ("text", "segments", *CHATS, *forms.ROLES, "system", *chat_turns.OFFERED, "id", "split", *times.ROLES)
"""Columns with a meaning beside the modalities' names; ``columns`` may rename each."""

LEARNED = ("text", *forms.ASKS.values(), ANSWERS, REFERENCES)
"""Roles of what is learned and of what is right, which a row that is asked may lack."""


@dataclass(frozen=True)
class DefaultLayout:
    """The four forms above."""

    modalities: tuple[str, ...]
    """Every modality that is installed or asked for."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Renames: role or modality to the column (or nested path) that holds it."""
    manifest: bool = False
    """Whether ``text`` only describes a row's ``file``, so that it never stands for the text of a missing one."""
    suffixes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Suffix to the modalities that may be meant by it, for media whose column or name says none."""
    asked: bool = False
    """Whether rows are there to be continued, so that none needs anything to learn."""
    timed: tuple[str, ...] = ()
    """Modalities whose media have time."""
    taken: Taken = NO_MORE
    """What processors take of what rows hold, beside files."""
    learn_last: bool = False
    """Whether of a chat the last turn of the assistant alone is learned."""
    spares: bool = field(default=False, repr=False)
    """Whether media that cannot be used are left out of documents that are no chats."""
    cuts: bool = field(default=False, repr=False)
    """Whether such documents are cut where they are longer than a row."""

    def column(self, role: str) -> str:
        """The column that stands for a role or a modality."""
        return self.columns.get(role, role)

    def value(self, row: Row, role: str) -> Any:
        """The value of a role; null where the row has none and none was asked for by name."""
        if role in self.columns and not (self.asked and role in LEARNED and self._top(role, row) not in row):
            return look_up(row, self.columns[role])
        return row.get(role)

    def check(self, columns: Collection[str]) -> None:
        for role, path in self.columns.items():
            if not (self.asked and role in LEARNED):
                require_column(path, columns, field_of(role), advice_on(role, path))
        if self._tops(("segments", *CHATS), columns) or self.form(columns):
            return
        if self.asked and (FILE_NAME in columns or self.media_tops(columns)):
            if not self._has_text(columns) and (unread := [name for name in forms.LIKE_ASKS if name in columns]):
                raise DataError(f"{unread[0]!r} beside media is not read{self._likely(columns)}")
        else:
            likely = self._likely(columns)
            if "text" not in self.columns and matched.likely_in_turn(columns, self.modalities):
                raise DataError(f"text: no column 'text'{likely}")  # none of those that are nearest in name
            name_it = f"; name it (columns: {{text: COLUMN}}) or write a template{likely}"
            numbers = "" if likely else told_of_columns(columns)
            advice = "" if "text" in self.columns else numbers or name_it
            require_column(self.column("text"), columns, "text", advice, is_known=bool(likely))

    def _likely(self, columns: Collection[str]) -> str:
        """What may be meant by columns that have no form; empty where nothing is likely."""
        if in_turn := matched.likely_in_turn(columns, self.modalities):
            return f"; texts and media in turn are {in_turn}"
        if preferences.CHOSEN in columns:
            return f"; {preferences.CHOOSE}"
        if pair := forms.likely_columns(columns, self.columns):
            return f"; a question and its answer are {pair}"
        if text := forms.likely(columns, forms.LIKE_TEXTS):
            return f"; if that is {text}: {forms.written({**self.columns, 'text': text})}"
        found = self._misspelt(("segments", *CHATS), columns)
        if found:
            return "; did you mean columns: {{{}: {}}}?".format(*found)
        return f"; {half}" if (half := forms.half_form(columns, self.column)) else ""

    def _misspelt(self, roles: Collection[str], columns: Collection[str]) -> tuple[str, str] | None:
        """A role and the column that seems to be meant by it, of those that mean nothing else."""
        known = {*ROLES, FILE_NAME, *self.modalities, *(plural for _, plural in self._plurals), *WELL_KNOWN}
        near = ((role, nearest(role, set(columns) - known)) for role in roles)
        return next(((role, column) for role, column in near if column is not None), None)

    def used(self, columns: Collection[str]) -> set[str]:
        named = [self.columns[modality] for modality in self.timed if modality in self.columns]
        beside = times.columns_of(self.timed, named, columns)
        beside_question = forms.BELONG | forms.telling(columns) if ANSWERS in columns else forms.BELONG
        belong = beside_question.intersection(columns) if self._tops([forms.QUESTION], columns) else ()
        roles = self._roles((*ROLES, *reference_roles(self.columns), WEIGHT), columns)
        tops = self._tops((*roles, *split_roles(self.columns), FILE_NAME, messages.OBJECTS), columns)
        return {*tops, *belong, *self.media_tops(columns), *beside, *preferences.preferences_in(columns)}

    def scanned(self, columns: Collection[str], plain: Collection[str] = ()) -> tuple[list[str], list[str]]:
        light = self._tops((*split_roles(self.columns), "segments", *CHATS, FILE_NAME), columns)
        absent = [column for column in self._absent if column in columns]
        # What stands there tells whether it is a medium, and what is wished of media.
        light += [c for c in plain if c in absent or (may_wish(c) and c not in light)]
        return light, [top for top in (*self.media_tops(columns), *absent) if top not in light]

    def nested(self, columns: Collection[str]) -> set[str]:
        lists = LISTS[:-1] if len(reference_roles(self.columns)) > 1 else LISTS  # of several columns each holds a text
        tops = {*self._tops(self._roles(lists, columns), columns), *self.media_tops(columns)}
        texts = {
            path for role, path in self.columns.items()
            if role not in (*lists, *self.modalities) and not names_answers(path, self.columns)
        }  # fmt: skip
        tops |= {path for path in self.columns.values() if names_answers(path, self.columns) and path in columns}
        return (tops - texts) | nested_tops(self.columns.values(), columns)

    def _roles(self, roles: Collection[str], columns: Collection[str]) -> list[str]:
        """``roles`` without those that mean nothing in a table of such columns."""
        means = {name: name in self.columns for name in (REFERENCES, WEIGHT)}
        means[ANSWERS] = self._answer_of(forms.QUESTION, columns) == ANSWERS
        return [role for role in roles if means.get(role, True)]

    def media_tops(self, columns: Collection[str]) -> list[str]:
        """The columns that may hold media."""
        tops = self._tops(self.modalities, columns)
        return tops + [plural for _, plural in self._plurals if plural in columns and plural not in tops]

    @cached_property
    def _absent(self) -> dict[str, str]:
        """``WELL_KNOWN`` columns that neither an installed modality nor ``columns`` gives a meaning."""
        named = {path for whole in with_meaning(self.columns).values() for path in (whole, str(parse_path(whole)[0]))}
        return {c: m for c, m in WELL_KNOWN.items() if m not in self.modalities and c not in named}

    def _absent_media(self, row: Row) -> frozenset[str]:
        """The modalities of what those hold."""
        if self._absent.keys().isdisjoint(row):  # as of most rows
            return frozenset()
        return frozenset(m for column, m in self._absent.items() if column in row and is_medium(row[column]))

    def _tops(self, roles: Collection[str], columns: Collection[str]) -> list[str]:
        """The columns that hold some roles, each once."""
        tops = dict.fromkeys(top_column(self.column(role), columns) for role in roles)
        return [top for top in tops if top in columns]

    def media_of(self, row: Row) -> dict[str, str]:
        """Modalities whose column holds something, each with it, in the row's order. Of rows without a chat.

        Raises:
            SampleError: the singular and the plural both hold media, or nobody knows what a file is.
        """
        there: dict[str, str] = {}
        for modality, plural in self._plurals:
            own = self._top(modality, row)
            if holds_medium(row.get(own)):
                there[modality] = own
            if plural in row and modality not in self.columns and holds_medium(row[plural]):
                if modality in there:
                    raise both_hold(modality, own, plural)
                there[modality] = plural
        if not there:
            return named_file(row, self.suffixes)
        if len(there) < 2:
            return there
        return in_order(there, row)

    @cached_property
    def _plurals(self) -> list[tuple[str, str]]:
        """Modalities with the columns that several of their media may stand under."""
        return [(modality, f"{modality}s") for modality in self.modalities]

    def _top(self, role: str, columns: Collection[str]) -> str:
        """The column of a row that a role's or a modality's value is in."""
        path = self.columns.get(role)
        return role if path is None else top_column(path, columns)

    def chat(self, row: Row) -> tuple[Any, str] | None:
        """The turns of the row's chat, and the column that they stand in."""
        return next(
            ((turns, self.column(role)) for role in CHATS if (turns := self.value(row, role)) is not None), None
        )

    def form(self, columns: Collection[str], holds: Callable[[str], bool] = lambda column: True) -> str | None:
        """As ``forms.form_of``, by columns; None where one was named for the text."""
        if "text" in self.columns:
            return None

        def there(role: str) -> bool:
            return self._top(role, columns) in columns

        def answered(ask: str) -> bool:
            # A question without an answer; beside a text, which is the answer there, it says nothing in training.
            return there(self._answer_of(ask, columns)) or (self.asked and not self._has_text(columns))

        return forms.form_of(answered, lambda role: there(role) and holds(self._top(role, columns)), columns)

    def _answer_of(self, ask: str, columns: Collection[str]) -> str:
        """As ``forms.answer_of``, by columns."""
        return forms.answer_of(ask, lambda role: self._top(role, columns) in columns, columns, self.columns)

    def _has_text(self, columns: Collection[str]) -> bool:
        """Whether there is a column of texts, and where a row is given something in it."""
        column = self.column("text")
        return column in columns and not (isinstance(columns, Mapping) and is_empty(columns[column]))

    def _chat_media(self, row: Row) -> dict[str, str]:
        """Modality to the column that the row's chat takes media from: one that was named, else one in the plural."""
        found: dict[str, str] = {}
        for modality, path, plain in self._chat_columns:
            if not holds_medium(row.get(path if plain else top_column(path, row))):
                continue
            if modality in found and modality not in self.columns and differ(row.get(found[modality]), row.get(path)):
                raise both_hold(modality, found[modality], path)
            found.setdefault(modality, path)
        if len(found) < 2:
            return found or named_file(row, self.suffixes)
        return in_order(found, row)

    @cached_property
    def _chat_columns(self) -> list[tuple[str, str, bool]]:
        """Modalities with the columns that chats may take their media from, in order; whether that is a plain name."""
        found = []
        for modality, plural in self._plurals:
            asked = self.column(modality)
            paths = (asked, plural) if modality in self.columns else (plural, asked)
            found += [(modality, path, path.isidentifier()) for path in paths]
        return found

    @cached_property
    def _beside_text(self) -> frozenset[str] | None:
        """Columns without which a row is text alone; None where one of them is named otherwise."""
        plurals = (plural for _, plural in self._plurals)
        columns = frozenset(("segments", *CHATS, FILE_NAME, *self.modalities, *plurals, *self._absent))
        return columns if columns.isdisjoint(self.columns) else None

    def needs(self, row: Row) -> frozenset[str]:
        if self._beside_text is not None and self._beside_text.isdisjoint(row):
            return frozenset()
        if (parts := self.value(row, "segments")) is not None:
            return frozenset(kind for kind, _ in segment_kinds(parts) if kind != "text")
        if (chat := self.chat(row)) is not None:
            # What the row's own columns hold is needed too: where no turn takes it, the row is refused.
            needed = messages.needs(*chat, self.modalities) | self._chat_media(row).keys()
        else:
            needed = frozenset(self.media_of(row))
        return needed | self._absent_media(row) if self._absent else needed

    def segments(self, row: Row, root: Path) -> tuple[Segment, ...]:
        files = MediaRoot(root, self.suffixes, self.taken, members_of(row))
        if (parts := self.value(row, "segments")) is not None:
            return tuple(read_segments(parts, files, self._times(row)))
        if (chat := self.chat(row)) is not None:
            self._check_no_preference(row, next(role for role in CHATS if self.value(row, role) is not None))
            return self._read_chat(*chat, self._row_media(row, self._chat_media(row)), row, files)
        media = self.media_of(row)
        form = self.form(row, lambda column: row[column] is not None)
        answer = self._answer_of(form, row) if form in forms.ASKS else ""
        if answer:
            self._check_no_preference(row, answer)
        if form == forms.TEXTS and self.is_in_turn(row, media):
            return tuple(self._interleaved(row, media, files))
        if form is not None and form != forms.GOES_ON:
            held = self._row_media(row, {m: self.columns.get(m, column) for m, column in media.items()})
            turns = forms.turns(form, partial(self.value, row), self.column, answer, asked=self.asked, row=row)
            return self._read_chat(turns, self.column(form), held, row, files)
        found = ((m, look_up(row, self.columns.get(m, column))) for m, column in media.items())
        leading = [medium for one in found for medium in self._read_value(row, files, *one)]
        if form is not None:
            return (*leading, *forms.going_on(partial(self.value, row), self.column, answer, asked=self.asked, row=row))
        if self.manifest and not media and row.get("file") is not None:
            raise SampleError(missing_file(row["file"], root))
        if leading and self.asked and is_empty(self.value(row, "text")):
            return tuple(leading)
        return (*leading, self._learned(row))

    def references(self, row: Row) -> tuple[str, ...]:
        if REFERENCES in self.columns:
            return named_references(partial(self.value, row), self.columns)
        if ANSWERS not in row and ANSWERS not in self.columns:  # as of most rows
            return ()
        is_whole = self.value(row, "segments") is not None or self.chat(row) is not None
        form = None if is_whole else self.form(row, lambda column: row[column] is not None)
        role = self._answer_of(form, row) if form in forms.ASKS else ""
        if not role or not names_answers(self.column(role), self.columns):
            return ()
        return several(right_answers(self.value(row, role), self.column(role)))

    def is_in_turn(self, row: Row, media: Mapping[str, str]) -> bool:
        """Whether a row's ``texts`` stand in turn with ``media``, or alone."""
        if not is_interleaved(self.value(row, forms.TEXTS)):
            return False
        return bool(self._media_lists(row)) or not (media or is_read_before())

    def _interleaved(self, row: Row, media: Mapping[str, str], files: MediaRoot) -> Iterator[Segment]:
        texts, column = self.value(row, forms.TEXTS), self.column(forms.TEXTS)
        if not is_empty(self.value(row, "system")):
            raise SampleError(f"{self.column('system')}: {column} is no chat, and has no turn of a system")
        beside = self._media_lists(row)
        beside |= {m: (column, row.get(column)) for m, column in media.items() if m not in beside}
        between = matched.BETWEEN if (is_matched := matched.is_matched(beside)) else "\n"
        if is_matched:
            texts, beside = matched.in_turn(texts, column, beside)
        return read_interleaved(texts, column, beside, partial(self._read_value, row, files), between)

    def _media_lists(self, row: Row) -> dict[str, tuple[str, Any]]:
        """Modality to its column, of those that hold a list, and to what it holds: null alone, too. An empty list is
        none, as null is."""
        held: dict[str, tuple[str, Any]] = {}
        for modality, path, plain in self._chat_columns:
            if modality not in held and (path if plain else top_column(path, row)) in row:
                value = self.taken.media(modality, look_up(row, path))
                is_list = isinstance(value, list | tuple) and (len(value) > 0 or is_read_before())
                held |= {modality: (path, value)} if is_list else {}
        return held

    def _read_value(self, row: Row, root: MediaRoot, modality: str, value: Any) -> Iterator[Segment]:
        clip = self._times(row).clip(modality, value)
        return read_media(modality, value, root, clip, has_time=modality in self.timed)

    def _times(self, row: Row) -> times.RowTimes:
        return times.RowTimes(row, self.columns, self.timed)

    def _read_chat(
        self, turns: Any, name: str, held: row_media.RowMedia, row: Row, root: MediaRoot
    ) -> tuple[Segment, ...]:
        """As ``messages.read``, with what stands beside the chat."""
        offers = [tools.offered(self.value(row, role), self.column(role)) for role in chat_turns.OFFERED]
        beside = {"system": self.value(row, "system"), "tools": "".join(offers), "objects": messages.OBJECTS in row}
        return tuple(messages.read(turns, name, held, root, **beside, asked=self.asked, last_alone=self.learn_last))

    def _check_no_preference(self, row: Row, role: str) -> None:
        """Raises SampleError where a row tells good answers from bad ones, and nobody has said which are learned."""
        if not self.asked and role not in self.columns:
            preferences.check_no_preference(row, role)

    def _learned(self, row: Row) -> Text:
        """The text of a row."""
        column = self.column("text")
        if "text" not in self.columns and column not in row:
            likely = self._likely(row) or told_of_columns(row) or did_you_mean(column, row)
            raise SampleError(f"no {column!r}{likely}")
        text = text_value(self.value(row, "text"), column, BY_TEMPLATE)
        if not text.strip():
            raise SampleError(f"{column} is empty")
        return Text(text, train=True)

    def _row_media(self, row: Row, columns: Mapping[str, str]) -> row_media.RowMedia:
        """What a chat takes media from: modality to column."""
        held = {name: (path, self.taken.media(name, look_up(row, path))) for name, path in columns.items()}
        # Of a column that is there and empty, too, a text may want a medium, which is then missing.
        wanted = ((m, path) for m, path, plain in self._chat_columns if plain and m not in held)
        # A table writes null where a picture is missing: trained as text, the model would learn to answer without it.
        empty = {modality: (path, None) for modality, path in wanted if path in row}
        return row_media.RowMedia({**empty, **held}, self._times(row), self.modalities)
