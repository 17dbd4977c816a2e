"""The column ``file_name``, as ``datasets`` has it in metadata files: a row's medium, of the modality of its suffix."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from kosmos.data.sources.columns import Row
from kosmos.errors import SampleError

FILE_NAME = "file_name"
"""The column."""


def named_file(row: Row, suffixes: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The modality of a row's ``file_name``, with that column; none where the row has none.

    Args:
        suffixes: suffix to the modalities that may be meant by it.

    Raises:
        SampleError: nobody knows what the file is.
    """
    if not suffixes or not isinstance(name := row.get(FILE_NAME), str):
        return {}
    claims = suffixes.get(suffix := PurePosixPath(name).suffix.lower(), ())
    if len(claims) == 1:
        return {claims[0]: FILE_NAME}
    if not suffix:
        first = next(iter(suffixes.values()))[0]
        raise SampleError(
            f"{FILE_NAME}: {name!r:.120} has no suffix to tell its modality by; name that, and the file beside that "
            f"has one is found: columns: {{{first}: {FILE_NAME}}}"
        )
    what = (
        f"may be {' or '.join(claims)}; say which: columns: {{{claims[0]}: {FILE_NAME}}}"
        if claims
        else ("is of no installed modality")
    )
    raise SampleError(f"{FILE_NAME}: {suffix!r} {what}")
