"""The options of sources that are files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from kosmos.data.sources.columns import did_you_mean
from kosmos.data.sources.textfiles import CHUNK_CHARS
from kosmos.errors import ConfigError
from kosmos.names import unspaced

BAD_SAMPLE = "bad_sample"
PAGE_OPTIONS = {"missing_media": "leave_out", "long_documents": "cut"}
"""Options of documents of texts and media in order, with what each may be beside ``bad_sample``."""


@dataclass(frozen=True)
class FileOptions:
    """Options of sources that are files."""

    chunk_chars: int = CHUNK_CHARS
    """Most characters of a document that is cut from a text file."""
    max_text_bytes: int = 4 << 20
    """Most bytes of text in a document; a row with more is refused."""
    learn: str = "all"
    """Which turns of the assistant are learned of a chat: ``all``, or the ``last`` one alone."""
    missing_media: str = "bad_sample"
    """What becomes of a document of several media of which some cannot be used: a ``bad_sample``, or it is learned
    without them (``leave_out``)."""
    long_documents: str = "bad_sample"
    """What becomes of a document with media that is longer than a row: a ``bad_sample``, or it is ``cut`` between its
    texts and media."""
    field: str = ""
    """Key of the list of rows, of a .json file that is an object around one."""
    base64: bool = False
    """Whether texts in columns of media are media in base64, as in the tables of MMBench, and no paths."""
    delimiter: str = ""
    """The character between the columns of a .csv or .tsv file; empty is as the file tells."""
    header: Sequence[str] = ()
    """The columns of a .csv or .tsv file whose first line is a row already."""

    def __post_init__(self) -> None:
        for name in ("chunk_chars", "max_text_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"options.{name}: expected a whole number from 1, got {value!r}")
        if self.learn not in ("all", "last"):
            raise ConfigError(f"options.learn: expected all or last (turns of the assistant), got {self.learn!r:.40}")
        for name, other in PAGE_OPTIONS.items():
            if (value := getattr(self, name)) not in (BAD_SAMPLE, other):
                raise ConfigError(f"options.{name}: expected {BAD_SAMPLE} or {other}, got {value!r:.40}")
        if not isinstance(self.base64, bool):
            raise ConfigError(f"options.base64: expected true or false, got {self.base64!r:.40}")
        if not isinstance(self.field, str):
            raise ConfigError(f"options.field: expected the key of a list of rows, got {self.field!r:.40}")
        mark: object = self.delimiter
        if not isinstance(mark, str) or len(mark) > 1 or mark in ('"', "\n", "\r", "\0"):
            raise ConfigError(f"options.delimiter: expected one character, and no quote or line end, got {mark!r:.40}")
        _check_header(self.header)

    @property
    def spares(self) -> bool:
        """Whether media that cannot be used are left out."""
        return self.missing_media != BAD_SAMPLE

    @property
    def cuts(self) -> bool:
        """Whether long documents with media are cut."""
        return self.long_documents != BAD_SAMPLE

    def check_table(self, where: str, *, is_table: bool) -> None:
        """Raises ConfigError where an option of .csv and .tsv files is that of others."""
        named = next((name for name in ("delimiter", "header") if getattr(self, name)), None)
        if named is not None and not is_table:
            before = f"{where}." if where else ""
            raise ConfigError(f"{before}options.{named}: it is of .csv and .tsv files alone; name such a file")

    def check_pages(self, where: str, why: str) -> None:
        """Raises ConfigError where an option of documents of texts and media in order is that of others.

        Args:
            where: the source stands in the run file.
            why: documents cannot do without one of their media, nor be cut; nothing where they can.
        """
        named = [name for name in PAGE_OPTIONS if getattr(self, name) != BAD_SAMPLE] if why else []
        if named:
            before = f"{where}." if where else ""
            raise ConfigError(
                f"{before}options.{named[0]}: {why}; it is of rows of texts and media in turn, segments, and texts "
                "with lists of media"
            )


def _check_header(header: object) -> None:
    """Raises ConfigError where it is no list of different names."""
    is_list = isinstance(header, list | tuple) and all(isinstance(name, str) and name.strip() for name in header)
    if not is_list:
        raise ConfigError(f"options.header: expected the names of the columns, as [id, text], got {header!r:.60}")
    names: Sequence[str] = header  # type: ignore[assignment]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"options.header: names column {twice!r} twice")


def read_options(options: Mapping[str, Any], where: str) -> FileOptions:
    """The options of a source of files. Raises ConfigError where one is unknown or out of range."""
    known = [option.name for option in fields(FileOptions)]
    for option in options:
        if option not in known:
            before = f"{where}." if where else ""
            hint = f"; {said}" if (said := unspaced(str(option))) else did_you_mean(option, known)
            raise ConfigError(f"{before}options.{option}: unknown field{hint}")
    return FileOptions(**options)
