"""Which checkpoint of another run a run began with: ``begun.json`` of its folder. Imports no torch."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from kosmos.checkpoint.folder import MANIFEST, Loaded, digest, mapping_of
from kosmos.errors import ConfigError, TrainingError
from kosmos.files import replace_text
from kosmos.train.output import RunFolder

INIT = "init"
"""The key of what ``init`` has taken."""


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
