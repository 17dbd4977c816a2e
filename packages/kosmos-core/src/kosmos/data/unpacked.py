"""Compressed files of rows, unpacked once into the user's folder of caches: rows are read in any order, which no
compressed file allows. They lie there in ``unpacked``, each under the path and state of the file that it was made of.
"""

from __future__ import annotations

import bz2
import errno
import fcntl
import gzip
import lzma
import os
import shutil
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from time import time
from typing import Any

from kosmos.data.caches import LEFT_BEHIND_S, cache_folder, why_nowhere
from kosmos.files import replacing
from kosmos.runtime.cores import usable_cores
from kosmos.visible import in_a_line

ROWS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt")
"""Suffixes of the files that are read compressed too."""
LEAST_FREE_BYTES = 1 << 30
"""Of the disk, below which nothing is unpacked: others write there too."""
LEAST_REFUSED_BYTES, MOST_RATIO = 1 << 30, 250
"""Unpacked, more than the first of these and so many times the bytes of the file is what was made to fill disks: texts
shrink to a third or a twentieth, logs to a hundredth."""
TOLD_AFTER_S = 5.0
_MOST_THREADS = 8
_PIECE = 1 << 20
_LOOKED_AFTER = 64
"""Pieces after which one looks whether the disk has room."""
_DIGEST_BYTES = 12
_seen: dict[tuple[str, str], str] = {}
"""Folder and name without the size to the name of a file that was unpacked."""
_OF_DISKS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
"""What the folder fails by, and no file that is read."""


def _zstd(path: Path) -> Any:
    import pyarrow

    return pyarrow.CompressedInputStream(pyarrow.OSFile(str(path)), "zstd")


_OPEN: dict[str, Callable[[Path], Any]] = {
    ".gz": partial(gzip.open, mode="rb"), ".bz2": partial(bz2.open, mode="rb"), ".xz": partial(lzma.open, mode="rb"),
    ".zst": _zstd, ".zstd": _zstd,
}  # fmt: skip


def without_packing(name: str) -> str:
    """The name that a file of rows has once it is unpacked; of others their own."""
    for suffix in _OPEN:
        if name[-len(suffix) :].lower() == suffix and name[: -len(suffix)].lower().endswith(ROWS):
            return name[: -len(suffix)]
    return name


def is_packed(name: str) -> bool:
    """Whether a file of rows is compressed, by its name, in a way that is read."""
    return without_packing(name) != name


def unpack_each(paths: Sequence[Path]) -> None:
    """Unpack several files at once, and say so where it takes long. What cannot be unpacked says why when it is
    read."""
    packed = [path for path in paths if is_packed(path.name)]
    if not packed or (folder := cache_folder("unpacked")) is None:
        return
    files = "a compressed file" if len(packed) == 1 else f"{len(packed):,} compressed files"
    line = f"unpacking {files}, such as {packed[0].name}, into {folder}, once; the next start finds them there"
    timer = threading.Timer(TOLD_AFTER_S, lambda: print(in_a_line(line), file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    ending, is_known = threading.Event(), _is_known()  # threads do not know of it

    def one(path: Path) -> None:
        with suppress(OSError):
            unpacked(path, ending, is_known=is_known)

    try:
        with ThreadPoolExecutor(min(len(packed), usable_cores(), _MOST_THREADS)) as threads:
            try:
                list(threads.map(one, packed))
            except BaseException:  # such as Ctrl-C: the threads would be waited for
                ending.set()
                raise
    finally:
        timer.cancel()


def unpacked(path: Path, ending: threading.Event | None = None, *, is_known: bool = False) -> Path:
    """Where the bytes of a file can be read: its own path, unless it is compressed; then it is unpacked, if need be.

    Args:
        ending: once it is set nothing more is unpacked.
        is_known: it is of a run that was begun, and may become as large as it is.

    Raises:
        OSError: it cannot be read, breaks off, becomes much too large, or there is no room for it.
    """
    if not is_packed(path.name):
        return path
    folder = cache_folder("unpacked")
    if folder is None:
        why = why_nowhere("unpacked")
        raise OSError(
            errno.EPERM, f"it is compressed, and there is no folder to unpack it into: {why}, or decompress it"
        )
    state = path.stat()
    of_path = _digest(os.path.abspath(path))
    name = f"{of_path}-{_digest(f'{state.st_size} {state.st_ino} {state.st_mtime_ns} {state.st_ctime_ns}')}"
    if (found := _whole(folder, name)) is not None:
        with suppress(OSError):
            os.utime(found)  # so that it counts as used
        return found
    with _alone(folder, f"{name}.lock") as is_alone:
        if (found := _whole(folder, name)) is None:
            _remove_left(folder, of_path, name if is_alone else None)
            at_most = sys.maxsize if is_known or _is_known() else _most_bytes(state.st_size)
            found = _unpack(path, folder / name, at_most, ending)
    return found


def first_bytes(path: Path, most_bytes: int) -> bytes:
    """What a compressed file begins with, read where it lies. Raises OSError where it cannot be read."""
    try:
        with closing(_OPEN[path.suffix.lower()](path)) as packed:
            return bytes(packed.read(most_bytes))
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise _damaged(path, error) from error


def _whole(folder: Path, name: str) -> Path | None:
    """The file of this name and its size, where it has that: a power cut, or another machine, may leave less."""
    if (found := _known(folder, name)) is None:
        with suppress(OSError):  # one look at the folder for all: of a corpus it holds a thousand
            for last in os.listdir(folder):
                before, _, size = last.rpartition(".")
                if size.isdecimal():
                    _seen[str(folder), before] = last
        found = _known(folder, name)
    return found


def _known(folder: Path, name: str) -> Path | None:
    last = _seen.get((str(folder), name))
    return folder / last if last is not None and _has_its_size(folder / last) else None


def _has_its_size(file: Path) -> bool:
    try:
        return file.suffix == f".{file.stat().st_size}"
    except OSError:
        return False


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=_DIGEST_BYTES).hexdigest()


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[bool]:
    """One process at a time. Two at once would do no harm, but twice the work. Yields whether that is so."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (folder / name).open("a")
    except OSError as error:
        raise _unusable(folder, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            is_alone = True
        except OSError:  # a file system without locks
            is_alone = False
        try:
            yield is_alone
        finally:
            (folder / name).unlink(missing_ok=True)


def _is_known() -> bool:
    from kosmos.data.sources.since import is_opened_before  # whose package reads files by this module

    return is_opened_before()


def _most_bytes(packed: int) -> int:
    """That a compressed file may become."""
    return max(LEAST_REFUSED_BYTES, MOST_RATIO * packed)


def _unpack(path: Path, into: Path, at_most: int, ending: threading.Event | None) -> Path:
    """Where it is then: its size is the last part of its name."""
    try:
        with closing(_OPEN[path.suffix.lower()](path)) as packed, replacing(into) as written:
            os.fchmod(written.fileno(), 0o600)
            for number, piece in enumerate(iter(lambda: packed.read(_PIECE), b"")):
                if number % _LOOKED_AFTER == 0:
                    _refuse_full(into.parent)
                if ending is not None and ending.is_set():
                    raise OSError(errno.EINTR, "stopped")
                written.write(piece)
                if written.tell() > at_most:
                    raise _bomb(path, at_most)
        whole = into.with_name(f"{into.name}.{into.stat().st_size}")
        into.replace(whole)
        _seen[str(into.parent), into.name] = whole.name
        return whole
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise _damaged(path, error) from error
    except OSError as error:
        if not error.errno:  # it is of what decompresses, and no matter of the disk
            raise _damaged(path, error) from error
        if error.errno in _OF_DISKS and error.filename != str(path):
            raise _unusable(into.parent, error) from error
        raise


def _damaged(path: Path, error: Exception) -> OSError:
    kind = PurePosixPath(path.name).suffix.lower()
    advice = "; decompress it yourself (zstd -d --long=31)" if "too much memory" in str(error) else ""
    return OSError(
        errno.EIO,
        f"it breaks off, is damaged, or is no {kind} file ({error}); copy it anew, or name it by what it is{advice}",
    )


def _bomb(path: Path, at_most: int) -> OSError:
    said = f"unpacked it has over {at_most / 2**30:.1f} GiB, more than {MOST_RATIO} times its size"
    return OSError(errno.EFBIG, f"{said}, as no text has; decompress it yourself where that is right")


def _unusable(folder: Path, error: OSError) -> OSError:
    """The error of the folder, as one that nobody takes for one of the data."""
    said = f"it is compressed, and {folder}, where it is unpacked, cannot be written ({error.strerror})"
    return OSError(errno.EIO, f"{said}; name another folder in $KOSMOS_CACHE")


def _refuse_full(folder: Path) -> None:
    if (free := shutil.disk_usage(folder).free) < LEAST_FREE_BYTES:
        left = f"it is compressed, and {folder}, where it is unpacked, has {free / 2**30:.1f} GiB left"
        raise OSError(errno.EFBIG, f"{left}; make room, or name another folder in $KOSMOS_CACHE")


def _remove_left(folder: Path, of_path: str, name: str | None) -> None:
    """Remove what killed processes have left, and what the file was before it changed, once nobody has used that for a
    day: another machine that shares the folder may know the file by another state.

    Args:
        name: that nobody else is writing; None where that is not known.
    """
    for file in folder.iterdir():
        with suppress(OSError):
            is_old = time() - file.lstat().st_mtime > LEFT_BEHIND_S
            is_half, is_older = file.name.startswith("."), file.name.startswith(of_path)
            of_this = name is not None and file.name.startswith((f".{name}.", f"{name}.")) and file.suffix != ".lock"
            if (is_old and (is_half or is_older)) or of_this:
                file.unlink()
