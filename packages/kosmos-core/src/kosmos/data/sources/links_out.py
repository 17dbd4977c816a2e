"""Links that lead out of a folder of data: who gives a folder away chooses what they lead to on another's machine."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from kosmos.data.sources.file_names import rows_suffix
from kosmos.data.sources.since import is_opened_before
from kosmos.errors import DataError


def refuse_links_out(folder: Path, names: Sequence[str], root: Path | None = None) -> None:
    """Raise DataError where a file of rows or text in a folder is a link to what is not in it.

    Whoever names a file, or files by a pattern, means what they lead to; so does the cache of the hub, whose snapshots
    are folders of links to blobs beside them.

    Args:
        names: of the files that are to be read, from ``folder`` on, in no linked folder.
        root: a folder around ``folder``, into all of which links may lead, where there is one.
    """
    if is_opened_before():
        return
    inside: list[Path] = []
    for name in names:
        file = folder / name
        if not os.path.islink(file):
            continue
        if not inside:
            real = folder.resolve()
            inside = [real, *([] if root is None else [root.resolve()]), *_blobs(real)]
        try:
            target = file.resolve()
        except (OSError, RuntimeError):  # links in a circle: whoever reads it says so
            continue
        if not any(target.is_relative_to(place) for place in inside):
            raise DataError(
                f"{file}: a link that leads out of {folder} (to {target}) is refused; {_instead(folder, name, names)}"
            )


def _blobs(folder: Path) -> list[Path]:
    """Where the files of a snapshot are, as huggingface_hub has them: REPO/snapshots/REVISION links to REPO/blobs."""
    around = (folder, *folder.parents)
    return [place.parent.parent / "blobs" for place in around if place.parent.name == "snapshots"]


def _instead(folder: Path, name: str, names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"where that is meant, name the file itself (--data {folder / name})"
    below = "**/" if any("/" in name for name in names) else ""
    pattern = shlex.quote(f"{folder}/{below}*{rows_suffix(name)}")
    return f"where that is meant, name the files by a pattern (--data {pattern})"
