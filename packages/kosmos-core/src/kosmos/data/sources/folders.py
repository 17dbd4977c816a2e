"""What a folder holds, by what is in it: a manifest, data files of one kind, or media in class folders."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from kosmos.data.sources.delimited import SUFFIXES as DELIMITED
from kosmos.data.sources.file_column import FILE_NAME
from kosmos.data.sources.file_names import COMPRESSED, rows_suffix, stem_of, suffix_of
from kosmos.data.sources.glance import first_columns
from kosmos.data.sources.joined import ClassFolderTable, JoinedTable
from kosmos.data.sources.jsonl import index_jsonl, mentions
from kosmos.data.sources.layouts import DefaultLayout
from kosmos.data.sources.media import resolve
from kosmos.data.sources.not_read import NO_BYTES, counted_as
from kosmos.data.sources.packed import PackedKinds, PackedTexts
from kosmos.data.sources.since import lacks
from kosmos.data.sources.source import Table
from kosmos.data.sources.split_lists import lists_of
from kosmos.data.sources.splits import Split, of_folders, split_of, splits_of_files
from kosmos.data.sources.textfiles import index_text
from kosmos.data.sources.token_numbers import told_of_files
from kosmos.data.unpacked import without_packing
from kosmos.errors import DataError, SampleError
from kosmos.names import listed

MANIFEST = "manifest.jsonl"
NO_SUFFIX, NO_TEXT, NO_METADATA = "no suffix", "no text of its name", "no metadata file in or above their folder"
"""What files without one are counted under."""
LINK = "a link to what is not in it, or no file"
"""What entries of an archive are counted under that are links to what is not in it, or no files."""

METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
"""Rows beside the media that they name, as ``datasets`` has them in its folders of pictures, sounds and films."""

DATA = (".jsonl", ".parquet", ".tar", ".txt", *DELIMITED)
OF_A_RUN = frozenset({"checkpoints", "metrics.jsonl", "quarantine.jsonl"})
"""What the folder of a run holds from its beginning on."""
_ASIDE = (".txt", ".tar", *DELIMITED)
"""Of these what lies beside media in class folders without a word: lists of labels, what they were unpacked from."""
_NOT_DATA = ("readme", "license", "licence", "notice", "changelog", "credits", "requirements")


def list_files(folder: Path) -> list[str]:
    """Paths of the files below a folder, sorted, ``/`` between their parts.

    Hidden ones, linked folders, pipes, sockets and devices are left out, and folders of runs, which would change the
    data of whoever trains in the folder of the data.

    Raises:
        DataError: the folder cannot be read.
    """
    found, waiting = [], [""]
    while waiting:
        base = waiting.pop()
        try:
            with os.scandir(folder / base) as scanned:
                entries = list(scanned)
                if base and {entry.name for entry in entries} >= OF_A_RUN:
                    continue
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{base}{entry.name}/")
                    elif _is_file(entry):
                        found.append(base + entry.name)
        except OSError as error:
            raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from error
    return sorted(found)


def counts_files(what: str) -> bool:
    """Whether something that was left out is files of a kind, and no modality."""
    return what.startswith(".") or what in (NO_SUFFIX, NO_TEXT, NO_METADATA, NO_BYTES, LINK)


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a file or a link to one: to open a pipe would be to wait for ever.

    A link to nothing counts too, so that whoever reads it says so.
    """
    try:
        return entry.is_file() or (entry.is_symlink() and not os.path.exists(entry))
    except OSError:  # links in a circle
        return True


def open_manifest(path: Path, layout: DefaultLayout, left_out: Counter[str], chunk_chars: int) -> Table:
    """A manifest's rows; those with a text ``file`` give the documents of that file.

    Args:
        left_out: gets the rows whose ``file`` is no text file, by its suffix.
    """
    table = index_jsonl([path])
    if not mentions(path, [b'"file"', rb"\u006"]):  # its letters may be written so
        return table
    keep = np.ones(len(table), np.bool_)
    files: list[Path] = []
    splits: list[Split | None] = []
    for index, row in enumerate(table.scan(layout)):
        if isinstance(row, SampleError) or not isinstance(name := row.get("file"), str) or layout.media_of(row):
            continue
        suffix = PurePosixPath(name).suffix.lower()
        if suffix == ".txt":
            try:
                files.append(resolve(path.parent, name))
            except SampleError:
                continue  # stays among the rows, and says what is wrong when it is drawn
            splits.append(split_of(row.get("split")))
        else:
            left_out[suffix or NO_SUFFIX] += 1
        keep[index] = False
    rows = table.only(keep)
    return JoinedTable([rows, index_text(files, splits, chunk_chars)]) if files else rows


def class_folders(
    folder: Path, files: Sequence[str], suffixes: Mapping[str, Sequence[str]], left_out: Counter[str]
) -> ClassFolderTable | None:
    """Files in class folders as a table, or None where no file of a known suffix is in a folder.

    Args:
        files: as ``list_files`` gives them.
        suffixes: as ``suffix_table`` gives them.
        left_out: gets the files of unknown suffixes, by suffix.

    Raises:
        DataError: a file's suffix is claimed by several modalities of the run.
    """
    placed = [name for name in files if "/" in name and suffix_of(name) in suffixes]
    if not placed:
        return None
    for name in set(files) - set(placed):
        left_out[suffix_of(name) or NO_SUFFIX] += 1
    if all(split_of(name.split("/")[-2]) is not None for name in placed):
        raise DataError(
            f"{folder}: the folders of its files (such as {placed[0]}) are named by splits and say nothing to learn; "
            "put a text of its name beside each (1.png, 1.txt), list them in a metadata.csv (file_name,text), "
            "or sort them into classes"
        )
    said = splits_of_files(placed)
    splits = of_folders([split if name.count("/") > 1 else None for name, split in zip(placed, said, strict=True)])
    modalities = [modality_of(folder / name, suffix_of(name), suffixes) for name in placed]
    lists, cut = lists_of(folder, files, placed)
    return ClassFolderTable(
        folder, PackedTexts(placed), PackedKinds(modalities), PackedKinds(splits), lists=lists, lists_cut=cut
    )


def data_files(folder: Path, files: Sequence[str]) -> tuple[str, list[str]] | None:
    """The data files of a folder: their suffix and paths; None where there are none.

    Raises:
        DataError: files of several kinds, so that nobody can say which are meant.
    """
    kinds = _data_kinds(files) or _data_kinds(files, rows_suffix)  # who unpacks a file often keeps it beside
    # Tables of figures lie beside much: they are the data where nothing else is.
    return _of_one_kind(folder, {s: names for s, names in kinds.items() if s not in DELIMITED} or kinds)


def named_files(folder: Path, names: Sequence[str]) -> tuple[str, list[str]] | None:
    """As ``data_files``, of files that somebody has named: compressed ones of the same kind are meant, too."""
    found = data_files(folder, names)
    if found is None or lacks("patterns"):  # such runs go on with what they have
        return found
    return found[0], with_compressed(found[1], names, found[0])


def with_compressed(data: Sequence[str], names: Sequence[str], suffix: str) -> list[str]:
    """Files of rows, and those of ``names`` that are of this kind compressed or by another suffix, in the order of
    ``names``. One that was unpacked beside it is no file of its own."""
    read, there = {*data}, {*names}
    for name in names:  # of several that were packed of one file the first is read
        of_rows = rows_suffix(name) == suffix and not tells_of_data(name)
        if of_rows and (without_packing(name) == name or without_packing(name) not in there):
            read.add(name)
            there.add(without_packing(name))
    return [name for name in names if name in read]


def _of_one_kind(folder: Path, kinds: Mapping[str, list[str]]) -> tuple[str, list[str]] | None:
    if len(kinds) > 1:
        raise DataError(
            f"{folder}: holds data files of several kinds ({_counts(kinds)}); name a file or a folder of one kind"
        )
    return next(iter(kinds.items()), None)


def metadata_files(folder: Path, files: Sequence[str]) -> tuple[str, list[str]] | None:
    """Files of rows that name the media beside them: their suffix and paths; None where there are none.

    Raises:
        DataError: files of several kinds.
    """
    found = [n for n in files if n.rpartition("/")[2] in METADATA and FILE_NAME in first_columns(folder / n)]
    return _of_one_kind(
        folder, {suffix: [n for n in found if suffix_of(n) == suffix] for suffix in map(suffix_of, found)}
    )


def count_elsewhere(files: Sequence[str], metadata: Sequence[str], left_out: Counter[str]) -> None:
    """Count the files that metadata in other folders cannot name.

    Args:
        files: as ``list_files`` gives them.
        metadata: as ``metadata_files`` does.
        left_out: gets their number.
    """
    below = tuple(name[: name.rfind("/") + 1] for name in metadata)
    if elsewhere := sum(not name.startswith(below) for name in files):
        left_out[NO_METADATA] += elsewhere


def count_beside(files: Sequence[str], data: Sequence[str], named: Collection[str], left_out: Counter[str]) -> None:
    """Count the files beside data files.

    Args:
        files: as ``list_files`` gives them.
        data: as ``data_files`` does.
        named: suffixes of media, of which rows of the data may name the files.
        left_out: gets their number by suffix.
    """
    read = set(data)
    others = (name for name in files if name not in read and not tells_of_data(name))
    left_out.update(suffix or NO_SUFFIX for name in others if (suffix := counted_as(name)) not in named)


def row_files(files: Sequence[str]) -> dict[str, list[str]]:
    """Suffix to the files of that kind which may hold the texts of media that lie beside them."""
    return {suffix: names for suffix, names in _data_kinds(files).items() if suffix not in _ASIDE}


def refuse_rows_beside(media: ClassFolderTable, files: Sequence[str]) -> None:
    """Raises DataError where rows lie beside media in class folders: they may hold the texts of those media.

    Args:
        files: as ``list_files`` gives them.
    """
    kinds = row_files(files)
    rows = [name for names in kinds.values() for name in names]
    if not rows:
        return
    folder, medium = media.folder, media.files[0]
    top = medium.split("/")[0]
    other = f"the folder of media (--data {folder / top})"
    if medium.count("/") < 2 or any(name.startswith(f"{top}/") for name in rows):  # that folder would be refused too
        other = "move the rows elsewhere to train on the names of the folders"
    raise DataError(
        f"{folder}: holds media in class folders (such as {medium}) and data files ({_counts(kinds)}); "
        f"name the file (--data {folder / rows[0]}) or {other}"
    )


def what_lacks(files: Sequence[str], suffixes: Mapping[str, Sequence[str]]) -> str:
    """What a folder lacks that holds no data, and what it has.

    Args:
        files: as ``list_files`` gives them.
        suffixes: as ``suffix_table`` gives them.
    """
    if media := [name for name in files if suffix_of(name) in suffixes]:
        name, last = media[0], PurePosixPath(media[0]).name
        row = json.dumps({suffixes[suffix_of(name)][0]: name, "text": "..."}, ensure_ascii=False)
        return (
            f"holds media and no texts of theirs ({_by_suffix(media)}, such as {name}); put a text of its name beside "
            f"each ({stem_of(last)}.txt), list them in a {MANIFEST} ({row}), or sort them into folders that are named "
            f"by what is to be learned (CLASS/{last})"
        )
    if numbers := told_of_files(files):
        return numbers
    return (
        f"no {MANIFEST}, no Hugging Face dataset, no .jsonl, .parquet, .csv, .tar or .txt files, and no media "
        f"(suffixes of the installed modalities: {listed(sorted(suffixes))}); "
        f"found: {_by_suffix(files) if files else 'no files'}{_decompress_them(files)}"
    )


def _decompress_them(files: Sequence[str]) -> str:
    suffix = next((suffix for suffix in map(suffix_of, files) if suffix in COMPRESSED), None)
    return f"; decompress the {suffix} files first ({COMPRESSED[suffix]})" if suffix else ""


def _by_suffix(files: Sequence[str]) -> str:
    """How many files there are of each suffix, the most frequent first."""
    counts = Counter(suffix_of(name) or f"with {NO_SUFFIX}" for name in files)
    return listed(f"{count} {suffix}" for suffix, count in counts.most_common())


def holds_data(files: Sequence[str]) -> bool:
    """Whether a folder has files of data, of whatever kinds."""
    return bool(_data_kinds(files))


def _data_kinds(files: Sequence[str], suffix_of: Callable[[str], str] = suffix_of) -> dict[str, list[str]]:
    """Suffix to the data files of that kind."""
    kinds: dict[str, list[str]] = {}
    for name in files:
        suffix = suffix_of(name)
        if suffix in DATA and not tells_of_data(name):
            kinds.setdefault(suffix, []).append(name)
    return kinds


def tells_of_data(name: str) -> bool:
    """Whether a file holds no rows, whatever its suffix: a README, a licence."""
    return stem_of(name).lower().startswith(_NOT_DATA)


def _counts(kinds: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{len(names)} {suffix}" for suffix, names in sorted(kinds.items()))


def suffix_table(
    specs: Mapping[str, Any], modalities: Sequence[str], used: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Suffix to the modalities that may be meant by it, in order of claim.

    Args:
        specs: the installed modalities.
        modalities: those of the run, which go before the others.
        used: those that the layout of rows has a place for; they go before the others of the run.
    """
    claims: dict[str, list[str]] = {}
    for name in (*modalities, *(name for name in specs if name not in modalities)):
        for suffix in specs[name].suffixes if name in specs else ():
            claims.setdefault(suffix, []).append(name)
    known = {suffix: _preferred(_preferred(names, modalities), used) for suffix, names in claims.items()}
    # Which of several that the run has not is meant need not be known: their files are passed over.
    return {suffix: names if set(names) & set(modalities) else names[:1] for suffix, names in known.items()}


def _preferred(names: Collection[str], wanted: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in wanted) or tuple(names)


def modality_of(file: Path, suffix: str, suffixes: Mapping[str, Sequence[str]]) -> str:
    """The modality that a suffix means. Raises DataError, about ``file``, where several of the run claim it."""
    claims = suffixes[suffix]
    if len(claims) > 1:
        raise DataError(
            f"{file}: {suffix} may be {listed(claims)}; say which in the source's template, "
            f'such as "[{claims[0]}] → {{text}}", or list the files in a {MANIFEST}'
        )
    return claims[0]
