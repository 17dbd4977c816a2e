"""The built-in tokenizer: one token a byte of UTF-8, then the marks. Nothing to download, nothing to train."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kosmos.data.marks import CORE_MARKS
from kosmos.data.unfinished import whole_text
from kosmos.errors import ConfigError

BYTES = 256
FILE = "kosmos_tokenizer.json"
"""Name of the file that says which tokenizer a folder holds and its marks."""


MOST_TOLD = 40
"""Marks that an error names: a codec may have thousands."""


def all_marks(marks: Sequence[str]) -> tuple[str, ...]:
    """``CORE_MARKS`` and then ``marks``, each once."""
    return tuple(dict.fromkeys((*CORE_MARKS, *marks)))


def unknown_mark(name: str, marks: Sequence[str]) -> ConfigError:
    """The error for a mark that a tokenizer does not have."""
    more = f" and {len(marks) - MOST_TOLD:,} more" if len(marks) > MOST_TOLD else ""
    return ConfigError(f"tokenizer: no mark {name!r}; it has {' '.join(marks[:MOST_TOLD])}{more}")


@dataclass
class ByteTokenizer:
    """Ids 0 to 255 are bytes; the marks follow in their order (a ``Tokenizer``)."""

    marks: tuple[str, ...] = CORE_MARKS
    vocab_size: int = field(init=False)
    """256 and the marks."""
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.marks = all_marks(self.marks)
        self.vocab_size = BYTES + len(self.marks)
        self._ids = {mark: BYTES + place for place, mark in enumerate(self.marks)}

    @property
    def special_ids(self) -> dict[str, int]:
        """Special tokens by their names."""
        return {**self._ids}

    def encode(self, text: str) -> list[int]:
        """The bytes of ``text``: always below 256, so no text can become a mark."""
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the bytes among ``ids``; broken UTF-8 becomes U+FFFD, marks are left out."""
        return bytes(i for i in ids if 0 <= i < BYTES).decode(errors="replace")

    def decode_cut(self, ids: Sequence[int]) -> str:
        """As ``decode``, without the beginning of a character at the end."""
        return whole_text(bytes(i for i in ids if 0 <= i < BYTES))

    def mark_id(self, name: str) -> int:
        """Id of a mark. Raises ConfigError where there is no such mark."""
        if name not in self._ids:
            raise unknown_mark(name, self.marks)
        return self._ids[name]

    def save(self, folder: Path) -> None:
        """Write the marks to ``folder``, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        content = {"kind": "bytes", "marks": list(self.marks)}
        (folder / FILE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def saved_byte_marks(folder: Path) -> tuple[str, ...] | None:
    """The marks that ``ByteTokenizer.save`` wrote to ``folder``, or None where it holds no byte tokenizer.

    Raises:
        ConfigError: the file is damaged.
    """
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        kind, marks = content["kind"], content["marks"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{file}: damaged ({error})") from error
    if kind != "bytes":
        return None
    if not isinstance(marks, list) or not all(isinstance(mark, str) for mark in marks):
        raise ConfigError(f"{file}: marks: expected a list of strings")
    return tuple(marks)
