"""Pictures for Kosmos: reading and planning, encoders and a sample set.

``ImageInput`` is public: an encoder of one's own has one as its ``input``. It is imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kosmos_vision.images import ImageInput as ImageInput

__all__ = ["ImageInput"]


def __getattr__(name: str) -> Any:
    if name == "ImageInput":
        from kosmos_vision.images import ImageInput

        return ImageInput
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
