"""VCTK: ``txt/p225/p225_001.txt`` and ``wav48_silence_trimmed/p225/p225_001_mic1.flac``, or ``wav48/.../p225_001.wav``.

A row has ``audio``, ``text``, ``id`` and ``speaker``. Of two microphones the first is read, which every speaker has.
"""

from __future__ import annotations

from collections.abc import Iterator

from kosmos import CorpusFiles
from kosmos_audio.corpora import Rows, num_sounds, sound_of

_TEXTS = "txt/"
_SOUNDS = ("wav48_silence_trimmed/", "wav48/")
_FIRST, _SECOND = "_mic1", "_mic2"


def read(files: CorpusFiles) -> Rows | None:
    """The rows; None where there are no texts in ``txt/SPEAKER`` or no folder of sounds."""
    if files.is_file or next(_texts(files), None) is None:
        return None
    sounds = next((folder for folder in _SOUNDS if next(files.starting(folder), None) is not None), None)
    return None if sounds is None else _rows(files, sounds)


def _texts(files: CorpusFiles) -> Iterator[str]:
    return (name for name in files.starting(_TEXTS) if name.count("/") == 2 and name.endswith(".txt"))


def _rows(files: CorpusFiles, sounds: str) -> Rows:
    found = 0
    for name in _texts(files):
        stem = name[len(_TEXTS) : -len(".txt")]
        speaker, _, identity = stem.partition("/")
        sound = sound_of(files, f"{sounds}{stem}{_FIRST}") or sound_of(files, f"{sounds}{stem}")
        found += sound is not None
        text = " ".join(line.strip() for _, line in files.lines(name))
        audio = sound or f"{sounds}{stem}{_FIRST}.flac"
        yield name, {"audio": audio, "text": text, "id": identity, "speaker": speaker}
    seconds = sum(f"{_SECOND}." in name for name in files.starting(sounds))
    files.pass_over(num_sounds(files, sounds) - seconds - found)
