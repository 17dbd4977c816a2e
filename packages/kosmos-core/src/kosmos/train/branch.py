"""A run of its own that goes on from a checkpoint of another one. Imports no torch."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kosmos.checkpoint.folder import TENSORS, Loaded, begin, commit, load_step, manifest_of, sync
from kosmos.config import RunConfig
from kosmos.errors import ConfigError, TrainingError, unwritable
from kosmos.lock import LOCK_FILE
from kosmos.run_file import make_run
from kosmos.train.begun import BRANCH, note
from kosmos.train.changes import changes_of, told
from kosmos.train.output import RunFolder


def branch(run: RunFolder, step: int, output: Path) -> list[str]:
    """Make ``output`` a run that has taken the steps of ``run`` up to a checkpoint, which both have from then on.

    It has the settings of today's run file, all that the model is built of, and the ledgers as they were then. What
    belongs to the other run alone it has not: goodput, profiles and what trackers wrote.

    Returns:
        Settings that the other run has changed since that step, for a person.

    Raises:
        ConfigError: ``output`` is there already, or cannot be made.
        CheckpointError: there is no whole checkpoint of this step.
        TrainingError: something cannot be copied, or the disk is full; nothing is left of it.
    """
    loaded = load_step(run.checkpoints, step)
    later = [row for row in changes_of(run.changes) if row["step"] > step and row["launch"] is not None]
    with new_run(run, output) as new:
        for file in (run.metrics, run.held_out, run.quarantine, run.guards, run.changes, run.parts):
            if file.exists():
                shutil.copyfile(file, new.path / file.name)
        run.answers.copy_to(new.answers)
        _take_over(loaded, new.checkpoints)
        new.truncate(step, same_data=True, noted=loaded.state.get("noted"))
        place = {"output": [str(run.path.resolve()), str(output.resolve())]}
        new.append(new.changes, [{"step": step + 1, "launch": None, "changed": place}])
        new.finish()
        note(new, run, BRANCH, step=step)
    return [told(row["changed"]) for row in later]


@contextmanager
def new_run(run: RunFolder, output: Path) -> Iterator[RunFolder]:
    """A folder with what the model of ``run`` is built of, which is a run's once the block has ended well.

    Raises:
        ConfigError: ``output`` is there already, or cannot be made.
        TrainingError: something cannot be copied, or the disk is full; nothing is left of it.
    """
    config = make_run(run.read_config(), where=str(run.run_file))
    with run_folder(config, output, f"cannot copy what {run.path} has") as new:
        for file in (run.model, run.parameters, run.begun, run.path / LOCK_FILE):
            if file.exists():
                shutil.copyfile(file, new.path / file.name)
        if run.tokenizer.exists():
            shutil.copytree(run.tokenizer, new.tokenizer)
        yield new


@contextmanager
def run_folder(config: RunConfig, output: Path, fails: str = "cannot write") -> Iterator[RunFolder]:
    """A folder that is the run's once the block has ended well; what fails in it ``fails``. Raises as ``new_run``."""
    try:
        output.mkdir(parents=True)
    except FileExistsError:
        raise ConfigError(f"{output}: is there already; name a folder that is not") from None
    except OSError as error:
        raise unwritable(output, error, "name another", "cannot make the folder") from error
    new = RunFolder(output)
    try:
        yield new
        new.write_config(config.model_copy(update={"output": output.resolve()}))
    except BaseException as error:
        shutil.rmtree(output, ignore_errors=True)
        if isinstance(error, OSError):
            raise TrainingError(f"{output}: {fails} ({error}); nothing is left there") from error
        raise


def _take_over(loaded: Loaded, checkpoints: Path) -> None:
    """Its files by links, which no run ever writes to; copied where the disk has none."""
    partial = begin(checkpoints, loaded.state["step"])
    hashes = {name: sha256 for name, sha256 in manifest_of(loaded.folder).items() if name.startswith(f"{TENSORS}/")}
    for name in hashes:
        try:
            os.link(loaded.folder / name, partial / name)
        except OSError:
            shutil.copyfile(loaded.folder / name, partial / name)
            sync(partial / name)
    commit(partial, loaded.state["step"], loaded.state, hashes)
