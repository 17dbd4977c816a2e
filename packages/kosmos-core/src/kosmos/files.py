"""Files that are never half written."""

from __future__ import annotations

import os
from pathlib import Path


def replace_text(file: Path, text: str) -> None:
    """Put ``text`` in the place of ``file``: whoever reads it, now or after a crash, sees the old or the new whole.

    Raises:
        OSError: it cannot be written; the old one is as it was.
    """
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with aside.open("w", encoding="utf-8") as written:
            written.write(text)
            written.flush()
            os.fsync(written.fileno())
        aside.replace(file)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
