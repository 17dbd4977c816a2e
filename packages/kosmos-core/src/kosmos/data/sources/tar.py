"""Tar files of samples, as webdataset writes them: files of one name, up to its first dot, are one row.

A row's ``.json`` is its columns, its ``.txt`` its text, and files with a modality's suffix are its media, of which
several have numbers in front of it (``key.0.jpg``). Files are read where they lie in the archive; nothing is unpacked.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from kosmos.data.document import FileSpan
from kosmos.data.file_state import State, state_at, states_of
from kosmos.data.foreign import first_line
from kosmos.data.open_files import forget
from kosmos.data.sources import placed_members
from kosmos.data.sources.columns import Row, kind_of, top_column
from kosmos.data.sources.encoding import decoded
from kosmos.data.sources.file_names import suffix_of
from kosmos.data.sources.folders import LINK, modality_of
from kosmos.data.sources.forms import TEXTS
from kosmos.data.sources.jsonl import MAX_ROW_BYTES
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.layouts import CHATS, DefaultLayout
from kosmos.data.sources.media import THERE
from kosmos.data.sources.members import Members, SampleRow, named_at_places, parted
from kosmos.data.sources.ordered import is_interleaved
from kosmos.data.sources.packed import PackedKinds, PackedTexts
from kosmos.data.sources.scan_cache import Record, ScanRecord
from kosmos.data.sources.since import is_read_before
from kosmos.data.sources.source import Extent
from kosmos.errors import DataError, SampleError
from kosmos.names import listed

MAX_FILE_BYTES = 1 << 30
"""Most bytes of a medium in an archive."""
MOST_HEADER_BYTES = 1 << 20
"""Of what belongs to the next header, such as a long name, which ``tarfile`` reads as a whole."""
JSON, TEXT = "json", "txt"
ORDERED = ("segments", *CHATS)
"""Roles of lists whose parts may name media."""
SPARSE = -1
"""Stands for the size of a file that does not lie in one piece."""
_NUMBERED = re.compile(r"([0-9]{1,18})\.(.+)", re.DOTALL)
_OF_THE_NEXT = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")


class _Member(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        member = super().frombuf(buf, encoding, errors)
        if member.type in _OF_THE_NEXT and member.size > MOST_HEADER_BYTES:
            raise ValueError(f"a header of {member.size:,} bytes, over the limit of {MOST_HEADER_BYTES:,}")
        return member


@dataclass(frozen=True, eq=False)
class TarTable:
    """The samples of a tar file (a ``Table``)."""

    path: Path
    state: State
    """What the archive was when its samples were found."""
    keys: PackedTexts
    """Names of the samples: [rows]."""
    first: NDArray[np.int64]
    """Number of each sample's first file, and the number of files: [rows + 1]."""
    suffixes: PackedKinds[str]
    """What stands behind the first dot of each file's name: [files]."""
    begin: NDArray[np.int64]
    """Where each file begins in the archive, in bytes: [files]."""
    nbytes: NDArray[np.int64]
    """Its size: [files]."""
    modalities: Mapping[str, str]
    """Suffix, with its number where it has one, to the modality that it means."""
    wanted: frozenset[str]
    """Suffixes that the layout asks for by name; columns of that name hold them."""
    binary: frozenset[str]
    """Suffixes of files that are no text."""
    unplaced: Mapping[str, str]
    """Suffix to modality of media that nothing asks for, though the layout leaves open which are meant."""
    texts: str = TEXTS
    """Column of a ``.json`` that holds texts in turn with media."""
    ordered: tuple[str, ...] = ORDERED
    """Columns of a ``.json`` whose parts may name media: segments, and chats."""

    def __len__(self) -> int:
        return len(self.keys)

    def origin(self, index: int) -> str:
        return f"{self.path}:{self.keys[index]}"

    def root(self, index: int) -> Path:
        return self.path.parent

    def row(self, index: int) -> Row:
        return self._row(index, self._value)

    def row_with(self, index: int, path: str) -> Row:
        """A row with the file that a path leads into as a column, asked for by the layout or not. Raises SampleError
        where it cannot be read."""
        row = self.row(index)
        begin, end = self.first.item(index), self.first.item(index + 1)
        texts = {kind: begin + n for n, kind in enumerate(self.suffixes[begin:end]) if kind not in self.binary}
        top = top_column(path, texts)
        return {**row, top: self._value(texts[top], top)} if top in texts else row

    def scan(self, layout: Layout) -> Iterator[Row | SampleError]:
        # A .json may be a chat, and is read; of other files those are whose column says what the row is.
        light = layout.scanned(tuple(self.wanted))[0]

        def shadow(file: int, suffix: str) -> Any:
            if suffix in light or suffix == JSON:
                return self._value(file, suffix)
            return THERE if suffix in self.binary else ""

        for index in range(len(self)):
            try:
                yield self._row(index, shadow)
            except SampleError as error:
                yield error

    def row_blocks(self) -> None:
        return None

    def holds(self) -> tuple[()]:
        return ()

    def extent(self) -> Extent:
        return Extent((self.path,), f"{sorted(self.modalities.items())} {sorted(self.wanted)}")

    def _row(self, index: int, value: Callable[[int, str], Any]) -> dict[str, Any]:
        """The columns of a sample, of which ``value(file, suffix)`` gives that of a file."""
        files = range(self.first.item(index), self.first.item(index + 1))
        suffixes = self.suffixes[files.start : files.stop]
        if len(set(suffixes)) < len(suffixes):
            twice = next(suffix for suffix in suffixes if suffixes.count(suffix) > 1)
            raise SampleError(f"holds .{twice} twice")
        found = dict(zip(suffixes, files, strict=True))
        numbered_texts = found.keys().isdisjoint({JSON, TEXT}) and any(map(_is_numbered_text, suffixes))
        if numbered_texts or found.keys().isdisjoint({JSON, TEXT, *self.modalities, *self.wanted}):
            named = _called(suffixes)
            raise SampleError(f"holds no .txt, .json or medium of this run, but {named} (a name ends at its first dot)")
        row = SampleRow({"id": f"{self.path.name}:{self.keys[index]}", "__key__": self.keys[index]})
        if JSON in found:
            row |= self._spread(value(found[JSON], JSON))
            if not is_read_before():
                media_files = {suffix: file for suffix, file in found.items() if suffix in self.binary}
                row.members = Members(self.keys[index], media_files, partial(self._span, MAX_FILE_BYTES))
        row |= {suffix: value(file, suffix) for suffix, file in found.items() if suffix in self.wanted}
        if TEXT in found:
            row["text"] = value(found[TEXT], TEXT)
        media: dict[str, list[str]] = {}
        for suffix in found:
            if (modality := self.modalities.get(suffix)) is not None:
                media.setdefault(modality, []).append(suffix)
        said = row if JSON in found else {}  # which may name media of its own, or be a chat
        if not media and "text" in row and not any(m in said or f"{m}s" in said for m in self.modalities.values()):
            self._check_text_is_all(suffixes)
        placed = self._placed(row.members, said) if media else {*()}
        for modality, several in media.items():
            if self._is_placed(row.members, said, modality, several):
                continue
            several = [suffix for suffix in several if suffix not in placed]
            names = row.pop(f"{modality}s", None) or row.get(modality)  # by which the .json knows them
            if several:
                row[modality] = [value(found[suffix], suffix) for suffix in _in_order(several, names)]
        return row

    def _placed(self, members: Members | None, said: Row) -> set[str]:
        """Suffixes of media that a ``.json`` names in their places."""
        if members is None:
            return set()
        segments, *chats = self.ordered
        modalities = tuple(sorted({*self.modalities.values()}))
        named = (placed_members.in_chat(members, said.get(chat), modalities) for chat in chats)
        return placed_members.in_segments(members, said.get(segments)).union(*named)

    def _is_placed(self, members: Members | None, said: Row, modality: str, several: Sequence[str]) -> bool:
        """As of ``named_at_places``, for media of a modality."""
        texts = said.get(self.texts)
        if members is None or texts is None or not is_interleaved(texts):
            return False
        return named_at_places(members, said, len(texts), (f"{modality}s", modality), several)

    def _check_text_is_all(self, suffixes: Sequence[str]) -> None:
        """Raises SampleError where a text would be learned without the media beside it."""
        if unplaced := [suffix for suffix in suffixes if suffix in self.unplaced]:
            first = unplaced[0]
            raise SampleError(
                f"holds {_called(unplaced)} beside its text; say which is meant (columns: {{{self.unplaced[first]}: "
                f'{first}}}), or that none is (template: "{{text}}")'
            )

    def _spread(self, value: Any) -> Mapping[str, Any]:
        if isinstance(value, Mapping):
            return value
        if JSON in self.wanted:
            return {}
        raise SampleError(f".json: expected an object, got {kind_of(value)}")

    def _value(self, file: int, suffix: str) -> Any:
        """What a file holds: where a medium lies, else text, parsed where it is JSON."""
        if suffix in self.binary:
            return self._span(MAX_FILE_BYTES, file)
        text = decoded(self._span(MAX_ROW_BYTES, file).read(), f".{suffix}")
        try:
            return json.loads(text) if suffix.rpartition(".")[2] == JSON else text.rstrip("\r\n")
        except (ValueError, RecursionError) as error:
            raise SampleError(f".{suffix}: not JSON ({first_line(error)})") from error

    def _span(self, most: int, file: int) -> FileSpan:
        begin, nbytes, suffix = self.begin.item(file), self.nbytes.item(file), self.suffixes[file]
        if nbytes == SPARSE:
            raise SampleError(f".{suffix}: is stored with holes; write the archive without --sparse")
        if nbytes > most:
            raise SampleError(f".{suffix}: {nbytes:,} bytes, over the limit of {most:,}")
        return FileSpan(self.path, begin, nbytes, self.state)


def open_tar(path: Path, claims: Mapping[str, Sequence[str]], layout: Layout, left_out: Counter[str]) -> TarTable:
    """Find the samples of a tar file.

    Args:
        claims: as ``suffix_table`` gives them.
        left_out: gets the files of unknown suffixes, by suffix, and links.

    Raises:
        DataError: it is no tar file, is compressed, damaged or breaks off; several modalities claim a suffix.
    """
    forget(path)
    state = state_at(states_of([path]), 0)
    record = ScanRecord("files of an archive", [path])
    if (known := record.read()) is None:
        known = index_tar(path)
        record.write(known)
    keys, texts = (PackedTexts.of(known[f"{name}_bytes"], known[f"{name}_ends"]) for name in ("keys", "kinds"))
    kinds = tuple(texts)
    wanted = frozenset(layout.used(kinds))
    binary = {kind: claims[suffix] for kind in kinds if (suffix := suffix_of(f"_.{kind}")) in claims}
    told = {modality for kind in wanted if kind in binary for modality in binary[kind]}
    modalities = {
        kind: modality
        for kind in kinds
        if (suffix := f".{_parted_number(kind)[1]}") in claims
        and ((modality := modality_of(path, suffix, claims)) not in told or suffix == f".{kind}")
    }
    unplaced = {kind: meant[0] for kind, meant in binary.items() if kind not in modalities and told.isdisjoint(meant)}
    table = TarTable(
        path, state, keys, known["first"], PackedKinds.of(kinds, known["suffixes"]), known["begin"], known["nbytes"],
        modalities, wanted, frozenset(binary), unplaced if isinstance(layout, DefaultLayout) else {},
        layout.columns.get(TEXTS, TEXTS), tuple(layout.columns.get(role, role) for role in ORDERED),
    )  # fmt: skip
    counts = np.bincount(known["suffixes"], minlength=len(kinds)).tolist()
    used = {JSON, TEXT, *table.modalities, *table.wanted}
    left_out.update({f".{kind}": count for kind, count in zip(kinds, counts, strict=True) if kind not in used})
    if (links := known["links"].item()) > 0:
        left_out[LINK] += links
    return table


def index_tar(path: Path) -> Record:
    """Where the files of an archive are, by sample.

    Raises:
        DataError: see ``open_tar``.
    """
    names: dict[str, tuple[int, int]] = {}
    links = 0
    try:
        with path.open("rb") as file:
            for member in _members(file):
                if member.islnk() and member.linkname in names:
                    names[member.name] = names[member.linkname]
                elif member.isreg():
                    place = member.offset_data, SPARSE if member.sparse is not None else member.size
                    names[member.name + "/" * (member.name in names)] = place  # a second one, which its sample tells of
                else:
                    links += not member.isdir()
    except RecursionError as error:  # ``tarfile`` calls itself for a header that belongs to the next one
        raise DataError(f"{path}: no whole tar file (headers of headers, without an end)") from error
    except MemoryError as error:
        raise DataError(f"{path}: its names take more memory than there is") from error
    except (OSError, ValueError, OverflowError, tarfile.TarError) as error:
        raise DataError(f"{path}: no whole tar file ({error})") from error
    return _by_sample(names) | {"links": np.array([links])}


def _members(file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """What an archive holds. ``tarfile`` itself takes a damaged header for the end."""
    if file.read(6).startswith(_COMPRESSED):
        raise ValueError("it is compressed, and has to be unpacked first")
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    with tarfile.open(fileobj=file, mode="r:", tarinfo=_Member) as archive:
        place = -1
        while (member := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # else it keeps them all
            end = member.offset_data + (member.size if member.isreg() and member.sparse is None else 0)
            if not place < archive.offset or member.size < 0 or end > size:
                raise ValueError(f"it breaks off or is damaged at byte {member.offset}")
            yield member
            place = archive.offset
        file.seek(archive.offset)
        rest = iter(lambda: file.read(1 << 20), b"")
        first = next(rest, b"")
        if len(first) < tarfile.BLOCKSIZE or any(piece.strip(b"\0") for piece in chain([first], rest)):
            raise ValueError(f"it breaks off, is damaged, or another one begins at byte {archive.offset}")


def _by_sample(names: Mapping[str, tuple[int, int]]) -> Record:
    """Files in the order of their samples, which is that in which these begin; neighbours they need not be."""
    keys: dict[str, int] = {}
    owners, suffixes, places = [], [], []
    for name, place in names.items():
        key, suffix = parted(name.rstrip("/"))
        if key:
            owners.append(keys.setdefault(key, len(keys)))
            suffixes.append(suffix)
            places.append(place)
    order = np.argsort(np.array(owners, np.int64), kind="stable")
    kinds = PackedKinds(suffixes)
    begin, nbytes = np.array(places, np.int64).reshape(-1, 2)[order].T
    texts = {"keys": PackedTexts(list(keys)), "kinds": PackedTexts(kinds.kinds)}
    return {
        **{f"{name}_{part}": array for name, text in texts.items() for part, array in text.arrays().items()},
        "first": np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(keys)))]).astype(np.int64),
        "suffixes": kinds.numbers[order],
        "begin": np.ascontiguousarray(begin),
        "nbytes": np.ascontiguousarray(nbytes),
    }


def _parted_number(suffix: str) -> tuple[int | None, str]:
    """The number in front of a suffix, and the rest: of ``0.jpg`` 0 and ``jpg``; None where there is none."""
    found = _NUMBERED.fullmatch(suffix)
    return (int(found[1]), found[2]) if found is not None else (None, suffix)


def _is_numbered_text(suffix: str) -> bool:
    number, rest = _parted_number(suffix)
    return number is not None and rest in (JSON, TEXT)


def _in_order(suffixes: Sequence[str], names: Any) -> Sequence[str]:
    """Suffixes of a sample's media of one modality, in their order.

    That is the one in which the sample's ``.json`` names these files (``names``, if it does), else that of their
    numbers, or of the archive where none has one.

    Raises:
        SampleError: only some have numbers, or two have the same.
    """
    numbers = {suffix: _parted_number(suffix)[0] for suffix in suffixes}
    if len(suffixes) < 2 or set(numbers.values()) == {None}:
        return suffixes
    if None in numbers.values() or len(set(numbers.values())) < len(suffixes):
        raise SampleError(
            f"holds {_called(suffixes)}, whose order nobody can tell; give each a number of its own (.0.jpg, .1.jpg)"
        )
    there = names if isinstance(names, list) else []
    named = [parted(name)[1] for name in there if isinstance(name, str)]
    return named if sorted(named) == sorted(suffixes) else sorted(suffixes, key=lambda suffix: numbers[suffix] or 0)


def _called(suffixes: Sequence[str]) -> str:
    return listed((f".{suffix}" for suffix in suffixes), at_most=8)
