"""Objects of PIL that were opened from files, in rows in memory: as the bytes of their files, or by what they hold now.

``datasets`` would take the name of the file alone, which rows in memory may not name: only what the caller has opened
is read here, by the handle that the object holds.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kosmos.data.foreign import first_line
from kosmos.data.sources.media import NO_FILES, resolve
from kosmos.errors import ConfigError, SampleError

_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")
"""Those that PNG holds, with what is transparent in them; others become TIFF."""
_ALIKE = {"PA": "RGBA", "La": "LA", "RGBa": "RGBA", "HSV": "RGB"}
"""What neither format holds, and what does."""


def holds_opened(value: Any, root: Path) -> bool:
    """Whether a value of a row is such an object, or holds one, of a file that is not below ``root``."""
    if isinstance(value, Mapping | list | tuple):
        return any(holds_opened(inner, root) for inner in (value.values() if isinstance(value, Mapping) else value))
    return _is_of_pil(value) and bool(name := _name_of(value)) and not _is_below(root, name)


def examples_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """For each column a value of the rows that shows its kind: one that holds an object of PIL, else the first."""
    found: dict[str, Any] = {}
    for row in rows:
        for name, value in row.items():
            if found.get(name) is None or (_holds_pil(value) and not _holds_pil(found[name])):
                found[name] = value
    return found


def as_objects(value: Any, root: Path, where: str) -> Any:
    """A value with an object of ``bytes`` and ``path`` in place of each of PIL, as ``datasets`` stores them.

    Args:
        root: files below it stay named.
        where: what errors call the value.

    Raises:
        ConfigError: one cannot be read any more.
    """
    if isinstance(value, Mapping):
        return {key: as_objects(inner, root, f"{where}.{key}") for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_objects(inner, root, f"{where}[{number}]") for number, inner in enumerate(value)]
    if not _is_of_pil(value):
        return value
    name = _name_of(value)
    if name and _is_below(root, name):
        return {"bytes": None, "path": name}
    try:
        return {"bytes": _of_file(value) or _of_pixels(value), "path": None}
    except Exception as error:  # of a file that was closed PIL raises several
        raise ConfigError(
            f"{where}: {name or 'an object of PIL'} cannot be read ({first_line(error)}); if it was closed, load() it "
            "before, or give its bytes"
        ) from error


def with_kinds_of(table: Any, like: Any) -> Any:
    """A ``datasets.Dataset`` of such objects, of the kinds that the columns of another have that was made of PIL's."""
    for name, kind in like.features.items():
        if not _is_plain(kind):
            table = table.cast_column(name, kind)
    return table


def _is_plain(kind: Any) -> bool:
    """Whether a column holds values, lists and objects alone, and nothing that the library encodes."""
    if isinstance(kind, Mapping):
        return all(map(_is_plain, kind.values()))
    if isinstance(kind, list):
        return all(map(_is_plain, kind))
    return _is_plain(kind.feature) if hasattr(kind, "feature") else type(kind).__name__ == "Value"


def _holds_pil(value: Any) -> bool:
    if isinstance(value, Mapping | list | tuple):
        return any(map(_holds_pil, value.values() if isinstance(value, Mapping) else value))
    return _is_of_pil(value)


def _name_of(opened: Any) -> str:
    """The file that it was opened from; empty where it has none."""
    name = getattr(opened, "filename", "")
    return os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else ""


def _is_of_pil(value: Any) -> bool:
    return any(kind.__module__.partition(".")[0] == "PIL" for kind in type(value).__mro__) and hasattr(value, "copy")


def _is_below(root: Path, name: str) -> bool:
    """Whether rows may name the file, as its absolute path or below ``root``."""
    if root == NO_FILES:
        return False
    try:
        resolve(root, name)
    except SampleError:
        return False
    return True


def _of_file(opened: Any) -> bytes:
    """All of a file of which nothing was decoded yet; empty of one that was, as it may hold something else by now."""
    file = getattr(opened, "fp", None)
    if file is None or file.closed or not getattr(opened, "tile", None) or opened.tell():
        return b""
    place = file.tell()
    try:
        file.seek(0)
        content: bytes = file.read()
    finally:
        file.seek(place)
    return content


def _of_pixels(opened: Any) -> bytes:
    """What it shows now, with all that is transparent, and how it is to be turned."""
    shown, exif = opened.convert(_ALIKE[opened.mode]) if opened.mode in _ALIKE else opened.copy(), opened.getexif()
    kind = "PNG" if shown.mode in _PNG_MODES else "TIFF"
    shown.save(written := io.BytesIO(), format=kind, **({"exif": exif} if len(exif) else {}))
    return written.getvalue()
