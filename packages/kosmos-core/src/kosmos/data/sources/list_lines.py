"""Files beside media that may list them, whatever their suffix, and the fields of their first lines or rows."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from kosmos.data.open_files import read_bytes
from kosmos.data.sources.delimited import SUFFIXES as DELIMITED
from kosmos.data.sources.file_names import stem_of, suffix_of
from kosmos.data.sources.folders import tells_of_data
from kosmos.data.sources.json_pieces import BEGIN, JsonText
from kosmos.data.sources.media import resolve
from kosmos.data.unpacked import first_bytes, is_packed
from kosmos.errors import SampleError

KINDS = (".txt", *DELIMITED)
"""Suffixes of what mostly lists media."""
NO_LISTS = frozenset(
    ".log .out .err .md5 .sha1 .sha256 .sfv .xml .html .htm .svg .css .js .ts .py .ipynb .sh .bat .m .r .c .cc .cpp .h "
    ".java .go .rs .pl .rb .lock .toml .ini .cfg".split()
)
"""Of programs, of what they print, and of pages: these name files, and say nothing of what is in them."""
_SUMS = re.compile(r"(checksum|md5|sha\d|shasum|crc\d*sum)", re.IGNORECASE)
"""How names of files of sums begin."""
_OF_OTHERS = re.compile(
    r"(.*[-_])?logs?|(attribution|author|citation|copyright|contributor|acknowledge?ment)s?", re.IGNORECASE
)
"""Names of what programs print, and of who made the media; of tables this may be the subject."""
MOST_TIMES_PACKED = 4
"""How many times its bytes a compressed list may have: only for which share of it was read."""
_OF_FILE = re.compile(
    r"licen[sc]e(_\w+)?|copyright|rights|credits?|attribution|author|(date|time)(_?(captured|time|taken|stamp))?"
    r"|(mime|content|media)_?-?type|mime|md5|sha_?\d+|checksum|digest|etag",
    re.IGNORECASE,
)
"""Keys of JSON that say nothing of what is in a medium."""
_OF_CAMERA = frozenset(
    "Make Model Software Orientation DateTime DateTimeOriginal ExifVersion ExposureTime FNumber ISO".split()
)
_DESCRIBES = re.compile(r"descri|caption|title|comment|keyword|subject|label|text|tags", re.IGNORECASE)
"""Keys under which there may be a text all the same."""
_PROBED = 4096
_IN_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a]")
_APART = re.compile(r"[,;|\t ]")


class Lines(NamedTuple):
    """The first lines of a file, or of JSON the first rows."""

    lines: list[str]
    fields: list[list[str]]
    """Of each line: a text, too, comes as its words."""
    share: float
    """Of the file that they are."""
    are_rows: bool
    """Whether the file is a table, in which what names no file may be a row all the same."""
    num_bytes: int = 0
    """That were read."""


def candidates(files: Sequence[str], suffixes: Collection[str]) -> list[str]:
    """The files that may list media: first those of ``KINDS``, then of others those of rare suffixes first.

    Args:
        files: as ``folders.list_files`` gives them.
        suffixes: of the media.
    """
    left = [
        name for name in files
        if ((suffix := suffix_of(name)) in KINDS or suffix not in suffixes)
        and suffix not in NO_LISTS and not tells_of_data(name) and not _is_no_list(name)
    ]  # fmt: skip
    counts = Counter(map(suffix_of, left))
    return sorted(left, key=lambda name: _in_order(name, counts))  # stays as it was among those of KINDS


def _is_no_list(name: str) -> bool:
    """Whether a file is called as sums or logs are, or as what says who made the media."""
    return bool(_SUMS.match(stem := stem_of(name)) or (suffix_of(name) not in DELIMITED and _OF_OTHERS.fullmatch(stem)))


def _in_order(name: str, counts: Mapping[str, int]) -> tuple[int, int]:
    return (0, 0) if (suffix := suffix_of(name)) in KINDS else (counts[suffix], name.count("/"))


def first_lines(
    folder: Path, name: str, most_bytes: int, suffixes: Collection[str], is_medium: Callable[[str], bool]
) -> Lines:
    """What a file begins with; no lines where it is no text, or cannot be read.

    Args:
        most_bytes: read of it.
        suffixes: of media.
        is_medium: whether a key of JSON names a medium.
    """
    nothing = Lines([], [], 1.0, are_rows=False)
    is_kind = suffix_of(name) in KINDS
    try:
        path = resolve(folder, name)
        size = path.stat().st_size
        if is_packed(name):
            data, size = first_bytes(path, most_bytes), MOST_TIMES_PACKED * size
            size = len(data) if len(data) < most_bytes else size
        elif not is_kind and _IN_NO_TEXT.search(read_bytes(path, 0, _PROBED)):
            return nothing
        else:
            data = read_bytes(path, 0, most_bytes)
    except (OSError, SampleError):  # or it is a link to what is elsewhere, and not this folder's
        return nothing
    share = min(1.0, len(data) / max(1, size))
    if not is_kind and BEGIN.match(data):
        rows = [*_json_rows(data, suffixes, is_medium)]
        return Lines([" ".join(row) for row in rows], rows, share, are_rows=True, num_bytes=len(data))
    lines = [line for line in map(str.strip, data.decode(errors="replace").splitlines()) if line]
    fields = [_fields(line) if is_kind else _fields_of_any(line) for line in lines]
    return Lines(lines, fields, share, are_rows=suffix_of(name) in DELIMITED, num_bytes=len(data))


def _fields(line: str) -> list[str]:
    return [field.strip("\"'*") for field in _APART.split(line)]


def _fields_of_any(line: str) -> list[str]:
    """As ``_fields``, without the keys and brackets of YAML."""
    fields = (field.strip("\"'*()[]{}<>") for field in _APART.split(line))
    return [field for field in fields if field not in ("", "-") and not field.endswith(":")] or [""]


def _json_rows(data: bytes, suffixes: Collection[str], is_medium: Callable[[str], bool]) -> Iterator[list[str]]:
    """The fields of each row: of a line, of an element of a list, or of an object that stands under a name."""

    def row(*values: Any) -> list[str]:
        return [field for value in values for field in _leaves(value, suffixes)] or [""]

    def of_object(text: JsonText, names: tuple[str, ...]) -> Iterator[list[str]]:
        own: dict[str, Any] = {}
        for key in text.keys():  # noqa: SIM118  no mapping
            begins = text.skip()
            if begins == "{" and len(names) < 2:
                yield from of_object(text, (*names, key))
            elif begins == "[":
                values: list[Any] = []
                for begin, end in text.elements():
                    value = text.parsed(begin, end)
                    if isinstance(value, dict) or not names:
                        yield row(value)
                    else:
                        values.append(value)
                if values:
                    own[key] = values
            elif not names or is_medium(key):
                yield row(key, text.value())
            else:
                own[key] = text.value()
        if own:
            is_of_one = is_medium(names[-1]) or suffix_of(names[-1]) in suffixes
            yield row(*(names[-1:] if is_of_one else names), own)  # the object of all has a name that says nothing

    lines = data.splitlines()
    with suppress(ValueError, RecursionError):
        if len(lines) > 1 and isinstance(json.loads(lines[0]), dict):
            for line in lines:
                with suppress(ValueError, RecursionError):  # the last is cut, most likely
                    yield row(json.loads(line))
            return
    stream = io.BytesIO(data)
    begin = BEGIN.match(data)
    stream.seek(begin.end() if begin is not None else 0)
    text = JsonText(stream)
    with suppress(ValueError, RecursionError):  # it breaks off where no more was read
        while begins := text.skip():
            if begins == "{":
                yield from of_object(text, ())
            else:
                for first, last in text.elements():
                    yield row(text.parsed(first, last))


def _leaves(value: Any, suffixes: Collection[str]) -> Iterator[str]:
    """The names of files in a value whole, and the words of its texts. Addresses say nothing of a medium, nor does what
    stands under the key of a right or of a date, or what a camera wrote."""
    if isinstance(value, dict):
        of_camera = "SourceFile" in value or len(_OF_CAMERA.intersection(value)) > 2
        for key, one in value.items():
            if isinstance(one, str) and suffix_of(one) in suffixes:
                yield one
            elif not _OF_FILE.fullmatch(key) and (not of_camera or _DESCRIBES.search(key)):
                yield from _leaves(one, suffixes)
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one, suffixes)
    elif isinstance(value, str):
        if suffix_of(value) in suffixes:
            yield value
        elif "://" not in value:
            yield from filter(None, _fields(value))
    elif value is not None and not isinstance(value, bool):
        yield str(value)
