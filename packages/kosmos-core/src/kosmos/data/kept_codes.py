"""Codes of media, kept on disk: a codec that is a network may take longer for a medium than a step for all of them.

A record belongs to the bytes of a medium, its stretch and rate, and the codec (``identity_of``), wherever the file
lies. It lies in ``codes`` of the user's folder of caches (``kosmos.data.caches``), and may be deleted at any time. No
network runs for a medium of which it is there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from hashlib import blake2b, file_digest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kosmos.data.caches import cache_folder
from kosmos.data.document import Media, StoredMedia
from kosmos.errors import SampleError

Encode = Callable[[Media], NDArray[np.int64]]
_DIGEST_BYTES = 20


class KeptCodes:
    """The codes of one codec.

    Args:
        identity: of the codec, as ``identity_of`` tells it.
        keeps: whether they are kept at all.
    """

    def __init__(self, identity: str, *, keeps: bool = True) -> None:
        self.identity = identity
        top = cache_folder("codes") if keeps else None
        self.folder = None if top is None else top / identity

    def codes(self, medium: Media | StoredMedia, encode: Encode) -> NDArray[np.int64]:
        """Those of a medium, [n]; by ``encode`` where nobody has made them yet. Raises what that raises."""
        media = medium.load()
        file = None if self.folder is None else self.folder / _name(media)
        if file is not None and (kept := _read(file)) is not None:
            return kept
        codes = encode(media)
        if file is not None:
            with suppress(OSError):  # that they cannot be kept costs time alone
                _write(file, codes)
        return codes


def _name(media: Media) -> Path:
    """Where the codes of a medium lie: by what it holds. Raises SampleError where it cannot be read."""
    source = media.source
    if isinstance(source, Path):
        try:
            state = source.stat()
            if not stat.S_ISREG(state.st_mode):
                raise SampleError(f"{source.name} is no file")
            content = _digest_of(str(source), state.st_mtime_ns, state.st_size)
        except OSError as error:
            raise SampleError(f"{source.name} cannot be read ({error})") from error
    elif isinstance(source, np.ndarray):
        content = _digest(f"{source.dtype.str} {source.shape} ".encode() + np.ascontiguousarray(source).tobytes())
    else:
        content = _digest(source)
    name = _digest(content + f"{media.clip} {media.rate_hz}".encode()).hex()
    return Path(name[:2], name[2:])


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=_DIGEST_BYTES).digest()


@lru_cache(maxsize=4096)
def _digest_of(name: str, mtime_ns: int, size: int) -> bytes:
    """Of a file as it is, which stretches of it ask for time and again; in blocks, since it may be of any size."""
    with open(name, "rb") as file:
        return file_digest(file, partial(blake2b, digest_size=_DIGEST_BYTES)).digest()


def _read(file: Path) -> NDArray[np.int64] | None:
    """What a record holds; None where there is none, or not all of it."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    digest, codes = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if not codes or len(codes) % 4 or _digest(codes) != digest:
        return None
    return np.frombuffer(codes, "<u4").astype(np.int64)


def _write(file: Path, codes: NDArray[np.int64]) -> None:
    """Written aside and renamed, since several processes may; not synced, since the digest tells what is whole."""
    content = codes.astype("<u4").tobytes()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
            written.write(_digest(content) + content)
        aside.replace(file)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
