"""Where PyTorch's compiler writes its files, and what to tell where it cannot: its own error names no folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kosmos.errors import FULL, unwritable

_OF_THE_DISK = (*FULL, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM)
_COMPILERS = ("torch._inductor", "torch._dynamo", "triton")


def disk_failure(error: BaseException | None) -> OSError | None:
    """What the disk has failed by, where that is why PyTorch's compiler has failed; else None."""
    if error is None or not type(error).__module__.startswith(_COMPILERS):
        return None
    inner: BaseException | None = getattr(error, "inner_exception", None)
    for behind in (inner, error.__cause__, error.__context__):
        if isinstance(behind, OSError) and behind.errno in _OF_THE_DISK:
            return behind
        if behind is not error and (found := disk_failure(behind)) is not None:
            return found
    if os.strerror(errno.ENOSPC) in str(error):  # what a compiler of C++ said
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return None


@contextmanager
def room_for_compilers() -> Iterator[None]:
    """Raises KosmosError with the folder and what to do where PyTorch's compiler cannot write its files."""
    try:
        yield
    except Exception as error:
        if (failed := disk_failure(error)) is None:
            raise
        another = "name a folder of another disk in TMPDIR (or TORCHINDUCTOR_CACHE_DIR)"
        advice = f"make room, {another}, or set train.compile=false"
        where = f"train.compile: {failed.filename or _folder()}"
        raise unwritable(where, failed, advice, "PyTorch's compiler cannot write there") from error


def _folder() -> Path:
    from torch._inductor.runtime.cache_dir_utils import cache_dir  # it has been asked for before

    try:
        return Path(cache_dir())
    except OSError as error:
        return Path(str(error.filename))
