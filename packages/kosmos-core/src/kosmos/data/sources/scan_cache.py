"""What opening found in large files, kept on disk, so that the next start need not look again.

A record belongs to files as they are (path, size, inode, times of the last changes), to what was asked, to the rules
of runs that were begun before (``since``) and to this version of Kosmos; where any of these is another, or a byte of
the record is, it is made anew. It holds numbers, and of the rows no more than a message says of the first that was bad,
names of keys, and texts that may be names of files. It lies in ``$KOSMOS_CACHE`` (nowhere where that is empty), else in
``kosmos`` below the user's folder of caches.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from time import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kosmos
from kosmos.data.caches import LEFT_BEHIND_S, cache_folder
from kosmos.data.sources.since import is_read_before, rules_lacking
from kosmos.data.unpacked import is_packed, unpacked
from kosmos.files import replacing

FORMAT = 15
"""To be raised when opening comes to find something else in the same rows."""
LEAST_BYTES = 8 << 20
"""Sources of which all files together are smaller are looked at each time, which takes half a second at most."""
MOST_BYTES = 4 << 30
"""Of all records; the ones that were not used for longest go first."""
_DIGEST_BYTES = 20
_RECORD = re.compile(f"[0-9a-f]{{{2 * _DIGEST_BYTES}}}")
_HALF = re.compile(rf"\.{_RECORD.pattern}\.[0-9]+\.[0-9a-f]{{8}}")
"""As ``replacing`` names what is being written."""

Record = dict[str, NDArray[Any]]


class ScanRecord:
    """The record of one scan.

    Args:
        what: all that its answer depends on beside the files.
        files: what it reads, and nothing else.
    """

    def __init__(self, what: str, files: Sequence[Path]) -> None:
        self.what, self.files = what, tuple(files)
        self.folder = cache_folder("scans")
        self.name = record_name(what, files) if self.folder is not None else None

    def read(self) -> Record | None:
        """What was found when the files were last looked at; None where nobody has, as they are now."""
        from safetensors.numpy import load

        if self.folder is None or self.name is None:
            return None
        file = self.folder / self.name
        try:
            content = file.read_bytes()
        except OSError:
            return None
        digest, arrays = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if digest != _digest(arrays):
            return None
        with suppress(OSError):  # others may share their records for reading
            os.utime(file)
        return dict(load(arrays))

    def write(self, record: Record) -> None:
        """Keep what was found, unless the files have changed since. That it cannot be written costs time alone."""
        from safetensors.numpy import save

        if self.folder is None or self.name is None or self.name != record_name(self.what, self.files):
            return
        arrays = save(record)
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(self.folder / self.name) as written:
                os.fchmod(written.fileno(), 0o600)
                written.write(_digest(arrays))
                written.write(arrays)
            _prune(self.folder)


def digest(*arrays: NDArray[np.generic]) -> str:
    """Of the values of arrays."""
    return _digest(*(np.ascontiguousarray(array).data for array in arrays)).hex()


def record_name(what: str, files: Sequence[Path]) -> str | None:
    """Of the record; None where the files are small, or cannot be read."""
    size, parts = (
        0,
        [
            str(FORMAT),
            kosmos.__version__,
            what,
            *(["read before"] if is_read_before() else []),
            *sorted(rules_lacking()),
        ],
    )
    try:
        for file in files:
            state = file.stat()
            size += state.st_size if not is_packed(file.name) else unpacked(file).stat().st_size
            parts.append(f"{file.absolute()} {state.st_size} {state.st_ino} {state.st_mtime_ns} {state.st_ctime_ns}")
    except OSError:
        return None
    return _digest("\n".join(parts).encode("utf-8", "surrogateescape")).hex() if size >= LEAST_BYTES else None


def _digest(*parts: bytes | memoryview) -> bytes:
    found = blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        found.update(part)
    return found.digest()


def _prune(folder: Path) -> None:
    """Of files that are named as records are: others may lie in the folder that ``$KOSMOS_CACHE`` names."""
    found = []
    for file in folder.iterdir():
        with suppress(OSError):  # another process prunes too
            state = file.lstat()
            if _RECORD.fullmatch(file.name):
                found.append((state.st_mtime, state.st_size, file))
            elif _HALF.fullmatch(file.name) and time() - state.st_mtime > LEFT_BEHIND_S:
                file.unlink()
    total = sum(size for _, size, _ in found)
    for _, size, file in sorted(found)[:-1]:
        if total > MOST_BYTES:
            file.unlink(missing_ok=True)
            total -= size
