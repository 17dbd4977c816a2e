"""The objective of a run: what its run file names, as the model and the meters use it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
from torch import Tensor

from kosmos.components import ObjectiveSpec
from kosmos.config import RunConfig
from kosmos.data.batch import IGNORED, PackedArrays, PackedBatch, owner_of
from kosmos.errors import ConfigError
from kosmos.evaluate.meters import LossMeter
from kosmos.model.objectives import ENTROPY, Learning
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


def check_objective(config: RunConfig, registry: Registry, processes: int) -> None:
    """Raises ConfigError where an objective does not go with other settings, and as ``open_objective``."""
    if config.train.objective is None:
        return
    if registry.peek("objective", config.train.objective.name) is not None:  # else that has been told
        open_objective(config, registry)
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
    return learning.units_in(row.documents, owner_of(row.documents, trained))


class Told(NamedTuple):
    """What an objective says of some rows, as sums."""

    units: int = 0
    figures: Mapping[str, float] = {}
    """Over the units."""
    cross_entropy: float = 0.0
    tokens: int = 0
    """Of that: those that are learned, but of worse answers."""


def told_of(
    learning: Learning, batches: Sequence[PackedBatch], losses: Sequence[Tensor], meter: LossMeter
) -> tuple[float, Told]:
    """What an objective says of some rows: the sum of the losses of their units, and more.

    Args:
        losses: of each row [n], or with those of the reference [2, n]; on the CPU.
        meter: gets the losses of the units.
    """
    total, units, figures, entropy, tokens = 0.0, 0, Counter[str](), 0.0, 0
    for batch, found in zip(batches, losses, strict=True):
        judged = learning.judged_of(found, batch)
        values = learning.values(judged).numpy()
        meter.add_owned(batch.documents, np.asarray(learning.owners(judged), np.int64), values)
        total, units = total + float(values.sum()), units + len(values)
        figures.update({name: float(numbers.sum()) for name, numbers in learning.figures(judged).items()})
        better = ~np.asarray([document.is_rejected for document in batch.documents], np.bool_)[judged.owner.numpy()]
        entropy, tokens = entropy + float(judged.losses.numpy()[better].sum()), tokens + int(better.sum())
    return total, Told(units, figures, entropy, tokens)


def figures_of(everyone: Sequence[Told]) -> dict[str, float]:
    """Means of what all ranks have told, as a row of metrics has them under ``objective``."""
    units = max(1, sum(told.units for told in everyone))
    figures = Counter[str]()
    for told in everyone:
        figures.update(told.figures)
    entropy = sum(told.cross_entropy for told in everyone) / max(1, sum(told.tokens for told in everyone))
    return {**{name: value / units for name, value in figures.items()}, ENTROPY: entropy}
