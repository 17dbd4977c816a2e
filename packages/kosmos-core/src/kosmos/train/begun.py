"""What a run began with, or was made of: ``begun.json`` of its folder. Imports no torch."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from kosmos.checkpoint.folder import MANIFEST, Loaded, digest, mapping_of
from kosmos.errors import ConfigError, TrainingError
from kosmos.files import replace_text
from kosmos.train.output import RunFolder

INIT, BRANCH, AVERAGE = "init", "branch", "average"
"""The keys of what ``init`` has taken, and of the run that one was branched off, or is the mean of."""


class Begun(NamedTuple):
    """A checkpoint of another run, as it was when its weights were taken."""

    path: str
    """Folder of that run."""
    step: int
    manifest: str
    """SHA-256 of the checkpoint's manifest, and so of all that is in it."""

    @staticmethod
    def of(loaded: Loaded) -> Begun:
        """What is to be known of a checkpoint."""
        run = os.path.abspath(loaded.folder.parent.parent)
        return Begun(run, int(loaded.state["step"]), digest(loaded.folder / MANIFEST))


def write_begun(folder: RunFolder, begun: Begun) -> None:
    """Note what a run begins with.

    Raises:
        TrainingError: the disk is full or not writable.
        ConfigError: what was noted before is damaged.
    """
    told = {**_told(folder), INIT: begun._asdict()}
    try:
        replace_text(folder.begun, json.dumps(told, indent=2) + "\n")
    except OSError as error:
        raise TrainingError(f"{folder.begun}: cannot write ({error.strerror})") from error


def read_begun(folder: RunFolder) -> Begun | None:
    """What ``write_begun`` noted; None of a run that has begun with no other, or by an older version.

    Raises:
        ConfigError: the file is damaged.
    """
    found = _told(folder).get(INIT)
    try:
        return None if found is None else Begun(str(found["path"]), int(found["step"]), str(found["manifest"]))
    except (ValueError, LookupError, TypeError) as error:
        raise _damaged(folder, error) from error


def noted(folder: RunFolder) -> dict[str, dict[str, Any]]:
    """What is said under each of the keys, for people: nothing where the file is damaged, or an older version's."""
    try:
        found = mapping_of(folder.begun)
    except (OSError, ValueError):
        return {}
    return {of: told for of, told in found.items() if isinstance(told, dict)}


def note(new: RunFolder, run: RunFolder, how: str, **steps: Any) -> None:
    """Say in the folder of a run that it was made of another, whose beginning is its own.

    Args:
        new: the run that was made.
        how: ``BRANCH`` or ``AVERAGE``.
        steps: those of the checkpoints of ``run`` that were taken.

    Raises:
        OSError: the disk is full or not writable.
    """
    first = {INIT: told} if (told := noted(run).get(INIT)) else {}
    made = {how: {"path": os.path.abspath(run.path), **steps}}
    replace_text(new.begun, json.dumps(first | made, indent=2) + "\n")


def _told(folder: RunFolder) -> dict[str, Any]:
    """All that the file says: of a run that was made of others, more than what ``init`` has taken."""
    try:
        return mapping_of(folder.begun)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _damaged(folder, error) from error


def _damaged(folder: RunFolder, error: Exception) -> ConfigError:
    return ConfigError(f"{folder.begun}: damaged ({error}); put it back as it was, or start a new run")
