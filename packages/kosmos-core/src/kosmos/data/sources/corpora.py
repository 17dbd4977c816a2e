"""Corpora: layouts of files that a plugin knows by what they hold, and reads as rows.

The rows of a corpus are in memory as one stretch of JSON and no objects of Python: to open a million utterances of
Kaldi took 212 MB and 43 s, on two busy cores. They are read anew at each start.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos.data.open_files import open_rows
from kosmos.data.sources.columns import Row, texts_in
from kosmos.data.sources.encoding import not_utf8, refuse_wide
from kosmos.data.sources.folders import NO_TEXT
from kosmos.data.sources.jsonl import MAX_ROW_BYTES
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.links_out import refuse_links_out
from kosmos.data.sources.registered import Components
from kosmos.data.sources.request import Examined, Request, finish
from kosmos.data.sources.since import is_read_before, lacks
from kosmos.data.sources.splits import Split, of_folders, row_hash, splits_of_files
from kosmos.errors import DataError, KosmosError, PluginError, SampleError, cause, own_line

MOST_LOOKED_INTO = 64
"""Folders within one that is refused."""
_BOM = b"\xef\xbb\xbf"
CorpusRows = Iterable[tuple[str, Row | SampleError]]
"""What a corpus is read as: the origin of each row, and the row or why it cannot be used."""


@dataclass(frozen=True)
class CorpusFiles:
    """The files among which a plugin looks for its corpus (``CorpusSpec``)."""

    folder: Path
    names: Sequence[str]
    """Paths of the files below the folder, sorted, ``/`` between their parts. Hidden ones and linked folders are none
    of them. Of a file that was named itself it alone."""
    is_file: bool = False
    """Whether a file was named, and no folder."""
    named: tuple[str, ...] = ()
    """What the source's ``columns`` and ``template`` name, as written: of a file of rows they may mean its own."""
    root: Path | None = None
    """Folder of the media that rows name, where the source has one."""
    passed: Counter[str] = field(default_factory=Counter)

    def __contains__(self, name: str) -> bool:
        place = bisect_left(self.names, name)
        return place < len(self.names) and self.names[place] == name

    def starting(self, start: str) -> Iterator[str]:
        """The names that begin with ``start``, sorted."""
        for place in range(bisect_left(self.names, start), len(self.names)):
            if not self.names[place].startswith(start):
                return
            yield self.names[place]

    def lines(self, name: str) -> Iterator[tuple[str, str]]:
        """The lines of a text file that are not blank, without their ends, each behind its origin (``train/text:7``).

        A compressed file (``.jsonl.gz``, ``.txt.zst``) is unpacked. What is no UTF-8 makes the row a bad sample that it
        comes to stand in.

        Raises:
            DataError: it cannot be read, is UTF-16, has a line of more than 64 MiB, or is a link that leads out of the
                folder.
        """
        path = self.folder / name
        if not self.is_file:
            refuse_links_out(self.folder, [name], self.root)
        try:
            with open_rows(path) as stream:
                for number, line in enumerate(iter(lambda: stream.readline(MAX_ROW_BYTES + 1), b""), 1):
                    if number == 1:
                        refuse_wide(line, path)
                    if len(line) > MAX_ROW_BYTES:
                        raise DataError(f"{path}:{number}: a line of more than {MAX_ROW_BYTES:,} bytes")
                    text = line.removeprefix(_BOM) if number == 1 else line
                    if text.strip():
                        yield f"{name}:{number}", text.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error

    def pass_over(self, count: int) -> None:
        """Count media of which nothing is said, which no row names; ``kosmos data`` and training tell their number."""
        self.passed[NO_TEXT] += max(0, count)


@dataclass(frozen=True, eq=False)
class CorpusTable:
    """The rows of a corpus (a ``Table``)."""

    folder: Path
    content: NDArray[np.uint8]
    """Of each row the JSON of its origin, its split, and the row or why it cannot be used: [bytes]."""
    ends: NDArray[np.int64]
    """The byte behind each row: [rows]."""
    splits: NDArray[np.int8]
    """What folders say of each row, as a place in ``_SPLITS``: [rows]."""
    again: NDArray[np.bool_]
    """Rows with an id that a row before them has: [rows]."""

    def __len__(self) -> int:
        return len(self.ends)

    def _held(self, index: int) -> tuple[str, Any]:
        begin = int(self.ends[index - 1]) if index else 0
        origin, row = json.loads(self.content[begin : int(self.ends[index])].tobytes())
        return origin, row

    def _row(self, index: int) -> Row:
        _, row = self._held(index)
        if not isinstance(row, Mapping):
            raise SampleError(row)
        if self.again[index]:
            raise SampleError(f"id {row['id']!r:.80} is that of a row before it too; each has to have one of its own")
        return row

    def row(self, index: int) -> Row:
        return self._row(index)

    def origin(self, index: int) -> str:
        return str(self.folder / self._held(index)[0])

    def root(self, index: int) -> Path:
        return self.folder

    def scan(self, layout: Layout) -> Iterator[Row | SampleError]:
        del layout  # a row can only be read whole
        for index in range(len(self)):
            try:
                row, split = self._row(index), _SPLITS[self.splits[index]]
            except SampleError as error:
                yield error
                continue
            yield row if split is None or row.get("split") is not None else {**row, "split": split}

    def row_blocks(self) -> None:
        return None

    def holds(self) -> tuple[()]:
        return ()

    def extent(self) -> None:
        return None  # the corpus had to be read, which takes as long


_SPLITS: tuple[Split | None, ...] = (None, "train", "held_out")


def open_corpus(
    folder: Path, names: Sequence[str], request: Request, registry: Components, *, is_file: bool = False
) -> Examined | None:
    """A folder, or a file in it, as the corpus that a plugin knows it as; None where none does.

    Args:
        names: as of ``CorpusFiles``.

    Raises:
        DataError: it is such a corpus and cannot be read, or no row can be used.
        PluginError: the plugin fails at it.
    """
    if is_read_before() or lacks("corpora"):  # such runs go on with what they have
        return None
    template = () if request.template is None else (request.template,)
    named = (*request.columns.values(), *template)
    for name in registry.specs("corpus"):
        if (read := registry.peek("corpus", name)) is None:
            continue  # it is broken: whoever asks for what it brings is told
        files = CorpusFiles(folder, names, is_file, named, request.root)
        try:
            if (rows := read(files)) is None:
                continue
            table = _table(folder, rows)
        except KosmosError:
            raise
        except Exception as error:  # the plugin's
            where = own_line(error, registry.specs("corpus")[name].target)
            raise PluginError(f"corpus {name!r}: reading {folder} failed: {cause(error)}{where}") from error
        registry.resolve("corpus", name)  # which notes that the run needs its plugin
        request.left_out.update(files.passed)
        return finish(table, request.layout(), request, rows_vary=True)
    return None


@contextmanager
def naming_corpora(folder: Path, names: Sequence[str], registry: Components) -> Iterator[None]:
    """Where a folder is refused as what it seems to be: a folder within it may be a corpus, which the error then names.

    Args:
        names: as of ``CorpusFiles``.

    Raises:
        DataError: it is refused.
    """
    try:
        yield
    except DataError as error:
        within = None if is_read_before() or lacks("corpora") else _corpus_within(folder, names, registry)
        if within is None:
            raise
        below, name = within
        raise DataError(
            f"{folder}: {below} in it is a corpus ({name}): name that folder, and this one as the root of its media "
            f"(--data '{{path: {folder / below}, root: {folder}}}')"
        ) from error


def _corpus_within(folder: Path, names: Sequence[str], registry: Components) -> tuple[str, str] | None:
    """The first folder below that a plugin knows as its corpus, and the corpus."""
    below = sorted({part for name in names if (part := name.rpartition("/")[0])})
    for part in below[:MOST_LOOKED_INTO]:
        own = [name.removeprefix(f"{part}/") for name in names if name.startswith(f"{part}/")]
        for corpus in registry.specs("corpus"):
            # One that fails is named where its own folder is opened.
            with suppress(Exception):
                read = registry.peek("corpus", corpus)
                if read is not None and read(CorpusFiles(folder / part, own)) is not None:
                    return part, corpus
    return None


def _table(folder: Path, rows: CorpusRows) -> CorpusTable:
    content, ends, splits, ids = bytearray(), array("q"), array("b"), array("Q")
    split_of_file = cache(lambda file: _SPLITS.index(splits_of_files([file])[0]))
    for origin, row in rows:
        content += _written(origin, row)
        ends.append(len(content))
        splits.append(split_of_file(origin.rpartition(":")[0]))
        identity = row.get("id") if isinstance(row, Mapping) else None
        ids.append(row_hash(f"row {len(ends)}" if identity is None else f"id {identity}"))
    kinds = sorted({_SPLITS[number] for number in splits}, key=str)
    counted = np.array(splits, np.int8)
    if of_folders(kinds) != kinds:
        counted[:] = 0
    return CorpusTable(
        folder, np.frombuffer(content, np.uint8), np.array(ends, np.int64), counted, _again(np.array(ids, np.uint64))
    )


def _written(origin: str, row: Row | SampleError) -> bytes:
    said = str(row) if isinstance(row, SampleError) else dict(row)
    try:
        return json.dumps([origin, said], ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps([origin.encode("utf-8", "replace").decode(), _told(said)]).encode()


def _told(said: Any) -> str:
    """What is wrong with a row of which some bytes are no UTF-8."""
    text = next((text for text in texts_in(said) if not _is_utf8(text)), "")
    place = next((place for place, letter in enumerate(text) if not _is_utf8(letter)), 0)
    return not_utf8(len(text[:place].encode()), "text")


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _again(ids: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which are those of an id that came before."""
    order = np.argsort(ids, kind="stable")
    found = np.zeros(len(ids), np.bool_)
    found[order[1:][ids[order[1:]] == ids[order[:-1]]]] = True
    return found
