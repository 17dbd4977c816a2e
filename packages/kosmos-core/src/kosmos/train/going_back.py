"""Back to a checkpoint that is good, or to the end of a run whose weights are broken."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from kosmos.checkpoint.folder import Loaded, committed, load_newest, load_step, step_of
from kosmos.config import GuardConfig
from kosmos.errors import CheckpointError, TrainingError
from kosmos.train.loop import Trainer
from kosmos.train.output import RunFolder


class GoingBack:
    """See the module. All ranks call it.

    Args:
        say: shows a line to the user.
        go_on: command that goes on with the run.
    """

    def __init__(
        self, trainer: Trainer, folder: RunFolder, guard: GuardConfig, say: Callable[[str], None], go_on: str
    ) -> None:
        self._trainer, self._folder, self._guard, self._say, self._go_on = trainer, folder, guard, say, go_on
        self._went_back: list[int] = []

    def cannot_save(self, what: str) -> None:
        """Note weights that are broken in place of a checkpoint of them.

        Args:
            what: as ``kosmos.train.broken.broken`` says.

        Raises:
            TrainingError: the guard stops at that, to which leaving out batches (``skip``) is no answer.
        """
        parallel, step = self._trainer.parallel, self._trainer.step
        saved = parallel.main_only(lambda: [step_of(c) for c in committed(self._folder.checkpoints)])
        there = [one for one in saved if one < step]
        goes_back = self._guard.non_finite == "roll_back" and bool(there)
        action = "roll_back" if goes_back else "stop"
        row = {"step": step, "kind": "broken_weights", "action": action, "weight": what, "documents": []}
        parallel.main_only(lambda: self._folder.append(self._folder.guards, [row]))
        text = f"step {step}: {what} after the update, so it is not saved"
        if goes_back:
            self._say(f"warning: {text}; back to the newest checkpoint")
            return
        kept = f"the newest checkpoint is of step {there[0]}" if there else "no checkpoint was saved before"
        advice = "lower train.learning_rate, or look at train.optimizer"
        again = f", and go on with: {self._go_on}" if there else ""
        raise parallel.found_by_all(TrainingError(f"guard: {text}; {kept}; {advice}{again}"))

    def load(self) -> Loaded:
        """Load the newest whole checkpoint whose weights are finite: weights, optimizer and step.

        Runs of older versions may have saved others, which are passed over.

        Raises:
            TrainingError: there is none, or this one was gone back to too often.
        """
        folder, parallel, below = self._folder.checkpoints, self._trainer.parallel, None
        while (loaded := parallel.main_only(partial(_newest, folder, below))) is not None:
            self._trainer.go_back(loaded)
            if (what := self._trainer.broken()) is None:
                break
            below = self._trainer.step
            self._say(f"warning: guard: passed over the checkpoint of step {below}: {what}")
        if loaded is None and below is None:
            raise TrainingError("guard: no checkpoint to go back to yet; lower checkpoint.every_steps")
        if loaded is None:
            raise TrainingError(f"guard: {folder}: the weights of no checkpoint are finite; start a new run")
        self._went_back.append(step := self._trainer.step)
        if (times := self._went_back.count(step)) > self._guard.at_most:
            again = f"something is wrong again after going back to step {step} {times - 1} times"
            ledger = self._folder.guards
            raise parallel.found_by_all(
                TrainingError(f"guard: {again} (guard.at_most); look at {ledger}, or lower train.learning_rate")
            )
        return loaded


def _newest(checkpoints: Path, below: int | None) -> Loaded | None:
    """Of all, or of those of steps below one."""
    if below is None:
        return load_newest(checkpoints)
    for step in (step_of(checkpoint) for checkpoint in committed(checkpoints)):
        if step < below:
            with suppress(CheckpointError):  # a damaged one
                return load_step(checkpoints, step)
    return None
