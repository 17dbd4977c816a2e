"""A run whose model is the mean of several checkpoints of another: to score, to export, to begin a stage with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kosmos.checkpoint.averaging import write_average
from kosmos.checkpoint.folder import load_step, step_of, with_manifest
from kosmos.errors import CheckpointError
from kosmos.names import listed
from kosmos.train.begun import AVERAGE, note
from kosmos.train.branch import new_run
from kosmos.train.gone import check_checkpoints
from kosmos.train.output import RunFolder


def average_run(output: Path, new: Path, *, last: int | None = None, steps: Sequence[int] = ()) -> list[int]:
    """Average the weights of a run's checkpoints.

    The averages of parameters along a run at a constant learning rate score much as the end of a decay does (LAWA,
    arXiv 2209.14981; for language models arXiv 2507.17634).

    Args:
        output: folder of the run.
        new: folder to make, with one checkpoint.
        last: how many of the newest; None all that there are, where no ``steps`` are named.
        steps: those of these steps.

    Returns:
        The steps that were averaged.

    Raises:
        ConfigError: ``output`` is no run, or there is something at ``new``.
        CheckpointError: fewer than two checkpoints, none of a step, or a damaged one.
        TrainingError: the disk is full or not writable; nothing is left at ``new``.
    """
    folder = RunFolder.open(output)
    check_checkpoints(folder)
    there = sorted(step_of(checkpoint) for checkpoint in with_manifest(folder.checkpoints))
    chosen = sorted(set(steps)) or there[-(last or len(there)) :]
    if len(chosen) < 2:
        raise CheckpointError(
            f"{folder.checkpoints}: an average is of two checkpoints or more; steps there: "
            f"{listed(map(str, there))}; checkpoint.keep_last and checkpoint.keep_every say which are kept"
        )
    loaded = [load_step(folder.checkpoints, step) for step in chosen]
    with new_run(folder, new) as made:
        write_average(loaded, made.checkpoints)
        note(made, folder, AVERAGE, steps=chosen)
    return chosen
