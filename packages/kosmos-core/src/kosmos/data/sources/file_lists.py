"""Text files that are lists of files of rows, as ``ls *.jsonl > list.txt`` makes them: no text to learn."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kosmos.data.open_files import read_bytes
from kosmos.data.sources.file_names import rows_suffix
from kosmos.data.sources.folders import tells_of_data
from kosmos.data.sources.since import is_opened_before
from kosmos.errors import DataError

LOOKED_AT, LOOKED_AT_BYTES = 16, 64 << 10
"""Lines, and bytes, that tell a list."""
MOST_BYTES = 64 << 20
"""Of a list that is read to its end."""
_ROWS = (".jsonl", ".json", ".parquet", ".tar", ".csv", ".tsv", ".txt")


def refuse_list(path: Path) -> None:
    """Raises DataError where nearly all of a text file's first lines name files of rows that are there.

    Args:
        path: from whose folder, or the working folder, they may be named.
    """
    if is_opened_before():
        return
    try:
        names = _names(path, LOOKED_AT_BYTES)[:LOOKED_AT]
    except OSError:  # which whoever reads all of it says
        return
    found = [file for name in names if (file := _file_of(name, path.parent)) is not None]
    if not found or 10 * len(found) < 9 * len(names):
        return
    raise DataError(
        f"{path}: its lines name files of rows (such as {names[0]}), which would be learned as text; name "
        f"{_instead(path)}, or each file as one of data.sources"
    )


def _names(path: Path, most: int) -> list[str]:
    """The lines of a list within its first bytes."""
    lines = read_bytes(path, 0, most).decode(errors="replace").splitlines()
    return [name for line in lines if (name := line.strip())]


def _file_of(name: str, folder: Path) -> Path | None:
    """The file of rows that a line names."""
    if rows_suffix(name) not in _ROWS:
        return None
    try:
        return next((file for file in (folder / name, Path(name)) if file.is_file()), None)
    except (OSError, ValueError):
        return None


def _instead(path: Path) -> str:
    """What has the rows of a list: a folder may hold files that it leaves out, to be held out."""
    files = [file for name in _names(path, MOST_BYTES) if (file := _file_of(name, path.parent)) is not None]
    if len({file.is_absolute() for file in files}) > 1:  # some are seen from the working folder
        files = [file.absolute() for file in files]
    folder = os.path.commonpath([file.parent for file in files]) or "."
    if len({rows_suffix(file.name) for file in files}) == 1 and _are_all(files, folder):
        return f"their folder (--data {folder})"
    return "a pattern that stands for these files alone (*, ? and braces, such as part-{000..011}.jsonl)"


def _are_all(files: Sequence[Path], folder: str) -> bool:
    """Whether a folder holds no other files of rows."""
    known = {os.path.abspath(file) for file in files}
    for at, below, names in os.walk(os.path.abspath(folder)):
        below[:] = (name for name in below if not name.startswith("."))
        rows = (name for name in names if rows_suffix(name) in _ROWS and not name.startswith("."))
        if any(os.path.join(at, name) not in known for name in rows if not tells_of_data(name)):
            return False
    return True
