"""Paths of data at which nothing is: what may have been meant."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from kosmos.data.sources.request import Request
from kosmos.errors import DataError
from kosmos.names import listed, nearest


def refuse_several(request: Request, datasets: Collection[str]) -> None:
    """Raises DataError where what nothing is called is a list of sources, or modalities that were taken for data.

    Args:
        datasets: names of the registered ones.
    """
    names = [name.strip() for name in request.path.split(",")]
    modalities = [name for name in names if name in (*request.specs, "text")]
    if modalities == names:
        what, whose = ("is a modality, not a data set", "its sample set")
        if len(names) > 1:
            what, whose = ("these are modalities, not data sets", "their sample sets")
        raise DataError(
            f"data {request.path!r}: {what}; name a data set ({listed(datasets)}), a file or a folder; "
            f"kosmos train --modalities {','.join(names)} without --data takes {whose}"
        )
    if len(names) > 1 and all(name in (*datasets, *modalities) or os.path.exists(name) for name in names):
        raise DataError(f"data {request.path!r}: these are {len(names)} sources; give each a --data of its own")


def neighbour(path: Path) -> str:
    """What in the same folder may have been meant; nothing where there is no such folder, or nothing like it."""
    try:
        name = nearest(path.name, [other.name for other in path.parent.iterdir()])
        return f"did you mean {path.with_name(name)}?" if name else ""
    except (OSError, ValueError):
        return ""


def refuse_place(path: Path, near: str) -> None:
    """Raises DataError where what looks like a hub id is a path that leads into a folder which is here: its names are
    not to be sent anywhere.

    Args:
        near: as of ``neighbour``.
    """
    if ":" not in path.name and path.parent.is_dir():
        beside = f"; {near}" if near else ""
        raise DataError(
            f"data {str(path)!r}: no such file or folder in {path.parent}{beside}; it is not looked up at the hub, as "
            f"the folder is here; a dataset of the hub is asked for in spite of it by its configuration "
            f"({path}:default)"
        )
