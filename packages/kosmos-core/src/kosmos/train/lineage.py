"""From which runs a run was begun, one after the other (``init``), and what it was made of. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from kosmos.checkpoint.folder import STATE, manifest_of, mapping_of, mismatch, run_and_step, with_manifest
from kosmos.config import RunConfig
from kosmos.errors import ConfigError
from kosmos.run_file import make_run
from kosmos.train.begun import INIT, noted
from kosmos.train.output import RunFolder


class Earlier(NamedTuple):
    """A run that others were begun with."""

    folder: RunFolder
    settings: Mapping[str, Any]
    """What its run file has."""
    step: int | None
    """Of the checkpoint that was taken; None where that was not noted."""

    @property
    def path(self) -> Path:
        """Of its folder."""
        return self.folder.path

    def config(self) -> RunConfig:
        """Its settings as those of today's version. Raises ConfigError where they are none."""
        return make_run(self.settings, where=str(self.folder.run_file))

    def state(self) -> dict[str, Any] | None:
        """What its newest checkpoint tells of its data, without a look at its weights; None where none does."""
        for checkpoint in with_manifest(self.folder.checkpoints):
            with suppress(OSError, ValueError, KeyError, TypeError):
                if mismatch(checkpoint, STATE, manifest_of(checkpoint)[STATE]) is None:
                    return mapping_of(checkpoint / STATE)
        return None


class Lineage(NamedTuple):
    """The runs that a run was begun with, the last of them first."""

    runs: tuple[Earlier, ...] = ()
    lost: Path | None = None
    """The folder where the chain ends since it is gone, or no run file can be read there."""

    def ends(self) -> str | None:
        """A line where more was before the first of the runs that is known; None where all are."""
        if self.lost is None or not self.runs:  # a run that begins with what is gone is refused
            return None
        return (
            f"init: {self.runs[-1].path} began with {self.lost}, which is gone: whether what is scored here was "
            "trained on there is not known"
        )


def lineage(init: Path | None, step: int | None = None) -> Lineage:
    """The run that ``init`` names, the one that this was begun with, and so on.

    Args:
        init: as in a run file; None is a run that was begun with none.
        step: of the checkpoint that was taken, where ``init`` does not say it.
    """
    runs, seen = list[Earlier](), set[Path]()
    while init is not None:
        path, named = run_and_step(init)
        if (place := path.resolve()) in seen:  # a folder was made anew by a run that was begun with its own heirs
            break
        seen.add(place)
        folder = RunFolder(path)
        try:
            settings = folder.read_config()
        except ConfigError:
            return Lineage(tuple(runs), path)
        runs.append(Earlier(folder, settings, step if named is None else named))
        init, step = begun_with(folder, settings)
    return Lineage(tuple(runs))


def begun_with(folder: RunFolder, settings: Mapping[str, Any]) -> tuple[Path | None, int | None]:
    """What a run was begun with, and the step of the checkpoint where that was noted.

    Args:
        settings: what its run file has, whose path counts: runs are moved.
    """
    init, step = settings.get("init"), noted(folder).get(INIT, {}).get("step")
    path = init.get("path") if isinstance(init, Mapping) else init
    return (Path(path), step if isinstance(step, int) else None) if isinstance(path, str) else (None, None)
