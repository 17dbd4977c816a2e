"""Rows that choose a page or a frame of a medium's file, which nothing here does: they would learn of another one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from kosmos.errors import SampleError

_KEYS: Final = ("page", "frame")
_SEVERAL: Final = (".tif", ".tiff", ".gif", ".webp", ".apng", ".pdf", ".djvu")
"""Suffixes of files that may hold several without having time. Of others the number says where they are from."""
_BEGINS: Final = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+", b"GIF8", b"%PDF", b"RIFF")


def refuse_choice(said: Mapping[str, Any], names: Collection[str], *, has_time: bool = False) -> None:
    """
    Args:
        said: an object that holds or names a medium.
        names: keys under which it does.
        has_time: whether the medium has time, of which a clip is taken.

    Raises:
        SampleError: it has the number of a page or a frame, and names a file that may hold several. Other values of
            these keys say what the medium shows.
    """
    for key in _KEYS:
        if (
            key in said
            and _is_number(said[key])
            and (has_time or any(_may_hold_several(said.get(name)) for name in names))
        ):
            clip = "; of what has time a clip is taken (clip: [start, end] in seconds)" if has_time else ""
            raise SampleError(
                f"{key} {said[key]}: a row chooses no {key} of a file; write each {key} into a file of its own (such "
                f"as tiffsplit FILE, or magick FILE {key}-%d.png), name that, and leave {key} out{clip}"
            )


def _may_hold_several(value: Any) -> bool:
    if isinstance(value, bytes):
        return value.startswith(_BEGINS)
    if isinstance(value, Mapping):  # such as {"url": ...}
        return any(_may_hold_several(inner) for inner in value.values())
    return isinstance(value, str) and value.lower().endswith(_SEVERAL)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, float):  # as tables of numbers with gaps have them; a gap is no number
        return value.is_integer()
    return isinstance(value, int) or (isinstance(value, str) and value.strip().isdecimal())
