"""What opening found in large files, kept on disk, so that the next start or the next rank need not look again.

A record holds numbers alone. It belongs to files as they are (path, size, inode, times of the last changes), to what
was asked and to this version of Kosmos; where any of these is another, or the record cannot be read, it is made anew.
It lies in ``$KOSMOS_CACHE`` (nowhere where that is empty), else in ``kosmos`` below the user's folder of caches.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from kosmos.files import replacing

FORMAT = 1
"""To be raised when opening comes to find something else in the same rows."""
LEAST_BYTES = 8 << 20
"""Files that are smaller altogether are looked at each time, which takes less than half a second."""
MOST_BYTES = 4 << 30
"""Of all records; the ones that were not used for longest go first."""

Record = dict[str, NDArray[np.generic]]


class ScanRecord:
    """The record of one scan.

    Args:
        what: all that its answer depends on beside the files.
        files: what it reads, and nothing else.
    """

    def __init__(self, what: str, files: Sequence[Path]) -> None:
        self.what, self.files = what, tuple(files)
        self.folder = _folder()
        self.name = _name(what, files) if self.folder is not None else None

    def read(self) -> Record | None:
        """What was found when the files were last looked at; None where nobody has, as they are now."""
        if self.folder is None or self.name is None:
            return None
        file = self.folder / f"{self.name}.npz"
        try:
            with np.load(file, allow_pickle=False) as stored:
                record: Record = dict(stored)
            os.utime(file)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return None
        return record

    def write(self, record: Record) -> None:
        """Keep what was found, unless the files have changed since. That it cannot be written costs time alone."""
        if self.folder is None or self.name is None or self.name != _name(self.what, self.files):
            return
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(self.folder / f"{self.name}.npz") as written:
                np.savez(written, **record)  # type: ignore[arg-type]
            _prune(self.folder)


def digest(*arrays: NDArray[np.generic]) -> str:
    """Of the values of arrays."""
    found = blake2b(digest_size=20)
    for array in arrays:
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def _folder() -> Path | None:
    given = os.environ.get("KOSMOS_CACHE")
    if given is not None:
        return Path(given) / "scans" if given else None
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kosmos" / "scans"
    except RuntimeError:  # there is no home
        return None


def _name(what: str, files: Sequence[Path]) -> str | None:
    """Of the record; None where the files are small, or cannot be read."""
    from kosmos import __version__

    size, parts = 0, [str(FORMAT), __version__, np.__version__, what]
    try:
        for file in files:
            state = file.stat()
            size += state.st_size
            parts.append(f"{file.absolute()} {state.st_size} {state.st_ino} {state.st_mtime_ns} {state.st_ctime_ns}")
    except OSError:
        return None
    if size < LEAST_BYTES:
        return None
    return blake2b("\n".join(parts).encode("utf-8", "surrogateescape"), digest_size=20).hexdigest()


def _prune(folder: Path) -> None:
    records = sorted(((state := file.stat()).st_mtime, state.st_size, file) for file in folder.glob("*.npz"))
    total = sum(size for _, size, _ in records)
    for _, size, file in records[:-1]:
        if total <= MOST_BYTES:
            return
        file.unlink(missing_ok=True)
        total -= size
