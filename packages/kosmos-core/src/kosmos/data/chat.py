"""A chat as training lays it out (``kosmos.data.sources.messages``), up to where the assistant's answer begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from kosmos.data.document import Document, Mark, Media, Segment, StoredMedia, Text
from kosmos.data.marks import ASSISTANT, END, SYSTEM, USER
from kosmos.data.sources.forms import GOES_ON, form_of
from kosmos.data.sources.glance import KINDS, first_columns
from kosmos.data.sources.layouts import CHATS


def chat_prompt(
    content: Sequence[Text | Media | StoredMedia],
    *,
    system: str = "",
    history: Sequence[tuple[Sequence[Text | Media | StoredMedia], str]] = (),
    origin: str = "chat",
) -> Document:
    """A document to continue with the assistant's answer: what training had in front of one, token for token.

    Args:
        content: the user's turn, text and media in order.
        system: of the system's turn; empty leaves that turn out.
        history: earlier turns, each the user's content and the assistant's answer.
        origin: what errors call it.

    Example:
        >>> from pathlib import Path
        >>> from kosmos import Media, Text, chat_prompt
        >>> prompt = chat_prompt([Media("image", Path("cat.png")), Text("What is this?")], system="Be brief.")
    """
    segments = list(_turn(SYSTEM, [Text(system)])) if system else []
    for asked, answer in history:
        segments += [*_turn(USER, asked), *_turn(ASSISTANT, [Text(answer)])]
    return Document(origin, (*segments, *_turn(USER, content), Mark(ASSISTANT)))


def _turn(role: str, content: Sequence[Text | Media | StoredMedia]) -> Iterator[Segment]:
    yield Mark(role)
    yield from (part for part in content if not isinstance(part, Text) or part.text)
    yield Mark(END)


def holds_chats(path: Path, *, columns: Mapping[str, str] = MappingProxyType({})) -> bool:
    """Whether the first row at ``path``, a file of rows or a folder with JSONL or parquet files, becomes a chat.

    A glance, for a hint: False where there is no such file, or it cannot be read.

    Args:
        columns: role to the column that holds it, where that is named otherwise.
    """
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
    except OSError:
        return False
    kinds = (".jsonl", ".parquet") if path.is_dir() else KINDS
    first = next((file for file in files if file.suffix.lower() in kinds and file.is_file()), None)
    found = set(first_columns(first)) if first is not None else set()

    def there(role: str) -> bool:
        return columns.get(role, role) in found

    if any(map(there, CHATS)):
        return True
    return "text" not in columns and form_of(there, there) not in (None, GOES_ON)
