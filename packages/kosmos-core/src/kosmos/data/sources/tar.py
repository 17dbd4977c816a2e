"""Tar files of samples, as webdataset writes them: files of one name, up to its first dot, are one row.

A row's ``.json`` is its columns, its ``.txt`` its text, and files with a modality's suffix are its media. Files are
read where they lie in the archive; nothing is unpacked.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos.data.foreign import first_line
from kosmos.data.sources.columns import Row
from kosmos.data.sources.folders import modality_of, suffix_of
from kosmos.data.sources.jsonl import MAX_ROW_BYTES, parse_row
from kosmos.data.sources.layouts import Layout
from kosmos.data.sources.open_files import forget, read_bytes
from kosmos.data.sources.packed import PackedKinds, PackedTexts
from kosmos.data.sources.scan_cache import Record, ScanRecord
from kosmos.data.sources.source import Extent
from kosmos.errors import DataError, SampleError

MAX_FILE_BYTES = 1 << 30
"""Most bytes of a medium in an archive."""
JSON, TEXT = "json", "txt"


@dataclass(frozen=True, eq=False)
class TarTable:
    """The samples of a tar file (a ``Table``)."""

    path: Path
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
    """Suffix to the modality that it means."""
    wanted: frozenset[str]
    """Suffixes that the layout asks for by name; columns of that name hold them."""
    binary: frozenset[str]
    """Suffixes of files that are no text."""

    def __len__(self) -> int:
        return len(self.keys)

    def origin(self, index: int) -> str:
        return f"{self.path}:{self.keys[index]}"

    def root(self, index: int) -> Path:
        return self.path.parent

    def row(self, index: int) -> Row:
        return self._row(index, self._read)

    def scan(self, layout: Layout) -> Iterator[Row | SampleError]:
        del layout  # what a .json holds may be a chat
        for index in range(len(self)):
            try:
                yield self._row(index, self._shadow)
            except SampleError as error:
                yield error

    def row_blocks(self) -> None:
        return None

    def extent(self) -> Extent:
        return Extent((self.path,), f"{sorted(self.modalities.items())} {sorted(self.wanted)}")

    def _row(self, index: int, read: Any) -> dict[str, Any]:
        """The columns of a sample, of which ``read(file, suffix)`` gives the value of a file."""
        row: dict[str, Any] = {"id": self.keys[index]}
        files = range(self.first.item(index), self.first.item(index + 1))
        suffixes = self.suffixes[files.start : files.stop]
        if JSON in suffixes:
            row |= parse_row(self._bytes(files[suffixes.index(JSON)], MAX_ROW_BYTES))
        media: dict[str, list[Any]] = {}
        for file, suffix in zip(files, suffixes, strict=True):
            if suffix in self.wanted:
                row[suffix] = read(file, suffix)
            if suffix == TEXT:
                row["text"] = read(file, suffix)
            elif (modality := self.modalities.get(suffix)) is not None:
                media.setdefault(modality, []).append(read(file, suffix))
        return row | media

    def _shadow(self, file: int, suffix: str) -> Any:
        return True if suffix in self.binary else ""

    def _read(self, file: int, suffix: str) -> Any:
        if suffix in self.binary:
            return self._bytes(file, MAX_FILE_BYTES)
        content = self._bytes(file, MAX_ROW_BYTES)
        try:
            return content.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise SampleError(f".{suffix}: not UTF-8 at byte {error.start}") from error

    def _bytes(self, file: int, most: int) -> bytes:
        begin, nbytes = self.begin.item(file), self.nbytes.item(file)
        if nbytes > most:
            raise SampleError(f".{self.suffixes[file]}: {nbytes:,} bytes, over the limit of {most:,}")
        try:
            content = read_bytes(self.path, begin, begin + nbytes)
        except OSError as error:
            raise SampleError(f"cannot be read ({error})") from error
        if len(content) < nbytes:
            raise SampleError(f".{self.suffixes[file]}: the archive breaks off in it")
        return content


def open_tar(path: Path, claims: Mapping[str, Sequence[str]], layout: Layout) -> TarTable:
    """Find the samples of a tar file.

    Args:
        claims: as ``suffix_table`` gives them.

    Raises:
        DataError: it is no tar file, is compressed, or breaks off; or a suffix is claimed by several modalities.
    """
    forget(path)
    record = ScanRecord("files of an archive", [path])
    if (known := record.read()) is None:
        known = _files(path)
        record.write(known)
    keys, kinds = (PackedTexts.of(known[f"{name}_bytes"], known[f"{name}_ends"]) for name in ("keys", "kinds"))
    return TarTable(
        path, keys, known["first"], PackedKinds.of(tuple(kinds), known["suffixes"]), known["begin"], known["nbytes"],
        modalities={kind: modality_of(path, f".{kind}", claims) for kind in kinds if f".{kind}" in claims},
        wanted=frozenset(layout.used(kinds)),
        binary=frozenset(kind for kind in kinds if suffix_of(f"_.{kind}") in claims),
    )  # fmt: skip


def _files(path: Path) -> Record:
    """Where the files of an archive are, by sample."""
    keys: list[str] = []
    suffixes: list[str] = []
    first, begin, nbytes = [0], [], []
    try:
        with tarfile.open(path, "r:") as archive:
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # else it keeps them all
                key, suffix = _parted(member.name)
                if not member.isreg() or member.sparse is not None or not key:
                    continue
                if not keys or keys[-1] != key:
                    keys.append(key)
                    first.append(first[-1])
                first[-1] += 1
                suffixes.append(suffix)
                begin.append(member.offset_data)
                nbytes.append(member.size)
    except (OSError, tarfile.TarError) as error:
        reason = f"{first_line(error)}; a compressed one has to be unpacked"
        raise DataError(f"{path}: no readable tar file ({reason})") from error
    kinds = PackedKinds(suffixes)
    named = {"keys": PackedTexts(keys), "kinds": PackedTexts(kinds.kinds)}
    texts = {f"{name}_{part}": array for name, text in named.items() for part, array in text.arrays().items()}
    numbers = {"first": first, "begin": begin, "nbytes": nbytes}
    arrays = {name: np.array(values, np.int64) for name, values in numbers.items()}
    return {**texts, **arrays, "suffixes": kinds.numbers}


def _parted(name: str) -> tuple[str, str]:
    """A file's name up to the first dot of its last part, and what is behind it; "" where it is hidden or has none."""
    folder, slash, last = name.rpartition("/")
    stem, _, suffix = last.partition(".")
    return (f"{folder}{slash}{stem}".removeprefix("./"), suffix.lower()) if stem and suffix else ("", "")
