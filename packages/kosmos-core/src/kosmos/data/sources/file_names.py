"""Suffixes and stems of names of files, of which a folder may have a million."""

from __future__ import annotations

from collections.abc import Iterator

from kosmos.data.unpacked import without_packing

COMPRESSED = {
    ".gz": "gunzip", ".tgz": "gunzip", ".bz2": "bunzip2", ".xz": "unxz", ".zst": "unzstd", ".zstd": "unzstd",
    ".lz4": "unlz4", ".zip": "unzip", ".7z": "7z x",
}  # fmt: skip
"""Suffixes of compressed files to the command that decompresses them, where they are not read."""
ALIKE = {".ndjson": ".jsonl"}
"""Other suffixes of rows to the one that they are read by."""


def suffix_of(name: str) -> str:
    """The suffix of a file in small letters, as ``PurePosixPath`` has it, which takes ten times as long."""
    last = name.rpartition("/")[2]
    dot = last.rfind(".")
    return last[dot:].lower() if 0 < dot < len(last) - 1 else ""


def rows_suffix(name: str) -> str:
    """As ``suffix_of``, of compressed rows that of the file within, and one of those that mean the same: of
    ``a.jsonl.gz`` and of ``a.ndjson`` it is ``.jsonl``."""
    suffix = suffix_of(without_packing(name))
    return ALIKE.get(suffix, suffix)


def stem_of(name: str) -> str:
    """The name of a file without its suffix and folders, as ``PurePosixPath`` has it, which takes ten times as long."""
    last = name.rpartition("/")[2]
    return last.rpartition(".")[0] if suffix_of(last) else last


def stems_of(name: str) -> Iterator[str]:
    """What of a name may be that of a medium: of ``1.normalized.txt`` that is ``1``, too."""
    stem = stem_of(name)
    yield stem
    while "." in stem:
        stem = stem.rpartition(".")[0]
        yield stem
