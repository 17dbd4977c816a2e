"""Decode planned media, held to what was planned. No torch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos.data.foreign import called
from kosmos.data.plan import PlannedMedia
from kosmos.data.processor import Processor
from kosmos.errors import PlanMismatch, SampleError


def decode_cells(
    planned: PlannedMedia, processor: Processor, random: np.random.Generator | None = None
) -> NDArray[Any]:
    """The cells of a planned medium, as many as planned.

    Args:
        random: what a processor that augments draws from, in training; None takes the medium as it is.

    Raises:
        SampleError: the medium is broken, or gives numbers that are not finite.
        PlanMismatch: the processor decoded another number, or another shape or type, than it had promised.
    """
    if random is not None and getattr(processor, "augments", False):
        how, cells = "augmented", processor.augmented(planned.media.load(), planned.plan, random)  # type: ignore[attr-defined]
    else:
        how, cells = "decode", processor.decode(planned.media.load(), planned.plan)
    expected = (planned.plan.cells, *processor.cell_shape)
    if not isinstance(cells, np.ndarray):
        raise PlanMismatch(f"{called(processor, how)}: expected an array, got {type(cells).__name__}")
    if cells.shape != expected or cells.dtype != processor.cell_dtype:
        raise PlanMismatch(
            f"{type(processor).__name__} planned {expected[0]} cells of {expected[1:]} {processor.cell_dtype} for "
            f"{planned.media.modality} and decoded {cells.shape[0]} of {cells.shape[1:]} {cells.dtype}"
        )
    if wrong := not_finite(cells):
        raise SampleError(f"{called(processor, how)}: {wrong}; expected finite numbers")
    return cells


def not_finite(cells: NDArray[Any]) -> str:
    """Which of the cells hold what is no finite number, in words; nothing where none does.

    Looked at are floats alone, so that pictures in whole numbers cost nothing. The cells of 30 s of sound (0.96 MB of
    float32) take 23 microseconds, beside 19 ms of decoding. A sum would take longer, and overflow where all is well.
    """
    if cells.dtype.kind not in "fc" or np.isfinite(cells).all():
        return ""
    wrong = np.flatnonzero(~np.isfinite(cells).reshape(len(cells), -1).all(axis=1))
    value = cells[wrong[0]][~np.isfinite(cells[wrong[0]])].flat[0]
    return f"{len(wrong):,} of {len(cells):,} cells are not finite (cell {wrong[0]:,} holds {value})"
