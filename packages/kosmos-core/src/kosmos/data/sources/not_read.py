"""Files that a source passes over though they hold rows, or should: what they are counted under, and what is warned."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping, Sized
from pathlib import Path

from kosmos.data.sources.file_names import ALIKE, COMPRESSED, stem_of, suffix_of
from kosmos.data.unpacked import is_packed, unpacked

NO_BYTES = "0 bytes"
"""What files of rows are counted under that hold nothing."""
_ROWS = (".jsonl", ".ndjson", ".json", ".parquet", ".tar", ".csv", ".tsv", ".txt")


def counted_as(name: str) -> str:
    """What a file beside rows is counted under: its suffix, of compressed rows both; "" where it has none."""
    suffix = suffix_of(name)
    if suffix == ".tgz":
        return ".tar.gz"
    inner = suffix_of(stem_of(name)) if suffix in COMPRESSED else ""
    return inner + suffix if inner in _ROWS else suffix


def is_empty(rows: Sized, file: Path) -> bool:
    """Whether a file, of whose rows there are none, holds nothing at all."""
    return not len(rows) and not unpacked(file).stat().st_size


def is_empty_file(file: Path) -> bool:
    """Whether it is a plain file of 0 bytes. Raises OSError where nothing is there, or it cannot be looked at."""
    found = file.stat()
    return stat.S_ISREG(found.st_mode) and not found.st_size


def warnings_of(name: str, left_out: Mapping[str, int]) -> Iterator[str]:
    """What is to be said of files that hardly anybody means to be passed over.

    Args:
        name: of the source.
        left_out: as of a ``RowSource``.
    """
    for what, count in left_out.items():
        files = f"{count:,} file{' is' if count == 1 else 's are'}"
        suffix, them = suffix_of(f"_{what}"), "it" if count == 1 else "them"
        if suffix in COMPRESSED and what.removesuffix(suffix) in _ROWS:
            if is_packed(f"_{what}"):  # beside others it may be a copy
                advice = f"name {them} as a source ('FOLDER/*{what}')"
            else:
                advice = f"decompress {them} first ({COMPRESSED[suffix]})"
            yield f"{name}: {files} compressed ({what}) and not read; {advice}"
        elif what in ALIKE:
            aside = f"beside {ALIKE[what]} files ({what}) and not read"
            yield f"{name}: {files} {aside}; rename {them}, or name {them} as a source"
        elif what == NO_BYTES:
            yield f"{name}: {files} empty (0 bytes), as after a copy that failed; replace or remove {them}"
