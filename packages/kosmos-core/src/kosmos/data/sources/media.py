"""Media that rows name: paths inside the data root, bytes, ``data:`` URLs. Nothing else is ever opened."""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import numpy as np

from kosmos.data.document import Codes, FileSpan, Media, Segment, StoredMedia
from kosmos.data.sources.arrays import ARRAY, NO_MORE, Taken, read_rate
from kosmos.data.sources.columns import kind_of
from kosmos.data.sources.lost import LostMediumError, is_left_out
from kosmos.data.sources.members import Members
from kosmos.data.sources.misspelt import meant
from kosmos.data.sources.pages import refuse_choice
from kosmos.data.sources.plain_base64 import is_base64
from kosmos.data.sources.times import own_clip, read_clip
from kosmos.data.sources.wish_names import stated_rate
from kosmos.data.sources.written_media import holds_codes, read_codes
from kosmos.errors import SampleError
from kosmos.names import listed

KEYS: Final = ("path", "url", "bytes", "data")
"""Of an object, that hold or name a medium; the name of its modality is another."""

NO_FILES: Final = Path(os.devnull)
"""The data root of rows that may name no file at all: nothing can be below what is no folder."""

THERE: Final = b"there"
"""Stands in a row for a medium whose bytes nobody asked for yet."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=//|[^\\/])")
_PLAIN = re.compile(r"(?!\s*\Z)[^/\\:\0]+(?:/[^/\\:\0]+)*")
"""Names that nothing below can object to, but for ``..``."""
_SET_ROOT = "name files below it, or the folder that holds them as root"
"""``data.sources.N.root`` or ``--root``: who opened the source knows which, and says so behind the message."""
_DATA_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)


class NoSuchFileError(LostMediumError):
    """A row names a file that is not there."""


class MisspeltFileError(NoSuchFileError):
    """The same, and one is there whose name is written nearly so."""

    may_be_left_out = False


class NotInSampleError(NoSuchFileError):
    """The same, of a row that is a sample of an archive with other media."""


class NotAFileError(SampleError):
    """A row names a folder, a pipe or the like as a file."""


class EmptyMediumError(LostMediumError):
    """A medium holds nothing, or is base64 that is broken."""


class OutsideRootError(SampleError):
    """A row names a file outside the data root."""


class MediaRoot(NamedTuple):
    """Where the media are that rows name."""

    folder: Path
    """The data root."""
    suffixes: Mapping[str, Collection[str]] = {}
    """Suffix to the modalities that may be meant by it: what names of their media may lack."""
    taken: Taken = NO_MORE
    """What processors take beside files."""
    members: Members | None = None
    """Files of the row's sample, where it is one of an archive."""

    def file(self, modality: str, name: str) -> Path | FileSpan:
        """A file of the row's sample, else as ``resolve``. A name without a suffix that is no file stands for the one
        file beside it that has it and a suffix of the modality, in small or in capital letters.

        Raises:
            SampleError: as of ``resolve``, or there are several such files.
        """
        if self.members is not None and (found := self.members.find(name)) is not None:
            return found
        try:
            return resolve(self.folder, name)
        except (NoSuchFileError, NotAFileError) as error:
            name = _without_scheme(name)
            beside = {} if PurePosixPath(name).suffix else self._beside(modality, name)
            if not beside and self.members is not None and self.members.files and isinstance(error, NoSuchFileError):
                raise NotInSampleError(
                    f"{_shown(name)}: no file of the sample, which holds {self.members}; {error}"
                ) from error
            if not beside:
                raise
        if len(beside) > 1:
            files = listed([PurePosixPath(file).name for file in beside.values()])
            raise SampleError(f"{self.folder / name}: no such file, and {files} beside it may be meant; write which")
        return resolve(self.folder, *beside.values())

    def _beside(self, modality: str, name: str) -> dict[tuple[int, int], str]:
        """Files beside a name, by what tells them apart where capitals and links do not."""
        found: dict[tuple[int, int], str] = {}
        for suffix in (suffix for suffix, claims in self.suffixes.items() if modality in claims):
            for spelled in dict.fromkeys((suffix, suffix.upper())):
                with suppress(OSError, ValueError):
                    state = os.stat(self.folder / f"{name}{spelled}")
                    if stat.S_ISREG(state.st_mode):
                        found.setdefault((state.st_dev, state.st_ino), f"{name}{spelled}")
        return found


def resolve(root: Path, name: str) -> Path:
    """The file ``name`` under the data root ``root``. ``file:///a.png`` is the absolute path.

    Raises:
        SampleError: a URL, or a path that begins with ``..`` or a drive.
        OutsideRootError: an absolute path or a link that leads out of ``root``.
        NoSuchFileError: there is none.
        NotAFileError: what is there is none.
    """
    if _PLAIN.fullmatch(name) and ".." not in (parts := name.split("/")) and (found := _without_links(root, parts)):
        return found
    return _resolved(root, name)


def _resolved(root: Path, name: str) -> Path:
    """As ``resolve``, of any name; a reason where there is no such file."""
    shown = _shown(name)
    if is_base64(name):
        ways = "write data:TYPE;base64, in front of it, or set options.base64=true of its file"
        raise SampleError(f"{name[:40]}...: base64 in the place of a path; {ways}")
    if not name.strip() or "\0" in name:
        raise SampleError(f"path {shown!r}: empty or with a NUL character")
    if (plain := _without_scheme(name)) != name:
        return _resolved(root, plain)
    if scheme := _SCHEME.match(name):
        what = "write the path itself" if scheme[1].lower() == "file" else "download the file into the data folder"
        raise SampleError(f"{shown}: URLs of kind {scheme[1]!r} are never opened; {what}")
    if root == NO_FILES:
        raise SampleError(
            f"{shown}: rows of a hub dataset, or in memory without a root, name no files; their media have to be bytes "
            "in the rows"
        )
    pure = PurePosixPath(name)
    windows = PureWindowsPath(name if "\\" in name or ":" in name else "")
    if pure.is_absolute() and not windows.drive:
        inner = _inside(root, pure)
        if inner is None:
            raise OutsideRootError(f"{shown}: absolute paths out of {root} are refused; {_SET_ROOT}")
        name, pure = str(inner), inner
    if pure.is_absolute() or windows.drive or (windows.root and "\\" in name):
        raise SampleError(f"{shown}: absolute paths are refused; name files relative to {root}")
    if ".." in pure.parts or ".." in windows.parts:
        raise SampleError(f"{shown}: '..' is refused; files have to be inside {root}")
    try:
        real_root = root.resolve()
        path = (real_root / name).resolve()
        inside, there = path.is_relative_to(real_root), path.is_file()
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)  # the whole of which says the whole name again
        raise SampleError(f"{shown}: cannot be read ({_shown(why)})") from error
    if not inside:
        raise OutsideRootError(f"{shown}: a link that leads out of {root} is refused; {_SET_ROOT}")
    if not there:
        if os.path.lexists(path):
            raise NotAFileError(f"{root / shown}: is no file, but a folder, a pipe or the like")
        if hint := meant(real_root, name):
            raise MisspeltFileError(f"{root / shown}: no such file{hint}")
        raise NoSuchFileError(f"{root / shown}: no such file")
    return path


def _shown(name: str) -> str:
    """A name as messages have it: of a long one both ends."""
    return name if len(name) <= 300 else f"{name[:200]}...{name[-80:]}"


def _without_scheme(name: str) -> str:
    """The path of ``file:///path``; any other name as it is."""
    return unquote(name[7:]) if name[:8].lower() == "file:///" else name


def missing_file(name: Any, root: Path) -> str:
    """Why a manifest's text file was no text file when the manifest was opened."""
    if not isinstance(name, str):
        return f"file: expected a path, got {kind_of(name)}"
    try:
        resolve(root, name)
    except SampleError as error:
        return f"file: {error}"
    return f"file: {name} was not there when the source was opened"


def _inside(root: Path, path: PurePosixPath) -> PurePosixPath | None:
    """An absolute path from ``root`` on; None where it does not begin with it."""
    for base in (root.absolute(), Path(_real(root, "" if root.is_absolute() else os.getcwd()))):
        if path.is_relative_to(base):
            return path.relative_to(base)
    return None


def _without_links(root: Path, parts: Sequence[str]) -> Path | None:
    """The file below ``root`` where none of the parts is a link: a look at each, around which ``Path.resolve`` spends
    50 microseconds. None where there is more to say."""
    try:
        path, mode = _real(root, "" if root.is_absolute() else os.getcwd()), 0
        for part in parts:
            path = f"{path}/{part}"
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                return None
    except (OSError, RuntimeError, ValueError):
        return None
    return Path(path) if stat.S_ISREG(mode) else None


@lru_cache(maxsize=64)
def _real(root: Path, folder: str) -> str:
    """Resolving takes a look at every folder above. ``folder`` is what a relative path is relative to."""
    return str(root.resolve())


def decode_data_url(url: str) -> bytes:
    """The bytes of a base64 ``data:`` URL.

    Raises:
        SampleError: not base64, or empty.
    """
    match = _DATA_URL.match(url)
    if match is None:
        raise SampleError(f"{url[:40]!r}...: expected data:TYPE;base64,...")
    return decode_base64(url[match.end() :])


def decode_base64(text: Any) -> bytes:
    """The bytes of a base64 string.

    Raises:
        SampleError: not base64, or empty.
    """
    if not isinstance(text, str):
        raise SampleError(f"expected base64 data, got {kind_of(text)}")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise EmptyMediumError(f"base64 data is broken: {error}") from error
    if not data:
        raise EmptyMediumError("base64 data is empty")
    return data


def read_source(modality: str, value: Any, root: MediaRoot) -> bytes | Path | FileSpan:
    """A medium's source from what a row holds: a path, a ``data:`` URL, bytes, or an object with one of them.

    Objects may have ``bytes`` and ``path`` (Hugging Face), ``url`` or ``data`` in base64 (OpenAI).

    Raises:
        SampleError: anything else, or a path that may not be opened.
    """
    if isinstance(value, bytes):
        if not value:
            raise EmptyMediumError("medium of zero bytes")
        return value
    if isinstance(value, str):
        return decode_data_url(value) if value[:5].lower() == "data:" else root.file(modality, value)
    if isinstance(value, Mapping):
        if value.get("bytes") is not None:
            return read_source(modality, value["bytes"], root)
        if value.get("data") is not None:
            return decode_base64(value["data"])
        for key in ("path", "url"):
            if isinstance(value.get(key), str):
                return read_source(modality, value[key], root)
        keys = (*KEYS, ARRAY) if modality in root.taken.arrays else KEYS
        if ARRAY not in keys and value.get(ARRAY) is not None:
            raise SampleError("an array without its rate; write sampling_rate beside it")
        raise SampleError(f"expected a path, bytes or a data: URL, got an object without {', '.join(keys)}")
    numbers = (
        "; write values of arrays into a file, or give them in Python as Documents of Media; a plugin lets rows hold "
        "them by arrays of its ModalitySpec"
    )
    is_array = isinstance(value, list | tuple | int | float) and not isinstance(value, bool)
    advice = numbers if is_array else ""
    raise SampleError(f"expected a path, bytes or a data: URL, got {kind_of(value)}{advice}")


def _not_empty(span: FileSpan) -> FileSpan:
    if not span.nbytes:
        raise EmptyMediumError("medium of zero bytes")
    return span


def holds_medium(value: Any) -> bool:
    """Whether a value is a medium or a list with one. No medium is null, what is empty, or an object of nulls; bytes of
    which there are none are one that is broken."""
    if value is None or isinstance(value, str):  # most are; this runs for every row at opening
        return bool(value)
    if isinstance(value, list | tuple):
        return any(map(holds_medium, value))
    if isinstance(value, Mapping):
        return any(part is not None for part in value.values())
    return True


def _held(modality: str, item: Any) -> Any:
    """What an object holds under the name of its modality, where nothing else in it is a medium; else the item."""
    if not isinstance(item, Mapping) or any(item.get(key) is not None for key in KEYS):
        return item
    return item[modality] if holds_medium(item.get(modality)) else item


def _rate_of_file(modality: str, held: Any, taken: Taken) -> float | None:
    """What an object states of the file that it holds. ``without_rates`` takes it away where no processor reads it."""
    if not isinstance(held, Mapping):
        return None
    return read_rate(held) if taken.reads_rate(modality) else stated_rate(held)


def without_rates(segments: tuple[Segment, ...], read: Collection[str]) -> tuple[Segment, ...]:
    """The segments, without the rates of files of other modalities than those that read them.

    A processor that knows nothing of rates of files may take one for that of an array, and read a sound otherwise than
    its own header says.
    """
    return tuple(
        [
            replace(segment, rate_hz=None)
            if isinstance(segment, Media)
            and segment.rate_hz is not None
            and segment.modality not in read
            and not isinstance(segment.source, np.ndarray)
            else segment
            for segment in segments
        ]
    )


def read_media(
    modality: str, value: Any, root: MediaRoot, clip: Any = None, *, has_time: bool = False
) -> Iterator[Media | StoredMedia | Codes]:
    """The media of one value, one or a list of them; those that are none are passed over (``holds_medium``). An object
    may hold one under the name of the modality, too.

    Args:
        modality: of the media.
        value: what the row holds.
        root: where files are looked for.
        clip: start and end in seconds of all of them that say nothing else themselves.
        has_time: whether they have time. If not, an object that says which stretch of it is meant, as it may of what
            has, is told so by the processor, which refuses clips (``said_beside``).

    Raises:
        SampleError: see ``read_source``, ``read_clip``, ``said_beside`` and ``refuse_choice``.
    """
    of_all, taken = read_clip(clip), root.taken
    value = taken.media(modality, value)
    for item in value if isinstance(value, list | tuple) else [value]:
        if holds_medium(item):
            try:
                held = _held(modality, item)
                span = own_clip(modality, item, held, has_time=has_time) or of_all
                if isinstance(item, FileSpan):
                    yield StoredMedia(modality, _not_empty(item), span)
                    continue
                if isinstance(item, np.ndarray):
                    yield Media(modality, item, span)
                    continue
                if holds_codes(item, modality, taken):
                    yield read_codes(modality, item)
                    continue
                if taken.is_array(modality, held):
                    yield Media(modality, taken.array(modality, held[ARRAY]), span, read_rate(held))
                else:
                    for said in (item, held):
                        if isinstance(said, Mapping):
                            refuse_choice(said, (*KEYS, modality), has_time=has_time)
                    source, rate = read_source(modality, held, root), _rate_of_file(modality, held, taken)
                    if isinstance(source, FileSpan) and rate is None:
                        yield StoredMedia(modality, _not_empty(source), span)
                        continue
                    yield Media(modality, source.read() if isinstance(source, FileSpan) else source, span, rate)
            except SampleError as error:
                told = type(error)(f"{modality}: {error}")
                if not is_left_out(told):
                    raise told from error
