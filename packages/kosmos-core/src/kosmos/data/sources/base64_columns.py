"""Media that stand in a column as plain base64, as in the tables of MMBench: who opens them says so."""

from __future__ import annotations

from typing import Any

from kosmos.data.sources.media import decode_base64
from kosmos.data.sources.plain_base64 import begins_as_medium
from kosmos.errors import SampleError


def decoded(value: Any, what: str) -> Any:
    """The bytes of a text that is a medium in base64, with or without line ends; any other value as it is.

    Args:
        what: its name in errors.

    Raises:
        SampleError: it is no base64, or of no known format of media.
    """
    if not isinstance(value, str) or not value.strip() or value[:5].lower() == "data:":
        return value
    try:
        data = decode_base64("".join(value.split()))
    except SampleError as error:
        raise type(error)(f"{what}: {error}") from error
    if not begins_as_medium(data):
        raise SampleError(f"{what}: {value[:20]!r}... is the base64 of no known format of media (options.base64)")
    return data
