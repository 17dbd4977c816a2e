"""Media that nothing is said about, as documents to be continued: a folder of pictures alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from kosmos.data.sources.file_names import suffix_of
from kosmos.data.sources.folders import NO_SUFFIX, holds_data, modality_of
from kosmos.data.sources.joined import ClassFolderTable
from kosmos.data.sources.packed import PackedKinds, PackedTexts
from kosmos.data.sources.splits import Split, split_of


def bare_media(
    folder: Path,
    files: Sequence[str],
    suffixes: Mapping[str, Sequence[str]],
    left_out: Counter[str],
    wanted: Collection[str],
) -> ClassFolderTable | None:
    """The media of a folder without a text, or None where there are none, or where something says what they show.

    Rows of data say it, and folders that all of the media are in, but for such as are named by splits. Beside media of
    the run texts of other names are passed over.

    Args:
        files: as ``folders.list_files`` gives them.
        suffixes: as ``folders.suffix_table`` gives them.
        left_out: gets the files of unknown suffixes, by suffix.
        wanted: modalities of the run.

    Raises:
        DataError: a file's suffix is claimed by several modalities of the run.
    """
    media = [name for name in files if suffix_of(name) in suffixes]
    in_classes = all("/" in name for name in media) and not all(split_of(name.split("/")[-2]) for name in media)
    is_wanted = any(not set(suffixes[suffix_of(name)]).isdisjoint(wanted) for name in media)
    others = [name for name in files if suffix_of(name) != ".txt"] if is_wanted else files
    if not media or in_classes or holds_data(others):
        return None
    for name in set(files) - set(media):
        left_out[suffix_of(name) or NO_SUFFIX] += 1
    modalities = [modality_of(folder / name, suffix_of(name), suffixes) for name in media]
    nothing: PackedKinds[Split | None] = PackedKinds([None] * len(media))
    return ClassFolderTable(folder, PackedTexts(media), PackedKinds(modalities), nothing, named=False)
