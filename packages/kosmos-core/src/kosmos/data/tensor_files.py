"""Where the tensors lie in files of safetensors, by the headers of these, which are not trusted. No torch here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from os import fstat
from pathlib import Path
from typing import Any, NamedTuple

from kosmos.errors import ConfigError

MOST_HEADER = 100_000_000
"""Bytes that the reader of safetensors allows."""
_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4,
          "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8}  # fmt: skip
"""Of a value; types that are not among them are not checked."""


class TensorPlace(NamedTuple):
    """Where a tensor lies."""

    file: Path
    dtype: str
    """As safetensors names it, such as ``BF16``."""
    shape: tuple[int, ...]
    begin: int
    end: int
    """Bytes of the file."""


def read_tensor_places(file: Path) -> dict[str, TensorPlace]:
    """Where the tensors of a file of safetensors lie, by their names. None of them is read.

    Raises:
        ConfigError: there is no such file, or it is cut short or none of safetensors.
    """
    if not file.is_file():  # a pipe would be waited for
        raise ConfigError(f"weights {file.parent}: no {file.name} there; save it with save_pretrained, as safetensors")
    try:
        with file.open("rb") as opened:
            size = fstat(opened.fileno()).st_size
            length = int.from_bytes(opened.read(8), "little")
            if length > min(MOST_HEADER, size - 8):
                raise ValueError(f"its header would have {length:,} bytes, and the file has {size:,}")
            header = json.loads(opened.read(length))
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        places = {name: _place(file, entry, 8 + length, size) for name, entry in entries.items()}
        if sum(place.end - place.begin for place in places.values()) > size:
            raise ValueError("its tensors overlap")
        return places
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"weights {file}: cannot be read as safetensors: {str(error) or repr(error):.200}") from error


def _place(file: Path, entry: Mapping[str, Any], start: int, size: int) -> TensorPlace:
    """Of what a header says of a tensor, in a file of ``size`` bytes whose header ends at ``start``."""
    (begin, end), shape = entry["data_offsets"], entry["shape"]
    if type(begin) is not int or type(end) is not int or not 0 <= begin <= end <= size - start:
        raise ValueError(f"data_offsets {entry['data_offsets']!r:.60}: the tensors have {size - start:,} bytes")
    if not all(type(side) is int and side >= 0 for side in shape):
        raise ValueError(f"shape {shape!r:.60}: expected whole numbers")
    return TensorPlace(file, str(entry["dtype"]), tuple(shape), start + begin, start + end)


def check_bytes(name: str, place: TensorPlace) -> None:
    """Raises ConfigError where a tensor has another number of bytes than its shape and type say."""
    width = _BYTES.get(place.dtype)
    if width is not None and prod(place.shape) * width != place.end - place.begin:
        what = f"{place.end - place.begin:,} bytes for {place.dtype} {list(place.shape)!s:.60}"
        raise ConfigError(f"weights {place.file}: {name}: {what}; bring the file as it was")
