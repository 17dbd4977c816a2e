"""Text files that are lists of files of rows, as ``ls *.jsonl > list.txt`` makes them: no text to learn."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kosmos.data.open_files import read_bytes
from kosmos.data.sources.file_names import rows_suffix
from kosmos.errors import DataError

LOOKED_AT, LOOKED_AT_BYTES = 16, 64 << 10
"""Lines, and bytes, that tell a list."""
_ROWS = (".jsonl", ".json", ".parquet", ".tar", ".csv", ".tsv", ".txt")


def refuse_list(path: Path) -> None:
    """Raises DataError where nearly all of a text file's first lines name files of rows that are there.

    Args:
        path: from whose folder, or the working folder, they may be named.
    """
    try:
        lines = read_bytes(path, 0, LOOKED_AT_BYTES).decode(errors="replace").splitlines()
    except OSError:  # which whoever reads all of it says
        return
    names = [name for line in lines if (name := line.strip())][:LOOKED_AT]
    found = [file for name in names if (file := _file_of(name, path.parent)) is not None]
    if not found or 10 * len(found) < 9 * len(names):
        return
    raise DataError(
        f"{path}: its lines name files of rows (such as {names[0]}), which would be learned as text; name "
        f"{_instead(found)}, or each file as one of data.sources"
    )


def _file_of(name: str, folder: Path) -> Path | None:
    """The file of rows that a line names."""
    if rows_suffix(name) not in _ROWS:
        return None
    try:
        return next((file for file in (folder / name, Path(name)) if file.is_file()), None)
    except (OSError, ValueError):
        return None


def _instead(files: Sequence[Path]) -> str:
    folder = os.path.commonpath([file.parent for file in files])
    return f"their folder (--data {folder or '.'})"
