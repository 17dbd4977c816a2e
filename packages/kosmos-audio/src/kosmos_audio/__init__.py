"""Sound for Kosmos: reading and planning, encoders and a sample set.

Public, and imported when first used: ``AudioInput``, which an encoder of one's own has as its ``input``;
``SoundReader`` and ``wav_of``, by which a codec of one's own reads sounds and writes them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kosmos_audio.codecs.sound_files import SoundReader as SoundReader
    from kosmos_audio.codecs.sound_files import wav_of as wav_of
    from kosmos_audio.inputs import AudioInput as AudioInput

__all__ = ["AudioInput", "SoundReader", "wav_of"]

_FROM = {
    "AudioInput": "kosmos_audio.inputs",
    "SoundReader": "kosmos_audio.codecs.sound_files",
    "wav_of": "kosmos_audio.codecs.sound_files",
}


def __getattr__(name: str) -> Any:
    if name in _FROM:
        return getattr(import_module(_FROM[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
