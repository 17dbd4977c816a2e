"""A run whose model is the mean of several checkpoints of another: to score, to export, to begin a stage with."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from kosmos.checkpoint.averaging import write_average
from kosmos.checkpoint.folder import committed, load_step, step_of
from kosmos.errors import CheckpointError, ConfigError
from kosmos.lock import LOCK_FILE
from kosmos.names import listed
from kosmos.train.output import RunFolder
from kosmos.train.saved import config_of


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
    """
    folder = RunFolder.open(output)
    folder.check_checkpoints()
    there = sorted(step_of(checkpoint) for checkpoint in committed(folder.checkpoints))
    chosen = sorted(set(steps)) or there[-(last or len(there)) :]
    if len(chosen) < 2:
        raise CheckpointError(
            f"{folder.checkpoints}: an average is of two checkpoints or more; steps there: "
            f"{listed(map(str, there))}; checkpoint.keep_last and checkpoint.keep_every say which are kept"
        )
    loaded = [load_step(folder.checkpoints, step) for step in chosen]
    partial = new.with_name(f".{new.name}.{uuid4().hex[:8]}")
    try:
        partial.mkdir()
    except OSError as error:
        raise ConfigError(f"{new}: cannot write ({error.strerror}); name another folder") from error
    try:
        _make(folder, partial, new)
        write_average(loaded, RunFolder(partial).checkpoints)
        partial.rename(new)
    except OSError as error:
        raise ConfigError(f"{new}: cannot write ({error.strerror}); name another folder") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return chosen


def _make(folder: RunFolder, partial: Path, new: Path) -> None:
    """What a run's folder has beside its checkpoints and ledgers."""
    made = RunFolder(partial)
    made.checkpoints.mkdir()
    shutil.copytree(folder.tokenizer, made.tokenizer)
    for file in (folder.path / LOCK_FILE, folder.model):
        if file.is_file():
            shutil.copy(file, partial / file.name)
    made.write_config(config_of(folder).model_copy(update={"output": new.resolve()}))
