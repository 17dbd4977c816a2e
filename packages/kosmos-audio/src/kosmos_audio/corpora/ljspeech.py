"""LJ Speech and what is laid out like it: ``metadata.csv`` of ``ID|text|normalized text`` beside ``wavs/ID.wav``.

A row has ``audio``, ``text``, ``id`` and, where there is one, ``normalized_text``. There is no line of names, and a
quote is a letter.
"""

from __future__ import annotations

from kosmos import CorpusFiles, SampleError
from kosmos_audio.corpora import Rows, num_sounds, sound_of

_LIST, _SOUNDS = "metadata.csv", "wavs/"


def read(files: CorpusFiles) -> Rows | None:
    """The rows; None where the first line of ``metadata.csv`` has no ``|`` or nothing is in ``wavs``."""
    if files.is_file or _LIST not in files or next(files.starting(_SOUNDS), None) is None:
        return None
    _, line = next(files.lines(_LIST), ("", ""))
    return _rows(files) if "|" in line else None


def _rows(files: CorpusFiles) -> Rows:
    found = 0
    for origin, line in files.lines(_LIST):
        name, *said = (part.strip() for part in line.split("|"))
        if len(said) not in (1, 2) or not name:
            got = f"got {len(said) + 1}" if name else "the first is empty"
            yield origin, SampleError(f"expected ID|text or ID|text|normalized text, {got}")
            continue
        own = f"{_SOUNDS}{name}"
        sound = own if own in files else sound_of(files, own)
        found += sound is not None
        row = {"audio": sound or f"{own}.wav", "text": said[0], "id": name}
        yield origin, {**row, "normalized_text": said[1]} if len(said) > 1 else row
    files.pass_over(num_sounds(files, _SOUNDS) - found)
