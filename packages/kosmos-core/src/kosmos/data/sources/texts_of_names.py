"""Media in class folders whose texts lie in files of their names: in a tree of their own (``wav48/p225/p225_001.flac``
and ``txt/p225/p225_001.txt``), or beside them under a suffix by which nothing is read (``0.lab``, ``0.srt``)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from kosmos.data.sources.file_names import stem_of, stems_of, suffix_of
from kosmos.data.sources.folders import tells_of_data
from kosmos.data.sources.index_files import LEAST_DIGITS, refuse_index_beside
from kosmos.data.sources.joined import ClassFolderTable
from kosmos.data.sources.since import is_opened_before
from kosmos.data.sources.text_inside import JSON, TIMED, first_with_text
from kosmos.errors import DataError

KINDS = TIMED.union(".txt .text .lab .trn .trans .transcript .caption .captions .tag .tags".split(), [JSON])
"""Suffixes of what may say what is in a medium."""
_LESS = re.compile(r"(.+)[-_][^-_]+")
"""A stem with one part more, as where a text is of several recordings of it (``p225_001_mic1``)."""


def with_texts_beside(media: ClassFolderTable, files: Sequence[str], *, asked: bool) -> ClassFolderTable:
    """The table of media in class folders as far as nothing else says what they are.

    Args:
        files: as ``folders.list_files`` gives them.
        asked: the media are there to be continued: where their texts are elsewhere they go without any.

    Raises:
        DataError: their texts are in files of their names, or in a list, most likely.
    """
    if is_opened_before():
        return media
    media = refuse_index_beside(media, files, asked=asked)
    if not media.named or not (found := _in_files_of_names(media.files, files)):
        return media
    if (first := first_with_text(media, found)) is None:
        return media
    medium, text = first
    said = (
        f"{len(found):,} of its {len(media):,} media in folders have a file of their name with another suffix "
        f"({medium}, {text})"
    )
    if asked:
        return replace(media, named=False, remark=f"{said}; they are not read, and no answer is expected")
    how = "metadata.csv (file_name,text; docs: Use your own data, Transcripts in files of their own)"
    if suffix_of(text) in TIMED:
        how = "manifest.jsonl, a row for each piece (docs: Use your own data, Transcripts with times)"
    raise DataError(
        f"{media.folder}: {said}, so that their texts seem to be there; to learn these write them into a {how}, to "
        f"learn the names of the folders (such as {media.files[0].split('/')[-2]}) move them elsewhere"
    )


def _in_files_of_names(media: Sequence[str], files: Sequence[str]) -> dict[str, list[str]]:
    """The media that have files of their names, with these; none where most have none."""
    texts = _Texts(files)
    if not texts.anywhere:
        return {}
    stems = Counter(map(stem_of, media))
    folders = frozenset(part for folder in {name.rpartition("/")[0] for name in media} for part in folder.split("/"))
    near: dict[str, list[str]] = {}
    far: dict[str, list[str]] = {}
    of_parts: dict[str, list[str]] = {}
    for name in media:
        folder, stem = name.rpartition("/")[0], stem_of(name)
        if found := texts.near(folder, stem):
            near[name] = found
        elif (found := texts.anywhere.get(stem, [])) and (stems[stem] == 1 or _is_telling(stem)):
            far[name] = found
        elif (less := _LESS.fullmatch(stem)) is None or less[1] in folders:  # which would be a text of a class
            continue
        elif found := texts.near(folder, less[1]) or (texts.anywhere.get(less[1], []) if _is_telling(less[1]) else []):
            of_parts[name] = found
    if 2 * _num_texts(far) >= len(far):  # fewer are of something else that has these names, such as parts of a set
        near |= far
    if 4 * _num_texts(of_parts) >= len(of_parts):
        near |= of_parts
    return {name: near[name] for name in media if name in near} if 2 * len(near) >= len(media) else {}


class _Texts:
    """Files that may hold texts, by stem: in one folder, in folders of one name, and anywhere."""

    def __init__(self, files: Sequence[str]) -> None:
        self._beside, self._alike = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        self.anywhere = defaultdict[str, list[str]](list)
        for name in files:
            if suffix_of(name) in KINDS and not tells_of_data(name):
                folder = name.rpartition("/")[0]
                for stem in stems_of(name):
                    self._beside[f"{folder}/{stem}"].append(name)
                    self._alike[f"{_last(folder)}/{stem}"].append(name)
                    self.anywhere[stem].append(name)

    def near(self, folder: str, stem: str) -> list[str]:
        """Those in the folder of a medium, or else in one that is called as it is."""
        return self._beside.get(f"{folder}/{stem}") or self._alike.get(f"{_last(folder)}/{stem}") or []


def _last(folder: str) -> str:
    return folder.rpartition("/")[2]


def _num_texts(found: dict[str, list[str]]) -> int:
    return len({texts[0] for texts in found.values()})


def _is_telling(stem: str) -> bool:
    """Whether media of several folders that have this name are of one text: ``1`` and ``front`` are in any folder."""
    return any(map(str.isdecimal, stem)) and not (stem.isdecimal() and len(stem) < LEAST_DIGITS)
