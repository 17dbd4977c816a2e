"""A chat as training lays it out (``kosmos.data.sources.messages``), up to where the assistant's answer begins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kosmos.data.document import Codes, Document, Mark, Media, Segment, StoredMedia, Text
from kosmos.data.marks import ASSISTANT, END, SYSTEM, USER
from kosmos.data.sources.file_names import rows_suffix
from kosmos.data.sources.folders import MANIFEST, METADATA
from kosmos.data.sources.forms import BELONG, GOES_ON, ROLES, TELL, TEXTS, answer_of, form_of
from kosmos.data.sources.glance import KINDS, first_values
from kosmos.data.sources.json_list import hold_lines
from kosmos.data.sources.layouts import CHATS
from kosmos.data.sources.ordered import is_interleaved
from kosmos.data.sources.pairs_of_answers import PairLayout, may_hold_pairs
from kosmos.errors import NoSuchPart

Part = Text | Media | StoredMedia | Codes
"""What a turn is made of."""


def chat_prompt(
    content: str | Sequence[Part],
    *,
    system: str = "",
    history: Sequence[tuple[str | Sequence[Part], str | Sequence[Part]]] = (),
    origin: str = "chat",
) -> Document:
    """A document to continue with the assistant's answer: what training had in front of one, token for token.

    Args:
        content: the user's turn, text and media in order; a string is one text.
        system: of the system's turn; empty leaves that turn out.
        history: earlier turns, each the user's content and the assistant's answer. A medium that the assistant has said
            is ``Codes``, or a ``Media`` that is ``written``.
        origin: what errors call it.

    Raises:
        NoSuchPart: an argument, or a part of one, is something else than its type says.

    Example:
        >>> from pathlib import Path
        >>> from kosmos import Media, Text, chat_prompt
        >>> prompt = chat_prompt([Media("image", Path("cat.png")), Text("What is this?")], system="Be brief.")
    """
    segments = list(_turn(SYSTEM, [_said("system", system)])) if system else []
    for place, (asked, answer) in enumerate(_pairs(history)):
        segments += _turn(USER, _content(f"history[{place}][0]", asked))
        segments += _turn(ASSISTANT, _content(f"history[{place}][1]", answer))
    return Document(origin, (*segments, *_turn(USER, _content("content", content)), Mark(ASSISTANT)))


def _pairs(history: object) -> list[tuple[Any, Any]]:
    if not isinstance(history, list | tuple):
        raise NoSuchPart(f"history: expected a list of pairs (question, answer), got {history!r:.60}")
    for place, turn in enumerate(history):
        if not isinstance(turn, list | tuple) or len(turn) != 2:
            raise NoSuchPart(f"history[{place}]: expected a pair (question, answer), got {turn!r:.60}")
    return [(asked, answer) for asked, answer in history]


def _content(name: str, given: object) -> Sequence[Part]:
    if isinstance(given, str):
        return [Text(given)]
    if not isinstance(given, list | tuple):
        raise NoSuchPart(f"{name}: expected a string or a list of Text and Media, got {given!r:.60}")
    for place, part in enumerate(given):
        if not isinstance(part, Part):
            raise NoSuchPart(f"{name}[{place}]: expected Text, Media or Codes, got {part!r:.60}")
    return given


def _said(name: str, given: object) -> Text:
    if not isinstance(given, str):
        raise NoSuchPart(f"{name}: expected a string, got {given!r:.60}")
    return Text(given)


def _turn(role: str, content: Sequence[Part]) -> Iterator[Segment]:
    yield Mark(role)
    yield from (part for part in content if not isinstance(part, Text) or part.text)
    yield Mark(END)


def holds_chats(path: Path, *, columns: Mapping[str, str] = MappingProxyType({}), field: str = "") -> bool:
    """Whether the first row at ``path``, a file of rows or a folder with JSON or parquet files, becomes a chat.

    A glance, for a hint: False where there is no such file, or it cannot be read.

    Args:
        columns: role to the column that holds it, where that is named otherwise.
        field: key of the list of rows, of a JSON file that is an object around one.
    """
    try:
        first = _rows_of(path) if path.is_dir() else path
    except OSError:
        return False
    if first is None or rows_suffix(first.name) not in KINDS or not first.is_file():
        return False
    roles = {role: columns.get(role, role) for role in ("segments", *CHATS, *ROLES)}
    pairs = PairLayout((), columns)
    row = first_values(first, {*roles.values(), *BELONG, *TELL, *pairs.answers}, field)

    def there(role: str) -> bool:
        return roles[role] in row

    def holds(role: str) -> bool:
        return row.get(roles[role]) is not None

    def answered(ask: str) -> bool:
        return there(answer_of(ask, there, row, columns))

    if holds("segments"):
        return False
    if any(map(holds, CHATS)):
        return True
    form = None if "text" in columns else form_of(answered, holds, row)
    if may_hold_pairs(columns) and pairs.is_chat({name: "?" if value == "" else value for name, value in row.items()}):
        return True
    return form not in (None, GOES_ON) and not (form == TEXTS and is_interleaved(row[roles[TEXTS]]))


def _rows_of(folder: Path) -> Path | None:
    """The file in which the rows of a folder begin; None where its files themselves are the data."""
    if (manifest := folder / MANIFEST).is_file():
        return manifest
    files = sorted(folder.iterdir())
    stems = Counter(file.stem for file in files)
    if any(file.suffix.lower() == ".txt" and stems[file.stem] > 1 for file in files):  # media with texts beside them
        return None
    listed = [file for file in files if file.name in METADATA]
    rows = [file for file in files if rows_suffix(file.name) in (".jsonl", ".parquet") and file.is_file()]
    lists = [file for file in files if rows_suffix(file.name) == ".json"] if not rows else []
    return next(iter([*listed, *rows, *(lists if hold_lines(lists) else ())]), None)
