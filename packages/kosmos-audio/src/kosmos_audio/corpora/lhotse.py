"""Manifests of Lhotse: cuts with their recordings and supervisions, or recordings and supervisions without cuts.

A cut is one row, with the texts of its supervisions in the order of time; without cuts each supervision is one. A row
has ``audio``, ``text``, ``id`` and the ``clip``, ``speaker`` and ``language`` where all its supervisions have the same,
and ``channel`` where the recording has several. Sounds in files are read: commands and addresses are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kosmos import CorpusFiles, DataError, SampleError
from kosmos_audio.corpora import Rows

_FILE = re.compile(r"(?:.*[-_.])?(cuts|recordings|supervisions)(?:[-_.].*)?\.jsonl(?:\.gz|\.zst|\.bz2|\.xz)?")
_KEYS = ("recording", "supervisions")
_ALIKE_S = 0.01
"""Two times that differ by less are the same: manifests round them."""


def read(files: CorpusFiles) -> Rows | None:
    """The rows; None where there are no cuts, and not both recordings and supervisions.

    Raises:
        DataError: there are several of a kind.
    """
    if any(key in named for named in files.named for key in _KEYS):
        return None  # who names parts of a cut reads it as JSON
    if files.is_file:
        return _cuts(files, files.names[0]) if _is_cut(files, files.names[0]) else None
    kinds: dict[str, list[str]] = {}
    for name in files.names:
        if "/" not in name and (found := _FILE.fullmatch(name)):
            kinds.setdefault(found[1], []).append(name)
    if (cuts := kinds.get("cuts")) and _is_cut(files, cuts[0]):
        return _cuts(files, _one(files, cuts))
    if "recordings" not in kinds or "supervisions" not in kinds or "cuts" in kinds:
        return None
    if "recording_id" not in _first(files, kinds["supervisions"][0]):
        return None
    return _supervisions(files, _one(files, kinds["recordings"]), _one(files, kinds["supervisions"]))


def _one(files: CorpusFiles, names: list[str]) -> str:
    if len(names) > 1:
        advice = f"name one file of cuts as a source (--data {files.folder / names[0]})"
        if "cuts" not in names[0]:
            advice = "make cuts of each two (lhotse cut simple), or a folder for each two"
        raise DataError(f"{files.folder}: several manifests of Lhotse ({', '.join(names[:3])}); {advice}")
    return names[0]


def _first(files: CorpusFiles, name: str) -> Mapping[str, Any]:
    """The first row of a file; nothing where it is no JSON."""
    _, line = next(files.lines(name), ("", ""))
    try:
        row = json.loads(line)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


def _is_cut(files: CorpusFiles, name: str) -> bool:
    if ".jsonl" not in name:
        return False
    row = _first(files, name)
    has_parts = "supervisions" in row and "recording" in row and "start" in row
    return str(row.get("type", "")).endswith("Cut") and (has_parts or "tracks" in row)


def _objects(files: CorpusFiles, name: str) -> Iterator[tuple[str, dict[str, Any] | SampleError]]:
    for origin, line in files.lines(name):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield origin, SampleError(f"not JSON: {error}")
            continue
        yield origin, row if isinstance(row, dict) else SampleError("expected an object")


def _cuts(files: CorpusFiles, name: str) -> Rows:
    for origin, cut in _objects(files, name):
        if isinstance(cut, SampleError):
            yield origin, cut
            continue
        try:
            if cut.get("type") not in ("MonoCut", "MultiCut", None) or "tracks" in cut:
                raise SampleError(f"a {cut.get('type')} is made of several sounds; save it as one (cut.save_audio)")
            said = sorted(_of(cut, "supervisions", list), key=lambda one: _seconds(one, "start"))
            row = _sound(files, origin, _of(cut, "recording", dict), cut)
            text = " ".join(text.strip() for one in said if isinstance(text := one.get("text"), str) and text.strip())
            yield origin, {**row, "text": text, "id": cut.get("id"), **_shared(said)}
        except SampleError as error:
            yield origin, error


def _supervisions(files: CorpusFiles, recordings: str, supervisions: str) -> Rows:
    known: dict[str, tuple[str, dict[str, Any]]] = {}
    for origin, recording in _objects(files, recordings):
        if isinstance(recording, SampleError):
            raise DataError(f"{files.folder / origin}: {recording}")
        if (name := str(recording.get("id"))) in known:
            raise DataError(f"{files.folder / origin}: recording {name} is there twice; keep one of the lines")
        known[name] = (origin, recording)
    for origin, one in _objects(files, supervisions):
        if isinstance(one, SampleError):
            yield origin, one
            continue
        try:
            if (name := str(one.get("recording_id"))) not in known:
                raise SampleError(f"recording {name}: not in {recordings}")
            row = _sound(files, *known[name], one)
            yield origin, {**row, "text": one.get("text"), "id": one.get("id"), **_shared([one])}
        except SampleError as error:
            yield origin, error


def _sound(files: CorpusFiles, origin: str, recording: Mapping[str, Any], piece: Mapping[str, Any]) -> dict[str, Any]:
    """The file of a recording, and which part of it a cut or a supervision is.

    Raises:
        DataError: it is in no file.
        SampleError: it is no such object, or is changed after it is read.
    """
    changes = [str(one.get("name", one)) for one in recording.get("transforms") or () if isinstance(one, dict)]
    if changes := [name for name in changes if name != "Resample"]:
        raise SampleError(f"the recording is changed after it is read ({', '.join(changes)}); save it so (lhotse)")
    sources = _of(recording, "sources", list)
    if len(sources) != 1 or not isinstance(sources[0], dict):
        raise SampleError(f"recording: expected one source, got {len(sources)}")
    kind, path = sources[0].get("type"), sources[0].get("source")
    if kind != "file" or not isinstance(path, str):
        raise DataError(
            f"{files.folder / origin}: a recording of type {kind!r:.40} ({path!r:.80}); sounds in files alone are "
            "read, no command is run and no address opened: write them as files (lhotse's save_audios)"
        )
    start, duration = _seconds(piece, "start"), _seconds(piece, "duration")
    row: dict[str, Any] = {"audio": path}
    whole = recording.get("duration")
    is_whole = isinstance(whole, int | float) and start < _ALIKE_S and abs(duration - whole) < _ALIKE_S
    row |= {} if is_whole else {"clip": [start, round(start + duration, 6)]}
    channels = sources[0].get("channels") or ()
    return row | ({"channel": piece.get("channel")} if len(channels) > 1 else {})


def _shared(said: list[Any]) -> dict[str, Any]:
    """What all supervisions say alike."""
    found: dict[str, str] = {}
    for key in ("speaker", "language"):
        values = {value for one in said if isinstance(value := one.get(key), str)}
        found |= {key: values.pop()} if len(values) == 1 else {}
    return found


def _of(held: Mapping[str, Any], key: str, kind: type[Any]) -> Any:
    value: Any = held.get(key)
    if not isinstance(value, kind):
        raise SampleError(f"{key}: expected {'a list' if kind is list else 'an object'}, got {value!r:.40}")
    if kind is list and not all(isinstance(one, dict) for one in value):
        raise SampleError(f"{key}: expected a list of objects")
    return value


def _seconds(held: Mapping[str, Any], key: str) -> float:
    value = held.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SampleError(f"{key}: expected seconds, got {value!r:.40}")
    return float(value)
