"""Suffixes and stems of names of files, of which a folder may have a million."""

from __future__ import annotations

COMPRESSED = {
    ".gz": "gunzip", ".tgz": "gunzip", ".bz2": "bunzip2", ".xz": "unxz", ".zst": "unzstd", ".lz4": "unlz4",
    ".zip": "unzip", ".7z": "7z x",
}  # fmt: skip
"""Suffixes of compressed files, of which none is read, to the command that decompresses them."""


def suffix_of(name: str) -> str:
    """The suffix of a file in small letters, as ``PurePosixPath`` has it, which takes ten times as long."""
    last = name.rpartition("/")[2]
    dot = last.rfind(".")
    return last[dot:].lower() if 0 < dot < len(last) - 1 else ""


def stem_of(name: str) -> str:
    """The name of a file without its suffix and folders, as ``PurePosixPath`` has it, which takes ten times as long."""
    last = name.rpartition("/")[2]
    return last.rpartition(".")[0] if suffix_of(last) else last
