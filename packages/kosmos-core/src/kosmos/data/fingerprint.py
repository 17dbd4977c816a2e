"""What tells the documents of a source, and their order, from others: a run goes on among the same."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b

from kosmos.data.document import Source
from kosmos.data.foreign import called, said
from kosmos.errors import DataError


def fingerprint_of(source: Source) -> str | None:
    """What ``source.fingerprint()`` says; None where it has no such method, or does not know.

    Raises:
        DataError: it raises, or gives something else.
    """
    found = said(source, "fingerprint")
    if found is not None and not isinstance(found, str):
        raise DataError(f"{source.name}: {called(source, 'fingerprint')}: expected a text or None, got {found!r:.80}")
    return found


def fingerprint(identities: bytes, files: Sequence[tuple[str, int]]) -> str:
    """Of rows in their order.

    Args:
        identities: of the rows.
        files: names of the files that rows lie in, with how many each holds. What all names begin with does not count:
            data may be moved.
    """
    there = [(name, rows) for name, rows in files if rows]
    shared = len(os.path.commonprefix([name for name, _ in there]))  # noqa: RUF071  characters are meant
    told = "\n".join(f"{rows} {name[shared:]}" for name, rows in there).encode("utf-8", "surrogateescape")
    return blake2b(identities + told, digest_size=8).hexdigest()
