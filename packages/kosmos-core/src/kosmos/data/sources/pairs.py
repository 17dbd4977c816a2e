"""Media with their texts beside them, in files of one name: ``cat.png`` and ``cat.txt``."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from kosmos.data.open_files import forget, read_bytes
from kosmos.data.sources.columns import Row, checked_text
from kosmos.data.sources.encoding import decoded
from kosmos.data.sources.file_names import suffix_of
from kosmos.data.sources.folders import NO_SUFFIX, NO_TEXT, modality_of, row_files, tells_of_data
from kosmos.data.sources.label_tracks import refuse_pieces
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.media import resolve
from kosmos.data.sources.packed import PackedKinds, PackedTexts
from kosmos.data.sources.splits import Split, of_folders, split_of
from kosmos.errors import SampleError

TEXT = ".txt"
MAX_TEXT_BYTES = 64 << 20


@dataclass(frozen=True)
class PairTable:
    """Text files with the media of their names (a ``Table``)."""

    folder: Path
    texts: PackedTexts
    """Paths of the texts below the folder, ``/`` between their parts: [rows]."""
    media: PackedTexts
    """Paths of the media of each, NUL between them: [rows]."""
    modalities: Mapping[str, str]
    """Suffix to the modality that it means."""
    splits: PackedKinds[Split | None]
    """What the folders say: [rows]."""
    below: str = ""
    """What stands before the paths of media where they are named below another folder."""
    timed: Collection[str] = ()
    """Modalities whose media have time."""

    def __len__(self) -> int:
        return len(self.texts)

    def origin(self, index: int) -> str:
        return str(self.folder / self.media[index].split("\0")[0])

    def root(self, index: int) -> Path:
        return self.folder

    def row(self, index: int) -> Row:
        path = resolve(self._links_into(), f"{self.below}{self.texts[index]}")
        forget(path)  # each is read once an epoch
        try:
            data = read_bytes(path, 0, MAX_TEXT_BYTES)
        except OSError as error:
            raise SampleError(f"{path.name}: cannot be read ({error.strerror})") from error
        text = checked_text(decoded(data, path.name).strip(), path.name)
        for medium in self.media[index].split("\0"):
            if (modality := self.modalities[suffix_of(medium)]) in self.timed:
                inside, name = self._links_into(), f"{self.below}{medium}"
                refuse_pieces(text, modality, medium, path.name, partial(resolve, inside, name))
        return {**self._media(index), "text": text}

    def _links_into(self) -> Path:
        """The folder that links may lead into: that of the data, or one around it."""
        above = self.below.count("/")
        return self.folder.resolve().parents[above - 1] if above else self.folder

    def scan(self, layout: Layout) -> Iterator[Row | SampleError]:
        for index, (text, split) in enumerate(zip(self.texts, self.splits, strict=True)):
            yield {**self._media(index), "text": "", "id": text, "split": split}

    def _media(self, index: int) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in self.media[index].split("\0"):
            found.setdefault(self.modalities[suffix_of(name)], []).append(f"{self.below}{name}")
        return found

    def row_blocks(self) -> None:
        return None

    def holds(self) -> tuple[()]:
        return ()

    def extent(self) -> None:
        return None  # the folder had to be listed, which takes as long


def find_pairs(
    folder: Path,
    files: Sequence[str],
    suffixes: Mapping[str, Sequence[str]],
    asked: Collection[str],
    left_out: Counter[str],
    timed: Collection[str] = (),
) -> PairTable | None:
    """Pairs of a folder, or None where no medium of the run has a text of its name, or where files of rows lie there.

    Where every text is that of a medium, they are pairs whatever the run's modalities are.

    Args:
        files: as ``folders.list_files`` gives them.
        suffixes: as ``folders.suffix_table`` gives them.
        asked: modalities of the run.
        left_out: gets media without a text, and files of other kinds by their suffix.
        timed: modalities whose media have time.

    Raises:
        DataError: a suffix is claimed by several modalities of the run.
    """
    texts = [name for name in files if suffix_of(name) == TEXT]
    media: dict[str, list[str]] = {}
    for name in files if texts else ():
        if suffix_of(name) in suffixes:
            media.setdefault(_stem(name), []).append(name)
    num_texts = len([name for name in texts if not tells_of_data(name)])
    stems = _stems(texts, media)
    texts = [name for name in texts if name in stems]
    paired = {stem: media[stem] for stem in stems.values()}
    used = {suffix_of(name): name for names in paired.values() for name in names}
    # Where each text has a medium, they are no data of a run on text alone, whose modalities were forgotten.
    wanted = any(set(suffixes[suffix]) & set(asked) for suffix in used) or 0 < num_texts <= len(texts)
    if row_files(files) or not wanted:
        return None
    modalities = {suffix: modality_of(folder / name, suffix, suffixes) for suffix, name in used.items()}
    taken = {*texts, *(name for names in paired.values() for name in names)}
    for name in files:
        if name not in taken:
            left_out[NO_TEXT if suffix_of(name) in suffixes else suffix_of(name) or NO_SUFFIX] += 1
    joined = ["\0".join(paired[stems[text]]) for text in texts]
    splits = PackedKinds(_splits(texts))
    return PairTable(folder, PackedTexts(texts), PackedTexts(joined), modalities, splits, timed=timed)


def _stems(texts: Sequence[str], media: Collection[str]) -> dict[str, str]:
    """The texts that have media: each to the stem of these, which may write its accents in another way.

    Archives that were made on a Mac may have a letter and its accent as two characters, where a list has them as one.

    Args:
        media: stems of media.
    """
    found = {name: stem for name in texts if (stem := _stem(name)) in media}
    taken = set(found.values())
    apart = {_composed(stem): stem for stem in media if not stem.isascii() and stem not in taken}
    for name in texts if apart else ():
        if name not in found and (composed := _composed(_stem(name))) in apart:
            found[name] = apart[composed]
    return found


def _composed(stem: str) -> str:
    return unicodedata.normalize("NFC", stem)


def _stem(name: str) -> str:
    return name[: len(name) - len(suffix_of(name))]


def _splits(texts: Sequence[str]) -> list[Split | None]:
    """What the folders of the texts say."""
    return of_folders([next(filter(None, map(split_of, PurePosixPath(text).parts[:-1])), None) for text in texts])
