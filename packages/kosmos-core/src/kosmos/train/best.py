"""Which of a run's checkpoints scored best on held-out documents, as ``held_out.jsonl`` tells. Imports no torch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from kosmos.checkpoint.folder import committed, step_of
from kosmos.train.measure import ALL, HOW, Measure, measured

if TYPE_CHECKING:
    from pathlib import Path

    from kosmos.config import RunConfig
    from kosmos.train.output import RunFolder


class _Scoring(NamedTuple):
    value: float
    documents: int
    tried: dict[str, Any]
    """By source, those that could not be read included; of answers that were written, how that was done."""


def measure_of(folder: RunFolder) -> Measure:
    """What ``evaluate.best`` of a run's file states; the loss of all documents where the run has none.

    Of a metric of answers that were written, the scorings themselves tell whether lower is better.
    """
    evaluate = (folder.read_config() if folder.run_file.is_file() else {}).get("evaluate")
    stated = evaluate.get("best") if isinstance(evaluate, Mapping) else None
    return Measure.of(stated, measured(folder.scores())) if isinstance(stated, str) else ALL


def values(rows: Iterable[Mapping[str, Any]], measure: Measure = ALL) -> dict[int, float]:
    """What was measured by step, of scorings that compare: of as many documents of the same sources as were tried last,
    and of these of the most that could be read. Of one source, its documents alone count.

    Args:
        rows: of ``held_out.jsonl``, in their order. Values that are not finite, and rows of no scoring, do not count.
    """
    found = {row["step"]: scoring for row in rows if (scoring := _scoring(row, measure)) is not None}
    last = next(reversed(found.values())).tried if found else {}
    compare = {step: scoring for step, scoring in found.items() if scoring.tried == last}
    most = max((scoring.documents for scoring in compare.values()), default=0)
    return {step: scoring.value for step, scoring in compare.items() if scoring.documents == most}


def _scoring(row: Mapping[str, Any], measure: Measure) -> _Scoring | None:
    told = row.get("held_out") or {}
    if (figure := measure.figure(told)) is None:
        return None
    read = {name: part.get("pieces") or part["documents"] for name, part in (told.get("source") or {}).items()}
    unread: Mapping[str, int] = told.get("unread") or {}  # older rows lack it
    apart = told.get("questions") or ()  # which are not among all documents
    names = [n for n in {**read, **unread} if n not in apart] if measure.source is None else [measure.source]
    tried: dict[str, Any] = {name: read.get(name, 0) + unread.get(name, 0) for name in names}
    if measure.is_of_written:
        tried = told.get(HOW) or {}
    return _Scoring(figure.value, figure.compared, tried)


def ranked(
    rows: Iterable[Mapping[str, Any]], among: Collection[int] | None = None, measure: Measure = ALL
) -> list[int]:
    """Steps by what was measured, the best first, and of equals the first; without those that were not scored.

    Args:
        rows: as of ``values``.
        among: steps to choose from; None for all.
    """
    found = {step: value for step, value in values(rows, measure).items() if among is None or step in among}
    return sorted(found, key=lambda step: (measure.cost(found[step]), step))


def best_step(
    rows: Iterable[Mapping[str, Any]], among: Collection[int] | None = None, measure: Measure = ALL
) -> int | None:
    """The first of ``ranked``; None where there is none."""
    return next(iter(ranked(rows, among, measure)), None)


def worse_than_begun(
    rows: Iterable[Mapping[str, Any]], measure: Measure = ALL, *, init: str | Path | None = None
) -> str | None:
    """That every scoring was worse than the one before the first step, of which there is no checkpoint; else None.

    Args:
        rows: as of ``values``.
        init: what the run began with, if it is named.
    """
    found = values(rows, measure)
    since = {step: value for step, value in found.items() if step}
    best = min(since, key=lambda step: measure.cost(since[step]), default=0)
    if 0 not in found or not best or measure.cost(since[best]) <= measure.cost(found[0]):
        return None
    begun = f"what it began with ({init})" if init else "what it began with"
    return (
        f"no scoring was better than the one before the first step: the {measure} was {measure.shown(found[0])}, and "
        f"since then {measure.shown(since[best])} at best (step {best}); {begun} is better than what it saved: "
        "lower train.learning_rate, or look at the data"
    )


class Best:
    """The checkpoint that a run keeps because it scored best. The first rank asks it."""

    def __init__(self, folder: RunFolder, config: RunConfig, metrics: Mapping[str, bool]) -> None:
        """
        Args:
            metrics: of answers that are written, as of ``Measure.of``.
        """
        self._folder, self._wanted = folder, config.checkpoint.keep_best
        self._init = config.init.path if config.init else None
        self._measure = Measure.of(config.evaluate.best, metrics)

    def of(self, steps: Collection[int]) -> int | None:
        """The step to keep of these; None where none is to be kept."""
        with suppress(OSError):  # of a ledger that cannot be read now; the checkpoints are not at fault
            return best_step(self._folder.scores(), steps, self._measure) if self._wanted else None
        return None

    def is_to_be_saved(self, step: int, ordered: int | None) -> bool:
        """Whether a step that was scored just now is better than all that is saved, or being saved (``ordered``)."""
        return self.of({step, ordered or step, *self._saved()}) == step

    def line(self, last: int) -> str | None:
        """What to tell at the end, where the best is not the last step."""
        if (best := self.of(self._saved())) in (None, last):
            return None
        return f"of what is saved step {best} has the {self._measure.best}; --step best takes it"

    def warning(self) -> str | None:
        """What to warn of at the end."""
        with suppress(OSError):
            return worse_than_begun(self._folder.scores(), self._measure, init=self._init)
        return None

    def _saved(self) -> list[int]:
        return [step_of(checkpoint) for checkpoint in committed(self._folder.checkpoints)]
