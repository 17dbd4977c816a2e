"""Moving pictures for Kosmos.

``ClipInput`` is public: an encoder of one's own has one as its ``input``. It is imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kosmos_video.frames import ClipInput as ClipInput

__all__ = ["ClipInput"]


def __getattr__(name: str) -> Any:
    if name == "ClipInput":
        from kosmos_video.frames import ClipInput

        return ClipInput
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
