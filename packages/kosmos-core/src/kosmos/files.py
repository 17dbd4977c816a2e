"""Files that are never half written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(file: Path) -> Iterator[BinaryIO]:
    """A new file in the place of ``file``, once the block is left: whoever reads it, now or after a crash, sees the old
    or the new whole.

    Raises:
        OSError: it cannot be written; the old one is as it was.
    """
    aside = file.with_name(f".{file.name}.{os.getpid()}.{os.urandom(4).hex()}")  # other hosts have such processes too
    try:
        with aside.open("wb") as written:
            yield written
            written.flush()
            os.fsync(written.fileno())
        aside.replace(file)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def replace_text(file: Path, text: str) -> None:
    """Put ``text`` in the place of ``file``; see ``replacing``."""
    with replacing(file) as written:
        written.write(text.encode("utf-8"))
