"""Media that stand in rows as numbers: nested lists, and arrays beside their rate, as ``datasets`` decodes sounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kosmos.components import ModalitySpec
from kosmos.data.sources.columns import kind_of
from kosmos.data.sources.wish_names import NO_RATE, READ_RATES
from kosmos.errors import SampleError

ARRAY: Final = "array"
"""Key of an object that holds numbers."""
_NONE: Final[Mapping[str, Any]] = {}
"""Nothing; layouts that hold it are pickled, as a read-only view could not be."""


class Taken(NamedTuple):
    """What processors take of what rows hold, beside files."""

    rated: tuple[str, ...] = ()
    """Modalities that read the rates that rows state of files."""
    arrays: Mapping[str, tuple[int, ...]] = _NONE
    """By modality, the numbers of dimensions that arrays of its may have (``ModalitySpec.arrays``)."""
    scales: Mapping[str, float] = _NONE
    """By modality, its ``ModalitySpec.full_scale``."""
    written: tuple[str, ...] = ()
    """Modalities of which the run has a codec: of these the assistant's media are learned, and rows may hold codes."""

    @classmethod
    def of(cls, specs: Mapping[str, ModalitySpec], written: Sequence[str] = ()) -> Taken:
        """What those of these modalities take.

        Args:
            written: see ``Taken.written``.
        """
        return cls(
            tuple(name for name, spec in specs.items() if spec.reads_rate),
            {name: spec.arrays for name, spec in specs.items() if spec.arrays},
            {name: spec.full_scale for name, spec in specs.items() if spec.full_scale is not None},
            tuple(written),
        )

    def media(self, modality: str, value: Any) -> Any:
        """What a row holds of a modality, with an array in place of each list of numbers that is one medium.

        Raises:
            SampleError: as of ``array``, or numbers are nested too deep or not deep enough. It names the modality.
        """
        dims = self.arrays.get(modality)
        if not dims or not isinstance(value, list | tuple) or not (depth := _depth(value)):
            return value
        try:
            if depth in dims:
                return self.array(modality, value)
            if depth - 1 in dims:
                return [item if _is_nothing(item) else self.array(modality, item) for item in value]
        except SampleError as error:
            raise SampleError(f"{modality}: {error}") from error
        raise SampleError(f"{modality}: expected an array of {_told(dims)}, got one of {depth}")

    def array(self, modality: str, value: Any) -> NDArray[Any]:
        """The numbers of one medium: whole ones as they are, others as float32, nulls as NaN.

        Raises:
            SampleError: no numbers, lists of unequal lengths, or another number of dimensions or another scale than the
                modality has.
        """
        dims, scale = self.arrays.get(modality), self.scales.get(modality)
        values = _numbers(value)
        if not dims and values.ndim != 1:  # whether samples or channels come first is agreed on by nobody
            raise SampleError(f"array: expected the samples of one channel, got {list(values.shape)} values")
        if dims and values.ndim not in dims:
            raise SampleError(f"array: expected {_told(dims)}, got {list(values.shape)} values")
        if values.dtype.kind == "f" or scale is not None or not dims:
            with np.errstate(over="ignore"):  # what is infinite then is the processor's to refuse
                values = np.asarray(values, np.float32)
        if scale is not None:
            peak = max(values.max(initial=0), -values.min(initial=0))
            if scale < peak < math.inf and (values == np.rint(values)).all():  # by what to divide is a guess
                raise SampleError(
                    f"array: expected floats from {-scale:g} to {scale:g}, got whole numbers up to {int(peak)}"
                )
        return values

    def is_array(self, modality: str, item: Any) -> bool:
        """Whether it is an object with numbers, and beside them their rate where nothing else says that they are a
        medium; what is encoded goes before them."""
        if not isinstance(item, Mapping) or item.get(ARRAY) is None or item.get("bytes") is not None:
            return False
        return modality in self.arrays or any(item.get(key) is not None for key in READ_RATES)

    def reads_rate(self, modality: str) -> bool:
        """Whether rows may state the rate of a file."""
        return modality in self.rated


NO_MORE: Final = Taken()
"""Of processors that take files alone."""


def read_rate(medium: Mapping[str, Any]) -> float | None:
    """Samples a second that an object states of the medium that it holds; None where it states none.

    Raises:
        SampleError: what it states is no number above 0, or two numbers.
    """
    said = {key: _rate(key, medium[key]) for key in READ_RATES if medium.get(key) not in NO_RATE}
    if len({*said.values()}) > 1:
        raise SampleError(f"{' and '.join(f'{key} {rate:g}' for key, rate in said.items())}: two rates; leave one out")
    return next(iter(said.values()), None)


def _rate(key: str, value: Any) -> float:
    try:
        rate = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        rate = None
    if rate is None:
        raise SampleError(f"{key}: expected a number, got {value!r:.60}")
    if not 0 < rate < math.inf:
        raise SampleError(f"{key}: expected a number above 0, got {value!r:.60}")
    return rate


def _numbers(value: Any) -> NDArray[Any]:
    try:
        found = np.asarray(value)
        if found.dtype.kind == "O":  # nulls among numbers, or what is none
            found = found.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(value, list | tuple) and (unequal := _unequal(value)):
            raise SampleError(f"array: lists of unequal lengths, {unequal}") from error
        raise SampleError(f"array: expected a list of numbers, got {value!r:.60}") from error
    if found.dtype.kind not in "fiub" or not found.ndim:
        raise SampleError(f"array: expected a list of numbers, got {value!r:.60}")
    return found


def _unequal(value: Any) -> str:
    """Of nested lists, two lengths that should be one; empty where that is not what is wrong."""
    first: int | None = None
    for number, item in enumerate(value):
        if not isinstance(item, list | tuple):
            return "" if first is None else f"a list and {kind_of(item)}"
        if first is None:
            first = len(item)
        if len(item) != first:
            return f"{first} and {len(item)} (list 0 and list {number})"
    return next((found for item in value if (found := _unequal(item))), "") if first is not None else ""


def _is_nothing(item: Any) -> bool:
    return item is None or (isinstance(item, list | tuple) and not item)


def _depth(value: Any) -> int:
    """How deep numbers are nested in lists; 0 where what is nested is something else, or nothing."""
    depth = 0
    while isinstance(value, list | tuple):
        value, depth = next((item for item in value if item is not None and item != []), None), depth + 1
    return depth if isinstance(value, int | float) and not isinstance(value, bool) else 0


def _told(dims: Any) -> str:
    numbers = " or ".join(map(str, dims))
    return f"{numbers} dimension{'s' * (numbers != '1')}"
