"""A medium that a command line names: a file, or an object as rows hold it, which says its rate or clip too."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kosmos.components import ModalitySpec
from kosmos.data.document import Codes, Document, Media
from kosmos.data.sources.arrays import ARRAY, Taken
from kosmos.data.sources.media import KEYS, MediaRoot, read_media
from kosmos.data.sources.times import OF_A_PART, edges_of
from kosmos.data.sources.wish_names import READ_RATES
from kosmos.errors import ConfigError, SampleError
from kosmos.names import did_you_mean, listed

ANYWHERE = Path("/")
"""What a person names may lie anywhere, unlike what rows name."""


def named_medium(modality: str, value: str, spec: ModalitySpec | None = None, *, option: str = "") -> Media:
    """What ``value`` names: the path of a file, or a JSON object with it, such as ``{"path": "a.npy", "rate_hz": 50}``.

    Args:
        spec: what the modality takes beside files; None takes files alone.
        option: what errors call it.

    Raises:
        ConfigError: it begins as an object and is none, or has a key that is not read.
        SampleError: the file is not there, or the object is none that a row may hold.
    """
    if spec is None or not value.lstrip().startswith("{") or os.path.lexists(value):
        return Media(modality, _file(value))
    said = _object(value, option)
    _check_keys(modality, said, spec, option)
    root = MediaRoot(ANYWHERE, taken=Taken.of({modality: spec}))
    (medium,) = _media(modality, _from_here(said, modality), root, spec)
    return medium


def _media(modality: str, held: Mapping[str, Any], root: MediaRoot, spec: ModalitySpec) -> list[Media]:
    found = [m.load() for m in read_media(modality, held, root, has_time=spec.has_time) if not isinstance(m, Codes)]
    if len(found) != 1:
        raise SampleError(f"{modality}: expected one medium, got an object of {len(found)}")
    return found


def _object(value: str, option: str) -> dict[str, Any]:
    try:
        said = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{option}: expected a file or an object of JSON, got {value!r:.60} ({error})") from error
    assert isinstance(said, dict), said  # it begins with a brace
    return said


def _check_keys(modality: str, said: Mapping[str, Any], spec: ModalitySpec, option: str) -> None:
    """Raises ConfigError at a key that nobody reads: in a row it may say anything, here it is meant."""
    rates = READ_RATES if spec.reads_rate or said.get(ARRAY) is not None else ()
    known = [*KEYS, ARRAY, modality, *rates, *(OF_A_PART + edges_of(modality) if spec.has_time else ())]
    for key in said:
        if key in READ_RATES and key not in known:
            raise ConfigError(f"{option}: {key}: files of {modality} state their rate themselves; leave it out")
        if key not in known:
            raise ConfigError(f"{option}: {key}: not read; {did_you_mean(key, known) or f'there are {listed(known)}'}")


def _from_here(said: Mapping[str, Any], modality: str) -> dict[str, Any]:
    """The object, and one in it, with files as they are named from the working folder."""
    found = dict(said)
    for key in ("path", "url", modality):
        held = said.get(key)
        if isinstance(held, str):
            found[key] = _absolute(held)
        elif isinstance(held, Mapping):
            found[key] = _from_here(held, modality)
    return found


def _absolute(path: str) -> str:
    """URLs stay as they are."""
    if not path.strip():
        raise SampleError("an empty path; name a file")
    if "://" in path:
        return path
    return path if path[:5].lower() in ("data:", "file:") else os.path.abspath(os.path.expanduser(path))


def _file(path: str) -> Path:
    if Path(path).is_dir():
        raise SampleError(f"{path}: is a folder; give one file")
    if not Path(path).is_file():
        raise SampleError(f"{path}: no such file")
    return Path(path)


def files_of(document: Document) -> str:
    """The files of a document, for a person; of media that are none, their modality."""
    return ", ".join(str(m.source) if isinstance(m.source, Path) else m.modality for m in document.media)
