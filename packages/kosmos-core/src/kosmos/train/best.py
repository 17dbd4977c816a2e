"""Which of a run's checkpoints had the lowest held-out loss, as ``held_out.jsonl`` tells. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kosmos.checkpoint.folder import committed, step_of

if TYPE_CHECKING:
    from kosmos.train.output import RunFolder


def losses(rows: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """Held-out losses by step, of so many documents as were scored last: those of others compare with none of these.

    Args:
        rows: of ``held_out.jsonl``, in their order. Losses that are not finite, and rows of no scoring, do not count.
    """
    found: dict[int, tuple[int, float]] = {}
    for row in rows:
        overall = (row.get("held_out") or {}).get("overall") or {}
        documents, loss = overall.get("documents"), overall.get("loss")
        if documents and loss is not None and math.isfinite(loss):
            found[row["step"]] = documents, loss
    last = next(reversed(found.values()))[0] if found else None
    return {step: loss for step, (documents, loss) in found.items() if documents == last}


def best_step(rows: Iterable[Mapping[str, Any]], among: Collection[int] | None = None) -> int | None:
    """The step of the lowest held-out loss, the first of equals; None where none of them was scored.

    Args:
        rows: as of ``losses``.
        among: steps to choose from; None for all.
    """
    found = {step: loss for step, loss in losses(rows).items() if among is None or step in among}
    return min(found, key=lambda step: (found[step], step), default=None)


class Best:
    """The checkpoint that a run keeps for its held-out loss. The first rank asks it."""

    def __init__(self, folder: RunFolder, *, wanted: bool) -> None:
        """
        Args:
            wanted: whether one is to be kept.
        """
        self._folder, self._wanted = folder, wanted

    def of(self, steps: Collection[int] | None = None) -> int | None:
        """The step to keep of these, or of all that were taken and scored; None where none is to be kept."""
        if not self._wanted:
            return None
        rows = [row for row in self._folder.scores() if row["step"]]
        return best_step(rows, steps)

    def line(self, last: int) -> str | None:
        """What to tell at the end, where the best is not the last step."""
        best = self.of([step_of(checkpoint) for checkpoint in committed(self._folder.checkpoints)])
        if best in (None, last):
            return None
        return f"of what is saved step {best} has the lowest held-out loss; --step best takes it"
