"""A data folder of Kaldi: ``wav.scp`` and ``text``, with ``segments`` and ``utt2spk`` where there are any.

A row has ``audio``, ``text`` and ``id``, ``speaker`` where ``utt2spk`` says it, and the ``clip`` of a segment. A
wav.scp may hold commands: they are refused, and never run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite

from kosmos import CorpusFiles, DataError, SampleError
from kosmos_audio.corpora import Rows

_SOUNDS, _TEXTS, _SEGMENTS, _SPEAKERS = "wav.scp", "text", "segments", "utt2spk"
_OF_ARCHIVE = re.compile(r".+\.ark:\d+")


def read(files: CorpusFiles) -> Rows | None:
    """The rows; None where the folder itself does not hold both ``wav.scp`` and ``text``."""
    if files.is_file or _SOUNDS not in files or _TEXTS not in files:
        return None
    return _rows(files)


def _rows(files: CorpusFiles) -> Rows:
    segments = _Lookup(files, _SEGMENTS) if _SEGMENTS in files else None
    sounds, speakers = _Lookup(files, _SOUNDS), _Lookup(files, _SPEAKERS) if _SPEAKERS in files else None
    found = 0
    for origin, line in files.lines(_TEXTS):
        identity, text = _parts(line)
        row: dict[str, object] = {"text": text, "id": identity}
        recording = identity
        try:
            if segments is not None:
                recording, own = _segment(segments.need(identity))
                row |= own
            row = {"audio": _path(*sounds.need(recording), files), **row}
        except SampleError as error:
            yield origin, error
            continue
        found += 1
        speaker = speakers.find(identity) if speakers is not None else None
        yield origin, row if speaker is None else {**row, "speaker": speaker[1]}
    files.pass_over((sounds if segments is None else segments).count() - found)


def _parts(line: str) -> tuple[str, str]:
    """The key in front of a line, and what stands behind it."""
    key, *rest = line.strip().split(None, 1)
    return key, rest[0] if rest else ""


class _Lookup:
    """What a file of ``KEY VALUE`` lines says of a key.

    All files of a folder list their keys in the same order, so that the next line is mostly the one that is asked for.
    Where it is not, the file is read into memory as a whole.
    """

    def __init__(self, files: CorpusFiles, name: str) -> None:
        self.files, self.name = files, name
        self._lines = self._entries()
        self._last: tuple[str, tuple[str, str]] | None = None
        self._all: dict[str, tuple[str, str]] | None = None

    def _entries(self) -> Iterator[tuple[str, tuple[str, str]]]:
        for origin, line in self.files.lines(self.name):
            key, value = _parts(line)
            yield key, (origin, value)

    def find(self, key: str) -> tuple[str, str] | None:
        """Origin and value; None where the file has no such key. Raises DataError where it has one twice."""
        if self._all is None:
            if self._last is None or self._last[0] != key:
                self._last = next(self._lines, None)
            if self._last is not None and self._last[0] == key:
                return self._last[1]
            self._all = self._read()
        return self._all.get(key)

    def need(self, key: str) -> tuple[str, str]:
        """As ``find``. Raises SampleError where the file has no such key."""
        if (found := self.find(key)) is None:
            raise SampleError(f"{key}: not in {self.name}")
        return found

    def count(self) -> int:
        """How many lines the file has."""
        return sum(1 for _ in self._entries())

    def _read(self) -> dict[str, tuple[str, str]]:
        found: dict[str, tuple[str, str]] = {}
        for key, (origin, value) in self._entries():
            if key in found:
                raise DataError(f"{self.files.folder / origin}: {key} is there twice; keep one of the lines")
            found[key] = (origin, value)
        return found


def _path(origin: str, value: str, files: CorpusFiles) -> str:
    """The file of a line of wav.scp. Raises DataError where it is none."""
    if value.endswith("|") or value.startswith("|"):
        what = f"a command ({value:.80}), and commands are never run"
    elif _OF_ARCHIVE.fullmatch(value):
        what = f"a place in an archive of Kaldi ({value:.80}), which is not read"
    elif not value or value == "-":
        what = "no file"
    else:
        return value
    made = "wav-copy scp:wav.scp ark,scp:... or the command itself writes files"
    raise DataError(f"{files.folder / origin}: {what}; write the sounds as files ({made}) and list their paths")


def _segment(found: tuple[str, str]) -> tuple[str, dict[str, object]]:
    """The recording of a segment, and what a row says of it: ``clip`` where it is not the whole, and ``channel``."""
    origin, value = found
    try:
        recording, start, end, *channel = value.split()
        span = [float(start), float(end)]
    except ValueError as error:
        raise SampleError(f"{origin}: expected UTTERANCE RECORDING START END, got {value!r:.80}") from error
    said: dict[str, object] = {"channel": channel[0]} if channel else {}
    if span == [0.0, -1.0]:  # to the end, as Kaldi has it
        return recording, said
    if span[1] == -1.0:
        raise SampleError(f"{origin}: an end of -1 behind a start of {start} is not read; write the seconds of the end")
    if not all(map(isfinite, span)) or not 0 <= span[0] < span[1]:
        raise SampleError(f"{origin}: expected a start in seconds and an end behind it, got {start} and {end}")
    return recording, {"clip": span, **said}
