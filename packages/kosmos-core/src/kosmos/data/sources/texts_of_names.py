"""Media in class folders whose texts lie in files of their names: in a tree of their own (``wav48/p225/p225_001.flac``
and ``txt/p225/p225_001.txt``), or beside them under a suffix by which nothing is read (``0.lab``, ``0.srt``)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from kosmos.data.open_files import forget, read_bytes
from kosmos.data.sources.file_names import stem_of, suffix_of
from kosmos.data.sources.folders import tells_of_data
from kosmos.data.sources.index_files import refuse_index_beside
from kosmos.data.sources.joined import ClassFolderTable
from kosmos.data.sources.media import resolve
from kosmos.data.sources.since import is_opened_before
from kosmos.errors import DataError, SampleError

JSON = ".json"
TIMED = frozenset(".srt .vtt .sbv .ass .ssa .lrc .ttml .textgrid .ctm .stm .eaf .phn .wrd".split())
"""Suffixes of subtitles and labels, which say when something is said."""
KINDS = TIMED.union(".txt .text .lab .trn .trans .transcript .caption .captions .tag .tags".split(), [JSON])
"""With those of texts."""
_SAYS = re.compile(
    rb'"(text|transcript|transcripts|transcription|normalized_text|caption|captions|sentence|segments|utterance)"\s*:'
)
"""In a JSON file that holds a text: others tell of who made a file, and when."""
LOOKED_AT_BYTES = 64 << 10
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
    if not media.named or not (found := _in_files_of_names(media, files)):
        return media
    medium, text = next(iter(found.items()))
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


def _in_files_of_names(media: ClassFolderTable, files: Sequence[str]) -> dict[str, str]:
    """The media that have files of their names, each with one; none where most have none."""
    texts: dict[str, str] = {}
    beside: dict[str, str] = {}
    for name in files:
        if suffix_of(name) in KINDS and not tells_of_data(name):
            for stem in _stems(name):
                texts[stem] = beside[f"{name.rpartition('/')[0]}/{stem}"] = name
    if not texts:
        return {}
    found: dict[str, str] = {}
    of_parts: dict[str, str] = {}
    for name in media.files:
        stem = stem_of(name)
        if stem in texts:
            found[name] = beside.get(f"{name.rpartition('/')[0]}/{stem}", texts[stem])
        elif (less := _LESS.fullmatch(stem)) is not None and less[1] in texts:
            of_parts[name] = texts[less[1]]
    if 4 * len({*of_parts.values()}) >= len(media.files):  # else a text of a class, it may be
        found |= of_parts
    return found if 2 * len(found) >= len(media.files) and _says_something(media, found) else {}


def _stems(name: str) -> Iterator[str]:
    """What of a name may be that of a medium: of ``1.normalized.txt`` that is ``1``, too."""
    stem = stem_of(name)
    yield stem
    while "." in stem:
        stem = stem.rpartition(".")[0]
        yield stem


def _says_something(media: ClassFolderTable, found: Mapping[str, str]) -> bool:
    texts: Collection[str] = found.values()
    if any(suffix_of(name) != JSON for name in texts):
        return True
    first = next(iter(texts))
    try:
        path = resolve(media.folder, first)
        forget(path)
        return _SAYS.search(read_bytes(path, 0, LOOKED_AT_BYTES)) is not None
    except (OSError, SampleError):
        return False
