"""What the objective of a run says of documents that are scored, in place of the cross entropy of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from kosmos.data.batch import PackedBatch
from kosmos.model.objectives import RIGHT, Learning


class Tally(Protocol):
    """What is counted of a document."""

    loss: float
    targets: int
    answers: int
    right: int
    units: int


def count_units(learning: Learning, batch: PackedBatch, per_token: Tensor, tallies: Sequence[Tally]) -> None:
    """Put the losses of units in place of those of tokens, and where the objective tells what the model is right about,
    that in place of what greedy decoding gives.

    Args:
        per_token: losses of the row's learned tokens [n], or with those of the reference [2, n]; on the CPU.
        tallies: of the documents of the row, each of which gets its unit; others have none then.

    Raises:
        PluginError: as of ``Learning.values``.
    """
    judged = learning.judged_of(per_token, batch)
    values, figures = learning.values(judged).tolist(), learning.figures(judged)
    owners = learning.owners(judged)
    for tally in tallies:
        tally.loss, tally.targets = 0.0, 0
    for number, value in zip(owners, values, strict=True):
        tally = tallies[number]
        tally.loss, tally.targets, tally.units = tally.loss + value, tally.targets + 1, tally.units + 1
    if RIGHT in figures and learning.unit != "token":
        for number, right in zip(owners, figures[RIGHT].tolist(), strict=True):
            tallies[number].answers, tallies[number].right = 1, int(right)
