"""Sound for Kosmos: reading and planning, encoders and a sample set.

``AudioInput`` is public: an encoder of one's own has one as its ``input``. It is imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kosmos_audio.inputs import AudioInput as AudioInput

__all__ = ["AudioInput"]


def __getattr__(name: str) -> Any:
    if name == "AudioInput":
        from kosmos_audio.inputs import AudioInput

        return AudioInput
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
