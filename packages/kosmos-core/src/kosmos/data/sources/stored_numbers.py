"""Numbers of arrow columns of 32 and 16 bits as the shortest decimals that mean them: 0.1, where the same number with
all digits of a double is 0.10000000149011612, which nobody wrote and a model would have to learn."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kosmos.data.sources.since import lacks

RULE: Final = "numbers as stored"
"""As in ``kosmos.train.order.LATER``: older runs have read them with all digits."""


MOST_BYTES: Final = 32 << 10
"""Of the values of a row: more are samples of a medium, of which nobody makes a text, and which are read often."""


def values_of(column: Any) -> list[Any]:
    """The values of an arrow column in Python, floats of 32 and 16 bits by their shortest decimals, but for whole ones.
    As numbers of their own precision they are the same. Views of lists, maps, and what is over ``MOST_BYTES`` a row are
    as arrow has them."""
    stored = list(column.to_pylist())
    kinds = _as_texts(column.type)
    if kinds is None or column.nbytes > MOST_BYTES * max(len(column), 1) or lacks(RULE):
        return stored
    values, kind = stored, column.type
    if kinds[0] is not column.type:
        texts, doubles = kinds
        column = column.cast(texts).cast(doubles)  # arrow writes the shortest decimal, and reads it as a double
        values, kind = list(column.to_pylist()), column.type
    if _has_halves(kind):
        values = [_shortened(value, kind) for value in values]
    return [_but_whole(*pair) for pair in zip(stored, values, strict=True)]


def is_shortened(kind: Any) -> bool:
    """Whether values of an arrow type may be other ones by ``values_of``."""
    return _as_texts(kind) is not None and not lacks(RULE)


def _but_whole(stored: Any, short: Any) -> Any:
    """What is shortened, but for numbers that are whole: of 123456792 the shortest decimal is 123456790."""
    if isinstance(short, float):
        return float(stored) if stored.is_integer() else short
    if isinstance(short, list):
        return [_but_whole(*pair) for pair in zip(stored, short, strict=True)]
    if isinstance(short, dict):
        return {name: _but_whole(stored[name], value) for name, value in short.items()}
    return short


@lru_cache(maxsize=1024)
def _as_texts(kind: Any) -> tuple[Any, Any] | None:
    """A type with texts, and with doubles, in place of floats of 32 bits; None where it has no floats below 64."""
    texts, doubles = _with(kind, pa.string()), _with(kind, pa.float64())
    if texts != kind:
        return texts, doubles
    return (kind, kind) if _has_halves(kind) else None


def _with(kind: Any, leaf: Any) -> Any:
    """A type with another one in place of floats of 32 bits."""
    if pa.types.is_float32(kind):
        return leaf
    if pa.types.is_dictionary(kind) and pa.types.is_float32(kind.value_type):
        return leaf
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return pa.struct([field.with_type(_with(field.type, leaf)) for field in fields])
    if _is_list(kind):
        item = kind.value_field.with_type(_with(kind.value_type, leaf))
        if pa.types.is_fixed_size_list(kind):
            return pa.list_(item, kind.list_size)
        return pa.large_list(item) if pa.types.is_large_list(kind) else pa.list_(item)
    return kind


@lru_cache(maxsize=1024)
def _has_halves(kind: Any) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_halves(kind.field(number).type) for number in range(kind.num_fields))
    return _has_halves(kind.value_type) if _is_list(kind) else bool(pa.types.is_float16(kind))


def _shortened(value: Any, kind: Any) -> Any:
    """A value of a type with its floats of 16 bits by their shortest decimals, which arrow does not write."""
    if value is None or not _has_halves(kind):
        return value
    if pa.types.is_struct(kind):
        return {name: _shortened(inner, kind.field(name).type) for name, inner in value.items()}
    if _is_list(kind):
        return [_shortened(inner, kind.value_type) for inner in value]
    return float(str(np.float16(value)))


def _is_list(kind: Any) -> bool:
    return any(is_(kind) for is_ in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))
