"""Where numbers that are not finite came from: the parts are run again, in the order of the data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor

from kosmos.data.batch import PackedBatch
from kosmos.model.omni import OmniModel, Stream


def weight_not_finite(model: OmniModel) -> str | None:
    """The first weight that is not finite, in words."""
    found = (name for name, parameter in model.named_parameters() if not _is_finite(parameter))
    return next((f"the weight {name} is not finite" for name in found), None)


def part_not_finite(model: OmniModel, batches: Iterable[PackedBatch]) -> str | None:
    """The first part whose numbers are not finite, in words; None where it is none before the backbone.

    Args:
        batches: rows, on the model's device.
    """
    with torch.no_grad():
        for batch in batches:
            for name, module in model.streams.items():
                stream, media = cast(Stream, module), batch.media[name]
                if not len(media.grids):
                    continue
                if not _is_finite(media.values):
                    return f"what was decoded for stream {name} is not finite"
                cells = stream.encoder(media.values, media.grids)
                if not _is_finite(cells):
                    return f"{stream.titles['encoder']}: its features are not finite"
                if not _is_finite(stream.connector(cells, media.grids)):
                    return f"{stream.titles['connector']}: what it gives is not finite"
    return None


def _is_finite(numbers: Tensor) -> bool:
    return not numbers.is_floating_point() or bool(numbers.isfinite().all())
