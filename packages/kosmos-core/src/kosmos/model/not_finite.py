"""Where numbers that are not finite came from: the parts are run again, in the order of the data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from kosmos.data.batch import PackedBatch
from kosmos.model.omni import OmniModel, Stream
from kosmos.model.own_losses import output_of

DECODED = "what was decoded"
"""Begins what is said of media, and not of the model."""


def weight_not_finite(model: OmniModel) -> str | None:
    """The first weight that is not finite, in words; of weights that are cut over ranks, in what this one holds."""
    found = (name for name, parameter in model.named_parameters() if not _is_finite(_held(parameter)))
    return next((f"the weight {name} is not finite" for name in found), None)


def part_not_finite(model: OmniModel, batches: Iterable[PackedBatch]) -> str | None:
    """The first part whose numbers are not finite, in words; None where it is none before the backbone.

    Of parts that are cut over ranks only what was decoded is looked at: no rank could compute them alone.

    Args:
        batches: rows, on the model's device.
    """
    cut = any(isinstance(parameter, DTensor) for parameter in model.parameters())
    with torch.no_grad():
        for batch in batches:
            for name, module in model.streams.items():
                stream, media = cast(Stream, module), batch.media[name]
                if not len(media.grids):
                    continue
                if not _is_finite(media.values):
                    return f"{DECODED} for stream {name} is not finite"
                if cut:
                    continue
                cells = output_of(stream.encoder(media.values, media.grids))
                if not _is_finite(cells):
                    return f"{stream.titles['encoder']}: its features are not finite"
                if not _is_finite(output_of(stream.connector(cells, media.grids))):
                    return f"{stream.titles['connector']}: what it gives is not finite"
    return None


def _held(parameter: Tensor) -> Tensor:
    """What this rank holds of it."""
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def _is_finite(numbers: Tensor) -> bool:
    return not numbers.is_floating_point() or bool(numbers.isfinite().all())
