"""What checkpoints a run keeps: a part of ``kosmos.config``."""

from __future__ import annotations

from pydantic import Field

from kosmos.strict import Strict


class CheckpointConfig(Strict):
    """What is kept to go on from."""

    every_steps: int = Field(default=200, ge=1)
    """Save every so many steps, and after the last."""
    keep_last: int = Field(default=2, ge=1)
    """How many of the newest checkpoints are kept."""
    keep_every: int | None = Field(default=None, ge=1)
    """Also save every so many steps, whether or not ``every_steps`` does, and keep those checkpoints; None keeps no
    others."""
    keep_best: bool = False
    """Save whenever a scoring is the best so far (``evaluate.best``: by default of the lowest held-out loss), and keep
    that checkpoint too, until one scores better: ``--step best``. Needs ``evaluate.every_steps``."""

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint of this step is asked for: one that is to be kept has to be saved first."""
        return any(step % every == 0 for every in (self.every_steps, self.keep_every) if every)
