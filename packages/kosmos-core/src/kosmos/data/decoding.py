"""Decode planned media, held to what was planned. No torch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos.data.foreign import called
from kosmos.data.plan import PlannedMedia
from kosmos.data.processor import Processor
from kosmos.errors import PlanMismatch


def decode_cells(
    planned: PlannedMedia, processor: Processor, random: np.random.Generator | None = None
) -> NDArray[Any]:
    """The cells of a planned medium, as many as planned.

    Args:
        random: what a processor that augments draws from, in training; None takes the medium as it is.

    Raises:
        SampleError: the medium is broken.
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
    return cells
