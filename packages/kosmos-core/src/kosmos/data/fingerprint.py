"""What tells the documents of a source, and their order, from others: a run goes on among the same."""

from __future__ import annotations

import os
from hashlib import blake2b

from kosmos.data.document import Source
from kosmos.data.foreign import called, first_line
from kosmos.errors import DataError, KosmosError


def fingerprint_of(source: Source) -> str | None:
    """What ``source.fingerprint()`` says; None where it has no such method, or does not know.

    Raises:
        DataError: it raises, or gives something else.
    """
    find = getattr(source, "fingerprint", None)
    if not callable(find):
        return None
    who = f"{source.name}: {called(source, 'fingerprint')}"
    try:
        found = find()
    except (KosmosError, MemoryError):
        raise
    except Exception as error:  # whatever a plugin's code raises
        raise DataError(f"{who} raised {first_line(error)}") from error
    if found is not None and not isinstance(found, str):
        raise DataError(f"{who}: expected a text or None, got {found!r:.80}")
    return found


def fingerprint(identities: bytes, origins: list[str]) -> str:
    """Of rows in their order.

    Args:
        identities: something of each row.
        origins: where some of them lie. What all of them begin with does not count: data may be moved.
    """
    shared = len(os.path.commonprefix(origins))  # noqa: RUF071  characters are meant
    told = "\n".join(origin[shared:] for origin in origins).encode("utf-8", "surrogateescape")
    return blake2b(identities + told, digest_size=8).hexdigest()
