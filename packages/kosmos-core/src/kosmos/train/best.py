"""Which of a run's checkpoints had the lowest held-out loss, as ``held_out.jsonl`` tells. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from kosmos.checkpoint.folder import committed, step_of

if TYPE_CHECKING:
    from kosmos.train.output import RunFolder


class _Scoring(NamedTuple):
    loss: float
    documents: int
    tried: dict[str, int]
    """By source, those that could not be read included."""


def losses(rows: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """Held-out losses by step, of those that compare: of as many documents of the same sources as were tried last, and
    of these of the most that could be read.

    Args:
        rows: of ``held_out.jsonl``, in their order. Losses that are not finite, and rows of no scoring, do not count.
    """
    found = {row["step"]: scoring for row in rows if (scoring := _scoring(row)) is not None}
    last = next(reversed(found.values())).tried if found else {}
    compare = {step: scoring for step, scoring in found.items() if scoring.tried == last}
    most = max((scoring.documents for scoring in compare.values()), default=0)
    return {step: scoring.loss for step, scoring in compare.items() if scoring.documents == most}


def _scoring(row: Mapping[str, Any]) -> _Scoring | None:
    told = row.get("held_out") or {}
    overall = told.get("overall") or {}
    documents, loss = overall.get("documents"), overall.get("loss")
    if not documents or loss is None or not math.isfinite(loss):
        return None
    read = {name: part["documents"] for name, part in (told.get("source") or {}).items()}
    unread: Mapping[str, int] = told.get("unread") or {}  # older rows lack it
    return _Scoring(loss, documents, {name: read.get(name, 0) + unread.get(name, 0) for name in {**read, **unread}})


def ranked(rows: Iterable[Mapping[str, Any]], among: Collection[int] | None = None) -> list[int]:
    """Steps by their held-out loss, the lowest first, and of equals the first; without those that were not scored.

    Args:
        rows: as of ``losses``.
        among: steps to choose from; None for all.
    """
    found = {step: loss for step, loss in losses(rows).items() if among is None or step in among}
    return sorted(found, key=lambda step: (found[step], step))


def best_step(rows: Iterable[Mapping[str, Any]], among: Collection[int] | None = None) -> int | None:
    """The first of ``ranked``; None where there is none."""
    return next(iter(ranked(rows, among)), None)


class Best:
    """The checkpoint that a run keeps for its held-out loss. The first rank asks it."""

    def __init__(self, folder: RunFolder, *, wanted: bool) -> None:
        """
        Args:
            wanted: whether one is to be kept.
        """
        self._folder, self._wanted = folder, wanted

    def of(self, steps: Collection[int]) -> int | None:
        """The step to keep of these; None where none is to be kept."""
        with suppress(OSError):  # of a ledger that cannot be read now; the checkpoints are not at fault
            return best_step(self._folder.scores(), steps) if self._wanted else None
        return None

    def is_to_be_saved(self, step: int, ordered: int | None) -> bool:
        """Whether a step that was scored just now is better than all that is saved, or being saved (``ordered``)."""
        return self.of({step, ordered or step, *self._saved()}) == step

    def line(self, last: int) -> str | None:
        """What to tell at the end, where the best is not the last step."""
        if (best := self.of(self._saved())) in (None, last):
            return None
        return f"of what is saved step {best} has the lowest held-out loss; --step best takes it"

    def _saved(self) -> list[int]:
        return [step_of(checkpoint) for checkpoint in committed(self._folder.checkpoints)]
