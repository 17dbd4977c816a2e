"""The warmup of a run that goes on with another number of steps: what is behind it does not come again."""

from __future__ import annotations

from kosmos.checkpoint.folder import committed, step_of
from kosmos.config import RunConfig
from kosmos.train.output import RunFolder


def with_kept_warmup(now: RunConfig, folder: RunFolder) -> RunConfig:
    """The run with the steps of warmup that it has had, if that is over and no other number of steps is stated.

    A share of the steps, or the default, would come to more of them in a longer run, and the learning rate would begin
    to rise again from below its peak.

    Args:
        folder: which has the settings as they were until now, and a checkpoint.
    """
    before, new = folder.goes_on_with({}).train, now.train
    if _is_whole(new.warmup_steps) or (new.warmup_steps != before.warmup_steps and not _is_whole(before.warmup_steps)):
        return now  # which states another
    # Of a file that states a share, each start by --auto-resume states it again.
    if new.warmup == before.warmup or step_of(committed(folder.checkpoints)[0]) < before.warmup:
        return now
    return now.model_copy(update={"train": new.model_copy(update={"warmup_steps": before.warmup})})


def _is_whole(warmup_steps: float | None) -> bool:
    """Whether it is a number of steps, whatever the length of the run."""
    return warmup_steps is not None and (warmup_steps >= 1 or warmup_steps == 0)
