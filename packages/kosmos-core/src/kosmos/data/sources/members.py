"""The files of a sample of an archive, as its ``.json`` names them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kosmos.data.document import FileSpan
from kosmos.data.sources.columns import Row, texts_in
from kosmos.errors import SampleError
from kosmos.names import listed


@dataclass(frozen=True)
class Members:
    """Media of one sample. A name means one of them or nothing: those of other samples cannot be named."""

    key: str
    """The sample's."""
    files: Mapping[str, int]
    """Suffix to the number of the file."""
    place: Callable[[int], FileSpan]
    """Where a file of a number lies."""

    def suffix(self, name: str) -> str | None:
        """The suffix of the medium that a name means, with or without the folder of the sample; None where it means
        none of them."""
        key, suffix = parted(name)
        is_own = key in (self.key, self.key.rpartition("/")[2])
        return suffix if is_own and suffix in self.files else None

    def find(self, name: str) -> FileSpan | None:
        """Where the medium of a name lies; None where it means none of them.

        Raises:
            SampleError: it cannot be read.
        """
        suffix = self.suffix(name)
        return None if suffix is None else self.place(self.files[suffix])

    def named(self, value: Any) -> set[str]:
        """Suffixes of those that the texts in a value are the names of."""
        return {suffix for text in texts_in(value) if (suffix := self.suffix(text)) is not None}

    def __str__(self) -> str:
        return listed((f".{suffix}" for suffix in self.files), at_most=8)


class SampleRow(dict[str, Any]):
    """A row whose media may be named as files of its sample."""

    members: Members | None = None


def members_of(row: Row) -> Members | None:
    """Those of a row of an archive; None of other rows."""
    return row.members if isinstance(row, SampleRow) else None


def parted(name: str) -> tuple[str, str]:
    """A file's name up to the first dot of its last part, and what is behind it; "" where it is hidden or has none."""
    folder, slash, last = name.rpartition("/")
    stem, _, suffix = last.partition(".")
    return (f"{folder}{slash}{stem}".removeprefix("./"), suffix.lower()) if stem and suffix else ("", "")


def named_at_places(
    members: Members, said: Row, places: int, columns: Collection[str], beside: Collection[str]
) -> bool:
    """Whether a ``.json`` that has texts and media in turn names those of one modality in a list as long as the texts.

    Args:
        places: how many texts there are.
        columns: of the media, the first that is there counts.
        beside: suffixes of the sample's media of the modality.

    Raises:
        SampleError: the list leaves one of them out.
    """
    column = next((name for name in columns if said.get(name)), None)
    held = said.get(column) if column else None
    if not (isinstance(held, list) and len(held) == places):
        return False
    if lost := [suffix for suffix in beside if suffix not in members.named(held)]:
        named = listed((f".{suffix}" for suffix in lost), at_most=8)
        raise SampleError(f"holds {named}, which {column} does not name; name each at its place, or leave it out")
    return True
