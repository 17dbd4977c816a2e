"""The objective of a run: what its run file names, as the model and the meters use it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from kosmos.components import ObjectiveSpec
from kosmos.config import RunConfig
from kosmos.data.batch import IGNORED, PackedArrays, PackedBatch
from kosmos.errors import ConfigError
from kosmos.model.objectives import Learning
from kosmos.plugins import Registry

WHERE = "train.objective"


def open_objective(config: RunConfig, registry: Registry) -> Learning | None:
    """What the run file names; None where that is the cross entropy of tokens.

    Raises:
        ConfigError: an option is wrong.
        PluginError: it is not installed, or cannot be made.
    """
    if (named := config.train.objective) is None:
        return None
    spec = cast(ObjectiveSpec, registry.get("objective", named.name))
    made = registry.build("objective", named.name, options=named.options, path=WHERE)
    return Learning(made, spec.unit, spec.reference, named.name)


def check_objective(config: RunConfig, processes: int) -> None:
    """Raises ConfigError where an objective does not go with other settings."""
    if config.train.objective is None:
        return
    if processes > 1 and config.parallel.sequence > 1:
        raise ConfigError(
            f"{WHERE}: looks at whole documents, of which parallel.sequence gives each rank a part; leave one of them "
            "out (parallel.tensor shares matrices instead)"
        )
    if config.train.z_loss:
        raise ConfigError(
            f"{WHERE}: not with train.z_loss, which is of the cross entropy of tokens; leave one of them out"
        )


def units_of(learning: Learning | None, row: PackedArrays) -> int:
    """Of a row: what a step takes the mean over. The learned tokens where there is no objective."""
    trained = np.flatnonzero(row.labels != IGNORED)
    if learning is None:
        return len(trained)
    ends = np.cumsum([document.length for document in row.documents])
    owner: NDArray[np.int64] = np.searchsorted(ends, trained, side="right")
    return learning.units_in(row.documents, owner)


class Told(NamedTuple):
    """What an objective says of some rows: sums over so many units."""

    loss: float = 0.0
    units: int = 0
    figures: Mapping[str, float] = {}


def told_of(learning: Learning, batches: Sequence[PackedBatch], losses: Sequence[Tensor]) -> Told:
    """What an objective says of some rows.

    Args:
        losses: of each row [n], or with those of the reference [2, n]; on the CPU.
    """
    total, units, sums = 0.0, 0, Counter[str]()
    for batch, found in zip(batches, losses, strict=True):
        own, reference = (found[0], found[1]) if found.dim() == 2 else (found, None)
        judged = learning.judged(own.double(), batch, None if reference is None else reference.double())
        values = learning.values(judged)
        total, units = total + float(values.sum()), units + len(values)
        sums.update({name: float(numbers.sum()) for name, numbers in learning.figures(judged).items()})
    return Told(total, units, sums)


def means_of(everyone: Sequence[Told]) -> dict[str, Any]:
    """Of what all ranks have told: the fields of a row of metrics."""
    units = max(1, sum(told.units for told in everyone))
    figures: Counter[str] = Counter()
    for told in everyone:
        figures.update(told.figures)
    return {
        "loss": sum(told.loss for told in everyone) / units,
        "objective": {name: value / units for name, value in figures.items()},
    }
