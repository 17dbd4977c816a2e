"""Whether files beside media hold texts: others hold boxes, beats, where a camera was, or who made a file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kosmos.data.open_files import forget, read_bytes
from kosmos.data.sources.file_names import suffix_of
from kosmos.data.sources.joined import ClassFolderTable
from kosmos.data.sources.media import resolve
from kosmos.data.spread import spread
from kosmos.errors import SampleError

JSON = ".json"
CUES = frozenset(".srt .vtt .sbv .ass .ssa .lrc".split())
"""Suffixes of subtitles: drones write where they were into such files."""
TIMED = CUES.union(".ttml .textgrid .ctm .stm .eaf .phn .wrd".split())
"""With those of labels, which say when something is said."""
LOOKED_AT = 8
"""Media, from all over the set, whose texts are read."""
TEXT_BYTES, JSON_BYTES = 16 << 10, 1 << 20
"""Read of each: a text tells by its beginning, and JSON is read whole."""
_TEXTS = frozenset(
    "text transcript transcripts transcription normalized_text caption captions sentence utterance".split()
)
"""Keys of texts in JSON."""
_APART = re.compile(r"[\s,;:=()\[\]{}<>|/\"]+")
_FIGURE = re.compile(r"[-+]?\d*\.?\d+(?:[eE][-+]?\d+|[A-Za-z%°]{1,3})?")
"""A number, it may be with its unit."""
_TAG = re.compile(r"<[^<>]*>")


def first_with_text(media: ClassFolderTable, found: Mapping[str, Sequence[str]]) -> tuple[str, str] | None:
    """The first medium that has a text, and the file of it; None where most of those that are looked at have none.

    Args:
        found: by medium, files that may hold its text.
    """
    names = [*found]
    looked_at = [names[index] for index in spread(len(names), LOOKED_AT).tolist()]
    said = _named(media)
    one_class = len({name.rpartition("/")[0] for name in media.files}) == 1
    told: list[tuple[str, str]] = []
    for medium in looked_at:
        text = next((file for file in found[medium] if _holds_text(media, file, said, any_word=one_class)), None)
        if text is not None:
            told.append((medium, text))
    return told[0] if 2 * len(told) > len(looked_at) else None


def _named(media: ClassFolderTable) -> frozenset[str]:
    """Words of the names of folders, which say nothing more."""
    folders = {name.rpartition("/")[0] for name in media.files}
    parts = {part.casefold() for folder in folders for part in folder.split("/")}
    return frozenset(parts.union(word for part in parts for word in re.split(r"[\W_]+", part)))


def _holds_text(media: ClassFolderTable, file: str, known: frozenset[str], *, any_word: bool) -> bool:
    suffix = suffix_of(file)
    try:
        path = resolve(media.folder, file)
        forget(path)
        data = read_bytes(path, 0, JSON_BYTES if suffix == JSON else TEXT_BYTES)
    except (OSError, SampleError):
        return False
    if suffix == JSON:
        try:
            return _has_text(json.loads(data), known)
        except (ValueError, RecursionError):
            return False
    text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8", errors="replace")
    if suffix in CUES:
        text = "\n".join(_TAG.sub(" ", line) for line in text.splitlines() if "-->" not in line)
    words, figures = _counted(text, known)
    if suffix in CUES or not (any_word or suffix in TIMED):
        return words > figures
    return words > 0


def _counted(text: str, known: frozenset[str]) -> tuple[int, int]:
    """Words that say something, and figures beside them. Where words are not set apart, each letter is one."""
    words = figures = 0
    for line in text.splitlines():
        if any(map(str.isalpha, line)):  # others are numbers of cues, and when they are
            for part in filter(None, _APART.split(line)):
                if _FIGURE.fullmatch(part):
                    figures += 1
                elif any(map(str.isalpha, part)) and part.casefold() not in known:
                    words += 1 if part.isascii() else len(part)
    return words, figures


def _has_text(value: Any, known: frozenset[str]) -> bool:
    """Whether an object, or one in it, has words under the key of a text."""
    if isinstance(value, list):
        return any(_has_text(one, known) for one in value)
    if not isinstance(value, Mapping):
        return False
    for key, its in value.items():
        texts = its if isinstance(its, list) else [its]
        if key in _TEXTS and any(isinstance(text, str) and _counted(text, known)[0] for text in texts):
            return True
    return any(_has_text(its, known) for its in value.values())
