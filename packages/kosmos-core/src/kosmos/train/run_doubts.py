"""What a user should know of a run: what shows before its first step, and what only as steps are taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kosmos.config import RunConfig
from kosmos.train.doubts import LEARNS_WITHIN, doubts, learns_nothing, torn
from kosmos.train.loop import Trainer
from kosmos.train.opening import Opened
from kosmos.train.waste import waste_of


def first_doubts(config: RunConfig, run: Opened, *, resumed: bool) -> list[str]:
    """As of ``doubts``, of a session that begins. To read and compare two large vocabularies takes seconds."""
    made = run.composition
    return [*doubts(
        config, run.sources, resumed=resumed, tokenizer=made.tokenizer, scored=run.scored,
        backbone=made.model.backbone, streams=made.model.streams.items(), routes=made.planner.routes,
    )]  # fmt: skip


def told_of_failed_data(failed: int, saved: int, go_on: str) -> str:
    """The line about data that failed behind one step, where another may be what is saved."""
    what = "which is saved" if saved == failed else f"and step {saved} is saved"
    return f"the data failed after step {failed}, {what}; once the data can be read again, go on with: {go_on}"


class StepDoubts:
    """Of one session of a run."""

    def __init__(self, opened: Opened) -> None:
        self._waste, self._planner = waste_of(opened), opened.composition.planner
        self._torn_is_told = False

    def after(self, trainer: Trainer, row: dict[str, Any]) -> Iterator[str | None]:
        """Warnings behind the step that the trainer has taken.

        Args:
            row: of its metrics.
        """
        yield from self._waste.look(row, is_last=trainer.step == trainer.config.train.steps)
        yield from trainer.budget.warnings()
        if trainer.step == trainer.first_step + LEARNS_WITHIN:
            yield from learns_nothing(trainer.model)
        if not self._torn_is_told and (origin := trainer.feeder.torn):
            yield torn(f"documents such as {origin}", self._planner)
            self._torn_is_told = True
